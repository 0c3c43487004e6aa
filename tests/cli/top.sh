#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tier: plain=full
# millrace top: what is seen of a program that runs, and what is said of one that cannot be seen.
. "$(dirname "${BASH_SOURCE[0]}")/../expect.sh"
. "$tests/daemons.sh"

top() { timeout $patience "$m" top "$@"; }
# is CONDITION: of the report x of $pid, whose first pipeline has its ops by path in ops
is() {
    top "$pid" --once --json >report 2>err && python3 - "$1" 2>>err <<'E'
import json, sys
x = json.load(open("report"))
ops = {o["path"]: o for o in x["pipelines"][0]["ops"]}
sys.exit(not eval("(" + sys.argv[1] + ")"))
E
}
# seen NAME CONDITION: it is so some time
seen() { until_true is "$2"; result "$1" $? "$(cat report err)"; }

mkfifo lines
"$m" show --threads 2 --memory-limit 4G 'text_line("lines").map(x => length(x), num_parallel_calls=2).prefetch(4)' >out 2>show.err & pid=$!
exec 5<>lines
printf 'a\nbb\nccc\n' >&5
seen elements_are_counted 'ops["prefetch/map/text_line"]["elements"] == 3'
seen what_it_is 'x["pid"] == '$pid' and "show --threads 2" in x["command"] and x["resident_bytes"] > 1 << 20 and
    x["pipelines"][0]["graph"].startswith("text_line(\"lines\").map(") and x["pipelines"][0]["threads"] == 2 and
    x["pipelines"][0]["memory_limit"] == 4 << 30 and x["pipelines"][0]["seconds"] > 0'
seen room_of_queues 'ops["prefetch"]["room_elements"] == 4 and ops["prefetch/map"]["room_blocks"] == 2'
seen ops_have_all_figures 'all(set(o) == set("""op path elements blocks bytes busy_seconds wait_seconds elements_per_second
    bytes_per_second busy_threads waiting_threads queued_elements queued_blocks queued_bytes room_elements room_blocks dropped""".split())
    for o in ops.values()) and ops["prefetch/map/text_line"]["blocks"] > 0 and ops["prefetch"]["op"] == "prefetch"'
top $pid --once >text 2>err; rc=$?
[ $rc = 0 ] && grep -q "^process $pid: .*show" text && grep -q '^pipeline 1, open for ' text &&
    grep -Eq '^  prefetch/map/text_line +3 ' text && grep -Eq '^  prefetch +[0-9]+ .* of 4 elements' text && ! grep -q $'\033' text
result text $? "status $rc $(cat text err)"

# A second look has rates since the first; the program's end ends it.
timeout $patience "$m" top $pid --json --interval 0.05 >reports 2>top.err 5>&- & watcher=$!
while_runs $watcher has reports
printf 'dddd\n' >&5
counted() { tail -n 2 reports | grep -q '"path": "prefetch/map/text_line", "elements": 4,'; }
while_runs $watcher counted
exec 5>&-
end_of $pid; same the_watched_program_is_not_disturbed "$? $(tr '\n' ' ' <out)" '0 1 2 3 4 '
end_of $watcher; rc=$?
[ $rc = 0 ] && grep -qxF "millrace top: process $pid has ended" top.err && python3 - >>top.err 2>&1 <<'E'
import json
r = [json.loads(l) for l in open("reports")]
last = lambda x: next(o for p in x["pipelines"] for o in p["ops"] if o["path"] == "prefetch/map/text_line")
seen = [last(x) for x in r if x["pipelines"]]
# The first is of the whole time; the one line came between two others.
assert [o["elements_per_second"] > 0 for o in seen].count(True) == 2 and seen[0]["elements_per_second"] > 0, seen
assert seen[0]["elements"] == 3 and seen[-1]["elements"] == 4
E
result rates_are_of_the_time_between_reports $? "status $rc $(cat top.err)"

# ---- what cannot be seen
expect no_such_process 1 '' "there is no process $pid" -- "$m" top $pid
expect no_millrace 1 '' "process $$ (" 'runs no pipeline that can be watched' -- "$m" top $$
expect no_number 2 '' "'abc' is not a process id" -- "$m" top abc
expect no_negative_number 2 '' "'-5' is not a process id" -- "$m" top -- -5
expect one_process 2 '' 'the id of one process' -- "$m" top
expect an_interval_of_no_time 2 '' '--interval must be' -- "$m" top --interval 0 $$
expect once_has_no_interval 2 '' 'cannot be combined' -- "$m" top --once --interval 2 $$
python3 - $$ >taken.out <<'E' &
import socket, sys
s = socket.socket(socket.AF_UNIX)
s.bind("\0millrace-top-" + sys.argv[1])
s.listen()
print("there", flush=True)
s.accept()[0].recv(1)
E
taken=$!
until_true has taken.out
expect another_took_the_name 1 '' "the socket of process $$ is bound by another process, $taken" -- "$m" top $$
end_of $taken

# ---- a data service's worker: its streams
start dispatcher "$m" dispatcher --listen 127.0.0.1:0
dispatcher=$pid at_dispatcher=$at
start worker "$m" worker --dispatcher "$at"
mkfifo slow
"$m" show "counter().map(x => x + 1).distribute(\"$at_dispatcher\", streams=2)" >slow 2>client.err & client=$!
exec 6<slow
seen streams_of_a_worker 'len(x["pipelines"]) == 2 and ops["map"]["elements"] > 0 and "worker --dispatcher" in x["command"]'
exec 6<&-
kill -TERM $pid $dispatcher
for p in $client $pid $dispatcher; do end_of $p; done
if [ "$(id -u)" = 0 ] && setpriv --reuid 1234 --clear-groups true 2>/dev/null; then
    # The other user must reach the program, and it is not open to all everywhere.
    cp "$m" millrace && chmod a+rx . millrace
    "$m" show --limit 1 'text_line("lines")' >out & pid=$!
    exec 5<>lines
    until_true is True
    expect of_another_user 1 '' "process $pid belongs to another user (uid 0)" -- \
        setpriv --reuid 1234 --clear-groups ./millrace top $pid
    other=$(python3 -c '
import os, socket, sys
os.setgroups([])
os.setuid(1234)
s = socket.socket(socket.AF_UNIX)
s.connect("\0millrace-top-" + sys.argv[1])
print(len(s.recv(100)))' $pid 2>&1)
    same another_user_gets_nothing "$other" 0
    printf 'x\n' >&5
    exec 5>&-
    end_of $pid
else
    skip of_another_user "only root can be two users"
fi

finish
