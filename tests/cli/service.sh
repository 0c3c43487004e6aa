#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tier: plain=full asan=full
# The data service's programs as their users meet them: real processes on loopback, free ports only.
. "$(dirname "${BASH_SOURCE[0]}")/../expect.sh"
. "$tests/daemons.sh"

for c in dispatcher worker service; do
    expect "help_$c" 0 ANY -- "$m" "$c" --help
    expect "manual_$c" 0 ANY -- "$m" "$c" --help=man
    expect "wrong_flag_$c" 2 '' "$c" '--no-such-flag' -- "$m" "$c" --no-such-flag
done
expect dispatcher_takes_no_words 2 '' "unexpected 'now'" options -- "$m" dispatcher now
expect dispatcher_of_no_address 2 '' 'millrace dispatcher: --listen: an address is host:port' -- "$m" dispatcher --listen nonsense
expect dispatcher_two_lists 2 '' exclude -- "$m" dispatcher --workers a:1 --num-workers 2
expect dispatcher_list_of_no_addresses 2 '' 'HOST:PORT' -- "$m" dispatcher --workers a:1,b
expect dispatcher_without_its_token_file 2 '' 'none.token' -- "$m" dispatcher --token-file none.token
expect worker_takes_no_words 2 '' options -- "$m" worker now --dispatcher 127.0.0.1:1
expect worker_of_nobody 2 '' --dispatcher -- "$m" worker
expect worker_of_words 2 '' "unexpected 'now'" options -- "$m" worker now
expect worker_of_a_dispatcher_without_a_port 2 '' 'millrace worker: --dispatcher: an address is host:port' -- "$m" worker --dispatcher localhost
expect worker_of_no_address 2 '' '--listen: an address is host:port' -- "$m" worker --dispatcher 127.0.0.1:1 --listen nonsense
expect worker_without_its_root 2 '' 'none/' -- "$m" worker --dispatcher 127.0.0.1:1 --root none/
expect worker_whose_root_is_a_file 2 '' 'directory' -- "$m" worker --dispatcher 127.0.0.1:1 --root "$m"
expect worker_of_too_little_memory 2 '' 'at least 16M' -- "$m" worker --dispatcher 127.0.0.1:1 --memory-limit 15M
grep -qs '^MR_SANITIZE:[^=]*=.' "${MR_BUILD:-}/CMakeCache.txt" || # whose own memory counts
    expect worker_of_a_memory_with_a_unit 2 '' 'host:port' -- "$m" worker --dispatcher 127.0.0.1:1 --memory-limit 512M --listen nonsense
expect worker_open_to_all_without_a_root 2 '' --root -- "$m" worker --dispatcher 127.0.0.1:1 --listen 0.0.0.0:0
same requests_say_what_they_take "$("$m" service --help=options | grep -v '^-' | cut -f 1,2 | tr '\t\n' ':;')" \
    'status:;jobs:;workers:;streams:JOB;cancel:JOB;drain:WORKER;rebalance:[JOB];register:EXPR;'
expect dispatcher_of_bounds_that_cross 2 "" "--min-workers is greater" -- "$m" dispatcher --min-workers 3 --max-workers 2
expect worker_of_no_weight 2 '' "between 0.001 and 1000000" -- "$m" worker --dispatcher 127.0.0.1:1 --weight 0
expect service_rebalances_one_job 2 '' "takes [JOB]" -- "$m" service rebalance a b --dispatcher 127.0.0.1:1
expect service_asks_what 2 '' "expected a request" -- "$m" service --dispatcher 127.0.0.1:1
expect service_asks_nonsense 2 '' nonsense -- "$m" service nonsense --dispatcher 127.0.0.1:1
expect service_asks_whom 2 '' --dispatcher -- "$m" service status
expect service_asks_no_address 2 '' '--dispatcher: an address is host:port' -- "$m" service status --dispatcher localhost
expect service_needs_a_job 2 '' JOB -- "$m" service streams --dispatcher 127.0.0.1:1
expect service_watches_status 2 '' status -- "$m" service jobs --watch --dispatcher 127.0.0.1:1
expect nobody_there 1 '' '127.0.0.1:1' unavailable -- "$m" service status --dispatcher 127.0.0.1:1 --timeout 2

# ---- in memory
start a "$m" dispatcher --listen 127.0.0.1:0
result a_dispatcher_is_ready "$(grep -qxE 'ready 127\.0\.0\.1:[0-9]+' a; echo $?)" "$(cat a a.err)"
result it_prints_one_line "$([ "$(wc -l <a)" = 1 ]; echo $?)" "$(cat a)"
result it_says_that_it_keeps_nothing "$(grep -q 'kept in memory' a.err; echo $?)" "$(cat a.err)"
json status_json 'list(x) == ["jobs", "workers", "streams", "uptime_seconds", "target_workers", "target_reasons", "state"] and x["jobs"] == 0 and x["state"] == "memory" and x["uptime_seconds"] >= 0' \
    "$("$m" service status --dispatcher "$at" --json)"
expect jobs_json 0 '[]' -- "$m" service jobs --dispatcher "$at" --json
expect workers_json 0 '[]' -- "$m" service workers --dispatcher "$at" --json
result status_text "$("$m" service status --dispatcher "$at" >out && grep -q 'account in memory' out && grep -qx 'jobs 0, workers 0, streams 0' out; echo $?)" "$(cat out)"
expect jobs_text 0 'JOB  MODE  STREAMS  ELEMENTS  FINISHED' -- "$m" service jobs --dispatcher "$at"
expect no_such_job 1 '' 'no job "nosuch"' -- "$m" service streams nosuch --dispatcher "$at"
expect no_such_job_to_cancel 1 '' 'nosuch' -- "$m" service cancel nosuch --dispatcher "$at"
expect no_such_worker 1 '' '127.0.0.1:2' -- "$m" service drain 127.0.0.1:2 --dispatcher "$at"
expect a_graph_that_is_none 2 '' -- "$m" service register 'range(' --dispatcher "$at"
expect a_status_page_open_to_others 2 '' --status --listen -- "$m" dispatcher --listen 127.0.0.1:0 --status 0.0.0.0:0
expect a_status_page_of_no_address 2 '' '--status: an address is host:port' -- "$m" dispatcher --listen 127.0.0.1:0 --status nonsense
expect a_status_page_in_use 1 '' "$at" -- "$m" dispatcher --listen 127.0.0.1:0 --status "$at"
expect the_address_is_in_use 1 '' "$at" -- "$m" dispatcher --listen "$at"
: >watched
timeout $patience "$m" service status --watch --dispatcher "$at" >watched 2>watched.err & watcher=$!
shown_twice() { [ "$(grep -c '^dispatcher ' watched)" -ge 2 ]; }
while_runs $watcher shown_twice
kill -INT $(pgrep -P $watcher) 2>/dev/null; end_of $watcher; rc=$?
result status_is_watched_until_interrupted \
    "$([ $rc = 130 ] && [ "$(grep -c '^dispatcher ' watched)" -ge 2 ] && grep -q '^No worker has connected' watched; echo $?)" "status $rc $(cat watched watched.err)"
printf 'GET / HTTP/1.0\r\n\r\n%0100d' 0 >"/dev/tcp/${at%:*}/${at##*:}"
until_true grep -q 'does not speak this protocol' a.err # a busy machine may close other connections
result garbage_is_one_line_of_the_log "$([ "$(grep -c 'does not speak this protocol' a.err)" = 1 ]; echo $?)" "$(cat a.err)"
expect it_serves_on 0 '[]' -- "$m" service jobs --dispatcher "$at" --json
stop it_ends_on_sigterm 0

# ---- with a state
start b "$m" dispatcher --listen 127.0.0.1:0 --state state
id=$("$m" service register 'range(10).map(x => x * 2).batch(3)' --dispatcher "$at")
result an_id_is_printed "$([[ $id =~ ^[0-9a-f]{16}$ ]]; echo $?)" "$id"
expect the_same_graph_has_the_same_id 0 "$id" -- "$m" service register 'range(10).map(x => x * 2).batch(3)' --dispatcher "$at"
json status_names_the_state 'x["state"] == "state"' "$("$m" service status --dispatcher "$at" --json)"
expect two_dispatchers_one_state 1 '' 'another dispatcher' 'account.db' -- "$m" dispatcher --listen 127.0.0.1:0 --state state
kill -9 "$pid"; wait "$pid" 2>/dev/null
start c "$m" dispatcher --listen 127.0.0.1:0 --state state
expect the_id_outlives_a_kill 0 "$id" -- "$m" service register 'range(10).map(x => x * 2).batch(3)' --dispatcher "$at"
stop it_ends_with_a_state 0
echo garbage >state/account.db
rm -f state/account.db-wal
expect a_garbled_state 1 '' 'account.db' -- "$m" dispatcher --listen 127.0.0.1:0 --state state

# ---- tokens, JSON log, systemd
echo secret >token; echo other >wrong
start d "$m" dispatcher --listen 127.0.0.1:0 --token-file token --log json
expect without_the_token 1 '' token -- "$m" service status --dispatcher "$at"
expect with_another_token 1 '' token -- "$m" service status --dispatcher "$at" --token-file wrong
expect with_the_token 0 ANY -- "$m" service status --dispatcher "$at" --token-file token
expect with_the_token_of_the_environment 0 ANY -- env MILLRACE_TOKEN_FILE=token "$m" service status --dispatcher "$at"
result the_log_is_json "$(python3 -c '
import json
lines = [json.loads(l) for l in open("d.err")]
assert any(l["level"] == "warning" and "was closed" in l["message"] and l["time"] > 1e9 for l in lines)' 2>&1; echo $?)" "$(cat d.err)"
stop it_ends_with_tokens 0

# A client that leaves while the dispatcher still talks to it: the connection is reset, not closed.
start d "$m" dispatcher --listen 127.0.0.1:0 --token-file token --log json
cat >leaving.py <<'EOF'
import select, socket, struct, subprocess, sys
m, host, port = sys.argv[1], *sys.argv[2].split(":")
door = socket.create_server(("127.0.0.1", 0))
tool = subprocess.Popen([m, "service", "status", "--token-file", "token",
                         "--dispatcher", "127.0.0.1:%d" % door.getsockname()[1]])
near, far = door.accept()[0], socket.create_connection((host, int(port)))
while True:
    for s in select.select([near, far], [], [])[0]:
        data = s.recv(65536)
        if not data:
            far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            far.close()
            sys.exit(tool.wait())
        (far if s is near else near).sendall(data)
EOF
expect a_client_that_is_gone_at_once 0 ANY -- python3 leaving.py "$m" "$at"
stop it_ends_without_the_client 0
result it_is_no_warning "$(! grep -q 'was closed' d.err; echo $?)" "$(cat d.err)"
python3 -c '
import socket
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind("notify")
s.settimeout(120)
open("bound", "w").close()
for i in range(2): print(s.recv(100).decode(), flush=True)' >notified &
listener=$!
until_true test -e bound
start e env NOTIFY_SOCKET="$dir/notify" "$m" dispatcher --listen 127.0.0.1:0
stop it_ends_under_systemd 0
wait $listener
result systemd_is_told "$([ "$(tr '\n' ' ' <notified)" = 'READY=1 STOPPING=1 ' ]; echo $?)" "$(cat notified e.err)"

finish
