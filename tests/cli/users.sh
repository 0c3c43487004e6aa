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
start wk env TF_CONFIG="$cluster, \"task\": {\"type\": \"worker\", \"index\": 0}}" "$m" server
data='range(8).map(i => ([cast(i, "float32")], [1.0])).batch(4)'
train=(train --strategy parameter_server --data "$data" --model 'dense(1)' --loss mse --optimizer 'sgd(0.01)' --steps 2 --log json)
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
