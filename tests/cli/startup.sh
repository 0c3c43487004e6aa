#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tier: plain=full
# How programs start: with standard streams that are closed, and before the dispatcher is there.
. "$(dirname "${BASH_SOURCE[0]}")/../expect.sh"
. "$tests/daemons.sh"

# ---- closed descriptors: no file takes their number
"$m" show --ledger ledger 'range(3)' >&- 2>err
expect output_is_not_written_into_a_ledger 0 ANY -- "$m" why ledger
"$m" write --out w --expr 'range(3)' >&- 2>&-
expect nor_messages_into_shards 0 "$(printf '1\n1\n1')" -- "$m" show 'tfrecord("w-*").map(x => 1)'
printf 'damaged' >damaged
"$m" write --out d --expr 'tfrecord("damaged", on_corrupt="skip")' 2>&- >/dev/null
expect nor_warnings_into_the_lock 0 ANY -- "$m" write --out d --overwrite --expr 'range(3)'
expect no_input_is_an_empty_one 0 '' -- bash -c '"$1" show "text_line(\"-\")" <&-' - "$m"
expect all_three_may_be_closed 0 '' -- bash -c '"$1" show "range(3)" <&- >&- 2>&-' - "$m"
descriptors=$(bash -c '"$1" worker --dispatcher 127.0.0.1:1 <&- >&- 2>&- & p=$!; for i in $(seq 600); do [ -e /proc/$p/fd/5 ] && break; sleep 0.1; done; readlink /proc/$p/fd/0 /proc/$p/fd/1 /proc/$p/fd/2; kill -9 $p' - "$m")
same a_daemon_has_them_at_dev_null "$descriptors" "$(printf '/dev/null\n/dev/null\n/dev/null')"

# ---- a worker is ready when the dispatcher has accepted it
port=$(python3 "$tests/ports.py")
service=127.0.0.1:$port
"$m" worker --dispatcher "$service" --status 127.0.0.1:0 >early 2>early.err & early=$!
while_runs $early grep -q "waiting for the dispatcher at $service\$" early.err
result a_worker_says_that_it_waits $? "$(cat early.err)"
result and_is_not_ready "$([ ! -s early ]; echo $?)" "$(cat early)"
start dispatcher "$m" dispatcher --listen "$service"
while_runs $early grep -q '^status ' early
same it_is_once_it_is_accepted "$(cut -d' ' -f1 early | tr '\n' ' ')" 'ready status '
same it_said_so_once "$(grep -c 'waiting for the dispatcher' early.err)" 1
expect it_serves 0 "$(printf '0\n1\n2')" -- "$m" show "range(3).distribute(\"$service\", streams=1)"
for _ in 1 2 3 4 5; do # on a busy machine one may have to
    start late "$m" worker --dispatcher "$service"
    grep -q 'waiting for' late.err || break
done
result one_that_need_not_wait_does_not_say_so "$(grep -q 'waiting for' late.err; echo $((1 - $?)))" "$(cat late.err)"

# A dispatcher that is there, but does not answer.
python3 -c 'import socket, sys, time
s = socket.create_server(("127.0.0.1", 0))
print("ready 127.0.0.1:%d" % s.getsockname()[1], flush=True)
time.sleep(1000)' >mute & mute=$!
until_true grep -q ^ready mute
silent=$(sed -n 's/^ready //p' mute)
"$m" worker --dispatcher "$silent" >unanswered 2>unanswered.err & unanswered=$!
while_runs $unanswered grep -q "waiting for the dispatcher at $silent\$" unanswered.err
result a_silent_dispatcher_is_waited_for $? "$(cat unanswered.err)"
{ kill -9 $mute && wait $mute; } 2>/dev/null

# One that is not on the list is not ready.
"$m" dispatcher --listen 127.0.0.1:0 --workers 127.0.0.1:1 >listing 2>listing.err & listing=$!
while_runs $listing grep -q ^ready listing
"$m" worker --dispatcher "$(sed -n 's/^ready //p' listing)" >refused 2>refused.err & refused=$!
until_true test -e refused.err
while_runs $refused grep -q "not on the dispatcher.s list" refused.err
result a_refused_worker_is_not_ready "$([ ! -s refused ]; echo $?)" "$(cat refused)"
finish
