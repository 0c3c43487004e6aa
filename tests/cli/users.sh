#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tier: plain=full
# Without a token every daemon serves only the processes of the user that runs it: dispatcher,
# worker, parameter server, and the ranks of a job. Needs root, to be two users.
. "$(dirname "${BASH_SOURCE[0]}")/../expect.sh"
. "$tests/daemons.sh"

other=65534
printf '#!/bin/sh\nexec setpriv --reuid=%s --regid=%s --clear-groups "$@"\n' $other $other >as_other
chmod 755 as_other
as=$dir/as_other
if [ "$(id -u)" != 0 ] || ! "$as" true 2>/dev/null; then
    skip other_users_are_refused 'needs root, to run processes of two users'
    finish
fi
chmod 711 "$dir"
"$as" test -x "$m" || { skip other_users_are_refused 'the other user cannot run the program here'; finish; }

start dispatcher "$m" dispatcher --listen 127.0.0.1:0
service=$at dispatcher=$pid
start worker "$m" worker --dispatcher "$service"
worker=$at
g="range(3).distribute(\"$service\", streams=1"
three=$(printf '0\n1\n2')
expect the_own_user_is_served 0 "$three" -- "$m" show "$g)"
expect it_is_by_tcp_too 0 "$three" -- "$m" show "$g, transfer=\"tcp\")"
expect another_user_is_refused 1 '' 'permission denied' 'own user' '--any-user' -- "$as" "$m" show "$g)"
expect it_is_without_shared_memory 1 '' 'permission denied' -- "$as" "$m" show "$g, transfer=\"tcp\")"
expect another_users_tool_is_refused 1 '' 'permission denied' -- "$as" "$m" service status --dispatcher "$service"
expect another_users_worker_is_refused 1 '' 'permission denied' -- "$as" "$m" worker --dispatcher "$service"
result the_log_names_the_user "$(grep -q "user $other on this host was closed: permission denied" dispatcher.err; echo $?)" "$(cat dispatcher.err)"

# The worker itself, without its dispatcher.
expect a_worker_is_no_way_in 1 '' 'permission denied' -- "$as" "$m" service status --dispatcher "$worker"

# ---- one who speaks the protocol himself, and finds the local sockets in the kernel's list
cat >stranger.py <<'PYTHON'
import encodings.idna, os, socket, sys

sys.path.insert(0, sys.argv[1])
from hostile_frames import field, frame, frames, hello, parse, send

user, daemons, addresses = int(sys.argv[2]), sys.argv[3].split(), sys.argv[4:]

ASK = frame(field(40, field(1, b"status")))
ours = {os.readlink(f"/proc/{p}/fd/{fd}") for p in daemons for fd in os.listdir(f"/proc/{p}/fd")}
sockets = {w[7] for w in map(str.split, open("/proc/net/unix")) if w[-1][:10] == "@millrace-" and f"socket:[{w[6]}]" in ours}
os.setgroups([])
os.setresgid(user, user, user)
os.setresuid(user, user, user)


def enter(s, beyond_challenge, role):
    """The numbers of the messages that come in, after Hello and the messages that follow the challenge."""
    s.settimeout(60)
    stream, got, own = frames(s), [], None
    send(s, hello(role=role))
    for _, head in stream:
        message = parse(head)
        got += message
        if 2 in message: # Challenge
            own = parse(message[2]).get(7)
            send(s, beyond_challenge)
    return got, own


def connect(at):
    if at[0] != "@":
        return socket.create_connection((at.rsplit(":", 1)[0], int(at.rsplit(":", 1)[1])))
    s = socket.socket(socket.AF_UNIX)
    s.connect("\0" + at[1:])
    return s


tried = 0
for at in [*addresses, *sorted(sockets)]:
    for role in (2, 3, 4, 5, 7):
        for name, then in {"proof": frame(field(3, b"")), "proof and more": frame(field(3, b"")) + ASK,
                           "no proof": ASK, "another hello": hello(role=role) + ASK}.items():
            with connect(at) as s:
                got, own = enter(s, then, role)
            tried += 1
            # 4: Welcome. 41: Report. Only a refusal may come after the challenge.
            if not (set(got) <= {2, 5} and (own == 1 or at in sockets)):
                sys.exit(f"{at} as role {role}, {name}: messages {got}, own_user {own}")
if len(sockets) != 2:
    sys.exit(f"local sockets: {sockets}")
print(tried)
PYTHON
expect a_stranger_gets_nothing_but_refusals 0 80 -- python3 stranger.py "$tests/service" $other "$dispatcher $pid" "$service" "$worker"

# ---- a dispatcher of another user gets no worker
start fake "$as" "$m" dispatcher --listen 127.0.0.1:0
expect a_worker_does_not_trust_it 1 '' 'permission denied' "belongs to user $other" -- "$m" worker --dispatcher "$at"
start fake "$as" "$m" dispatcher --listen 127.0.0.1:0 --any-user
expect nor_where_it_serves_any_user 1 '' 'permission denied' 'no token shows' -- "$m" worker --dispatcher "$at"

# ---- any user, and a token
start open "$m" dispatcher --listen 127.0.0.1:0 --any-user
service=$at
start open_worker "$m" worker --dispatcher "$service" --any-user
expect any_user_is_served_where_asked_for 0 "$three" -- "$as" "$m" show "range(3).distribute(\"$service\", streams=1)"
head -c 32 /dev/urandom >token
chmod 644 token
start keyed "$m" dispatcher --listen 127.0.0.1:0 --token-file token
service=$at
start keyed_worker "$m" worker --dispatcher "$service" --token-file token
expect a_token_serves_any_user 0 "$three" -- "$as" env MILLRACE_TOKEN_FILE="$dir/token" "$m" show "range(3).distribute(\"$service\", streams=1)"
expect without_it_nobody 1 '' token -- "$m" show "range(3).distribute(\"$service\", streams=1)"

# ---- training: servers and ranks
if ! "$m" train --help >/dev/null 2>&1; then
    skip training 'millrace-train is not here'
    finish
fi
read -r ps_port wk_port r0 r1 < <(python3 "$tests/ports.py" 4)
cluster="{\"cluster\": {\"ps\": [\"127.0.0.1:$ps_port\"], \"worker\": [\"127.0.0.1:$wk_port\"]}"
start ps env TF_CONFIG="$cluster, \"task\": {\"type\": \"ps\", \"index\": 0}}" "$m" server
ps=$pid ps_at=$at
start wk env TF_CONFIG="$cluster, \"task\": {\"type\": \"worker\", \"index\": 0}}" "$m" server
data='range(8).map(i => ([cast(i, "float32")], [1.0])).batch(4)'
train=(train --strategy parameter_server --data "$data" --model 'dense(1)' --loss mse --optimizer 'sgd(0.01)' --steps 2 --log json)
expect servers_give_a_stranger_refusals_only 0 80 -- python3 stranger.py "$tests/service" $other "$ps $pid" "$ps_at" "$at"
expect another_user_does_not_train_on_the_servers 1 '' 'permission denied' 'own user' -- "$as" env TF_CONFIG="$cluster}" "$m" "${train[@]}"
expect the_own_user_does 0 ANY -- env TF_CONFIG="$cluster}" "$m" "${train[@]}"

ranks="{\"cluster\": {\"worker\": [\"127.0.0.1:$r0\", \"127.0.0.1:$r1\"]}"
rank() { # INDEX WORDS...: its command is run with these words before it
    local i=$1
    shift
    "$@" env TF_CONFIG="$ranks, \"task\": {\"type\": \"worker\", \"index\": $i}}" "$m" train --data "$data" \
        --model 'dense(1)' --loss mse --optimizer 'sgd(0.01)' --strategy multi_worker_mirrored --log json "${more[@]}"
}
more=(--connect-timeout 3)
rank 0 >r0 2>r0.err & first=$!
rank 1 "$as" >r1 2>r1.err
[ $? = 1 ] && ! wait $first
result a_rank_of_another_user_is_none $? "$(cat r0.err r1.err)"
result its_user_is_named "$(grep -q "refused a connection of user $other on this host" r0.err; echo $?)" "$(cat r0.err)"
more=(--connect-timeout 60 --any-user)
rank 0 >r0 2>r0.err & first=$!
rank 1 "$as" >r1 2>r1.err && wait $first
result unless_any_user_is $? "$(cat r0.err r1.err)"
more=(--connect-timeout 60)
rank 0 >r0 2>r0.err & first=$!
rank 1 >r1 2>r1.err && wait $first
result ranks_of_one_user_meet $? "$(cat r0.err r1.err)"
finish
