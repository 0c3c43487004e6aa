#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tier: plain=full asan=full tsan=full
# distribute("HOST:PORT", ...) between processes on loopback: the elements of service="local", the
# same ones in the same order, whichever client reads them from whichever worker.
. "$(dirname "${BASH_SOURCE[0]}")/../expect.sh"
. "$tests/daemons.sh"

show() { timeout $patience "$m" show --seed 5 "$@" 2>err; }
# d GRAPH [OPTIONS]: its text, read from the service; l the same in the process
d() { echo "$1.distribute(\"$service\"${2:+, $2})"; }
l() { echo "$1.distribute(\"local\"${2:+, $2})"; }

for i in 0 1 2 3 4 5 6 7 8 9; do seq $((i * 10)) $((i * 10 + i)) >part-$i.txt; done
mkdir few elsewhere
cp part-3.txt part-7.txt few/
for format in arrow parquet; do
    "$m" write --out $format --shards 3 --format $format --expr 'range(40).map(x => {"x": x, "l": ones([x % 3])})' 2>/dev/null
done
"$m" write --out squares --shards 3 --expr "range(3000).map(x => {\"x\": x * x})" 2>/dev/null
"$m" index squares-* >/dev/null

start dispatcher "$m" dispatcher --listen 127.0.0.1:0
service=$at dispatcher=$pid
start one "$m" worker --dispatcher "$service"
one=$at one_pid=$pid
start two "$m" worker --dispatcher "$service" --threads 1 --no-uring
two=$at two_pid=$pid

# ---- the same as in one process
while IFS='|' read -r graph options; do
    same "as local: $graph $options" "$(show "$(d "$graph" "$options")")" "$(show "$(l "$graph" "$options")")"
    same "as local on epoll, in rows: $graph $options" "$(show --no-uring --block-rows 1 "$(d "$graph" "$options")")" "$(show "$(l "$graph" "$options")")"
done <<'GRAPHS'
range(20).batch(3)|streams=3
range(200).map(x => x * x).shuffle(9)|seed=1, streams=3, block_length=2
range(20).take(7).batch(2)|streams=3
text_line("part-*.txt").batch(3)|streams=4
text_line("part-*.txt").shuffle(5).batch(2)|seed=9
arrow("arrow-*").map(r => r["l"])|streams=3
parquet("parquet-*", columns=["x", "l"]).map(r => r["x"]).batch(2)|streams=2
text_line("few/*.txt").batch(3)|
text_line("few/*.txt").take(9)|
list_files("part-*.txt", shuffle=true).flat_map(f => text_line(f))|seed=2
range(50).map(x => (x, {"s": x * 2, "t": "abc"}))|streams=2
range(9).map(x => range(x)).flat_map(d => d.batch(4))|streams=2
range(30).window(4).flat_map(w => w.batch(2))|streams=3
range(30).bucket_by_sequence_length(x => x, boundaries=[5], batch_sizes=[2, 3])|streams=2
range(12).map(x => 12 // (x - 5)).ignore_errors()|streams=3
range(3000).map(x => (x // 100, "text of a string that compresses well")).batch(100)|compression="ZSTD", streams=3
range(3000).batch(100)|compression="auto", streams=3
range(3000).batch(100)|max_outstanding_bytes=1, streams=3
range(7)|streams=40
range(100000).batch(7)|streams=5, block_length=3
tfrecord("squares*").map(x => parse_example(x, {"x": int64})).batch(10)|
GRAPHS
expect nothing_as_local 0 '' -- "$m" show "$(d 'range(0)')"
same indexes_are_no_data "$(show "$(d 'tfrecord("squares*").map(x => parse_example(x, {"x": int64})["x"])' 'streams=3')" | wc -l)" 3000
while IFS='|' read -r graph options; do
    same "repetitions: $graph $options" "$(show "$(d "$graph" "$options").repeat(3)")" "$(show "$(l "$graph" "$options").repeat(3)")"
    same "repetitions cut off: $graph $options" "$(show "$(d "$graph" "$options").take(5).repeat(4)")" "$(show "$(l "$graph" "$options").take(5).repeat(4)")"
done <<'GRAPHS'
range(12).shuffle(5)|seed=3, streams=3
range(12).shuffle(5).cache()|seed=3, streams=2
range(6).shuffle(9).repeat(2)|seed=3, streams=2
GRAPHS
same errors_stay_in_the_order "$(show "$(d 'range(12).map(x => 12 // (x - 5))' streams=3).ignore_errors()")" \
    "$(show "$(l 'range(12).map(x => 12 // (x - 5))' streams=3).ignore_errors()")"
head -c 20 squares-00000-of-*.tfrecord >cut.tfrecord
for graph in 'tfrecord("cut.tfrecord")' 'tfrecord("cut.tfrecord").enumerate()' 'tfrecord("cut.tfrecord").map(x => x).shuffle(3)'; do
    expect "one_error_counts_once: $graph" 0 '' '1 element failed' -- "$m" show "$(d "$graph" streams=3).ignore_errors()"
    expect "one_error_in_streams_counts_once: $graph" 0 '' -- "$m" show "$(d "$graph.ignore_errors(max=0)" streams=3).ignore_errors(max=1)"
done
truncate -s 5G huge # more than an element may be, and nothing of it is read
same too_large_an_element_is_its_error "$(show "$(d 'files("part-0.txt", "huge", "part-1.txt").map(x => 1)' streams=1).ignore_errors()")" $'1\n1'
rm huge
same without_an_order_every_element_comes_once "$(show "$(d 'range(500)' deterministic=false)" | sort -n)" "$(seq 0 499)"
(for c in 0 1 2; do show "$(d 'range(20)' "streams=8, consumer_index=$c, num_consumers=3")"; done) | sort -n >got
same consumers_have_every_element_once "$(cat got)" "$(seq 0 19)"

expect written_from_the_service 0 ANY -- "$m" write --out served --shards 2 --expr "$(d 'range(100).map(x => {"x": x})' streams=3)"
"$m" write --out here --shards 2 --expr "$(l 'range(100).map(x => {"x": x})' streams=3)" 2>/dev/null
result it_is_what_is_written_here "$(cmp -s served-00000-of-00002.tfrecord here-00000-of-00002.tfrecord && cmp -s served-00001-of-00002.tfrecord here-00001-of-00002.tfrecord; echo $?)"
expect bench_reads_it 0 ANY -- "$m" bench "$(d 'range(1000).batch(10)' streams=2)"
expect explain_needs_no_service 0 ANY -- "$m" explain 'range(9).batch(2).distribute("127.0.0.1:1", streams=2)'
expect a_graph_that_gives_another_each_time 1 '' 'failed precondition' deterministic -- "$m" show "$(d 'range(9).map(x => x, num_parallel_calls=2, deterministic=false)')"

expect shared_memory_by_name 0 "$(printf "0\n1\n2")" -- "$m" show "$(d 'range(3)' 'transfer="shared_memory"')"

# ---- errors name the worker
"$m" show "$(d 'range(12).map(x => 12 // (x - 5))' streams=3)" >got 2>err
rc=$?
"$m" show "$(l 'range(12).map(x => 12 // (x - 5))' streams=3)" >want 2>want.err
result an_error_names_its_stream "$(grep -q 'map: element 1: .*: stream 2: integer division' want.err; echo $?)" "$(cat want.err)"
result an_error_stands_in_its_place "$([ $rc = 1 ] && cmp -s got want && grep -q 'map: element 1: .*: stream 2: integer division' err && grep -qE "at worker ($one|$two)" err; echo $?)" "$(cat got err)"
expect a_missing_file_names_the_worker 1 '' 'not found' 'absent.txt' 'at worker 127.0.0.1' -- "$m" show "$(d 'text_line("absent.txt")')"
expect no_file_matches 1 '' 'not found' 'none-*' 'at worker 127.0.0.1' -- "$m" show "$(d 'text_line("none-*")')"
expect no_file_matches_here 1 '' 'not found' 'none-*' -- "$m" show "$(d 'text_line("none-*")' 'match="client"')"

# ---- files are the client's
(cd elsewhere && "$m" show "text_line(\"../few/*.txt\").distribute(\"$service\")" 2>&1) >got
same names_are_looked_up_where_the_client_is "$(cat got)" "$(show 'text_line("few/*.txt").distribute("local")')"

# ---- positions
# resumes NAME EVERY GRAPH DIRECTORY: from every EVERY-th position, read on from that directory, though a busy machine
# may have warnings
resumes() {
    local all k got bad=''
    all=$(show "$3")
    for k in $(seq 0 "$2" $(($(echo "$all" | wc -l) + 1))); do
        got=$(show --save-after "$k" --state pos "$3"; cd "$4" && timeout $patience "$m" show --restore "$dir/pos" "$3" 2>>"$dir/err")
        [ "$(echo "$got" | sed '/^$/d')" = "$all" ] || bad+="after $k: $got $(cat err)"
    done
    result "$1" "$([ -z "$bad" ]; echo $?)" "$bad
instead of $all"
}
for g in 'text_line("part-*.txt").shuffle(5).batch(2)' 'range(40).map(x => 7 // (x - 11), num_parallel_calls=3).ignore_errors().batch(4).prefetch(2)'; do
    resumes "resumes anywhere: $g" 3 "$(d "$g" 'streams=3, block_length=2, seed=4')" elsewhere
done
resumes resumes_in_any_repetition 4 "$(d 'range(12).shuffle(5)' 'streams=3, seed=8').repeat(3)" .

# ---- jobs by name
expect a_named_job 0 "$(seq 0 9)" -- "$m" show "$(d 'range(10)' 'streams=1, job_name="a"')"
expect a_finished_job_gives_end 0 '' -- "$m" show "$(d 'range(10)' 'streams=1, job_name="a"')"
expect another_graph_under_its_name 1 '' 'invalid argument' 'job "a" runs another graph;' -- "$m" show "$(d 'range(11)' 'streams=1, job_name="a"')"
expect it_is_no_elements_error 1 '' 'job "a" runs another graph;' -- "$m" show "$(d 'range(11)' 'streams=1, job_name="a"').ignore_errors()"
expect a_service_that_is_not_there_is_none 1 '' 'distribute: unavailable: no dispatcher' -- "$m" show 'range(3).distribute("127.0.0.1:1", connect_timeout=0.1).prefetch(2).ignore_errors()'
expect other_streams_under_its_name 1 '' streams 'job "a"' -- "$m" show "$(d 'range(10)' 'streams=2, job_name="a"')"
expect another_block_length_under_its_name 1 '' block_length -- "$m" show "$(d 'range(10)' 'streams=1, block_length=2, job_name="a"')"
expect it_is_cancelled 0 '' -- "$m" service cancel a --dispatcher "$service"
expect its_name_is_free 0 "$(seq 0 10)" -- "$m" show "$(d 'range(11)' 'streams=1, job_name="a"')"
"$m" show "$(d 'counter()' 'streams=16, job_name="endless"')" >endless 2>endless.err &
reader=$!
while_runs $reader has endless
expect a_second_reader_is_refused 1 '' 'failed precondition' 'endless' "process $reader" -- "$m" show "$(d 'counter()' 'streams=16, job_name="endless"')"
on_two() { [ "$("$m" service streams endless --dispatcher "$service" --json | grep -o '"worker": "[0-9.:]*"' | sort -u | wc -l)" = 2 ]; }
result it_is_on_two_workers "$(until_true on_two; echo $?)" "$("$m" service streams endless --dispatcher "$service")"
expect an_index_that_is_read 1 '' 'failed precondition' consumer_index -- sh -c '
    "$1" show "$2" >shared & first=$!
    while ! [ -s shared ]; do sleep 0.05; done
    "$1" show "$2"; rc=$?
    kill -9 $first; wait $first; exit $rc' - "$m" "$(d 'counter()' 'streams=2, job_name="shared", num_consumers=2, consumer_index=1')"
expect it_ends_when_it_is_cancelled 0 '' -- "$m" service cancel endless --dispatcher "$service"
end_of $reader
rc=$?
result its_reader_hears_so "$([ $rc = 1 ] && grep -q 'was cancelled' endless.err; echo $?)" "$rc $(cat endless.err)"
"$m" show "$(d 'counter()' 'job_name="interrupted"')" >interrupted 2>interrupted.err &
reader=$!
while_runs $reader has interrupted
kill -INT $reader; end_of $reader; rc=$?
result an_interrupt_ends_it "$([ $rc = 130 ]; echo $?)" "status $rc $(cat interrupted.err)"
# no other job here has six streams: others without a name may still be on the list
"$m" show "$(d 'counter()' 'streams=6')" >nameless 2>nameless.err &
reader=$!
while_runs $reader has nameless
number=$("$m" service jobs --dispatcher "$service" | sed -n 's/^\([0-9a-f]\{16\}\) .* 6 .* no$/\1/p')
json a_job_without_a_name_has_a_number '[s["stream"] for s in x] == list(range(6))' "$("$m" service streams "$number" --dispatcher "$service" --json)"
shows_it() { [ "$("$m" service status --dispatcher "$service" | grep -c "^$number  *[0-5]  *127")" = 6 ]; }
result the_status_shows_it "$(until_true shows_it; echo $?)" "$("$m" service status --dispatcher "$service")"
expect a_number_of_none 1 '' 'there is no job "0123456789abcdef"' -- "$m" service cancel 0123456789abcdef --dispatcher "$service"
expect it_is_cancelled_by_it 0 '' -- "$m" service cancel "$number" --dispatcher "$service" ||
    kill -9 $reader
end_of $reader
rc=$?
result and_ends "$([ $rc = 1 ] && grep -q 'was cancelled' nameless.err; echo $?)" "$rc $(cat nameless.err)"
rm -f endless interrupted nameless
# The dispatcher does not answer: the client ends within a second or two, and its job, which no other client can join,
# as soon as the dispatcher learns of it. No client that ended normally has left a job.
"$m" show "$(d 'counter()' 'streams=5, client_timeout=3600.0')" >unheard 2>unheard.err &
reader=$!
while_runs $reader has unheard
kill -STOP $dispatcher
kill -INT $reader; end_of $reader; rc=$?
kill -CONT $dispatcher
no_job_without_a_name() { ! "$m" service jobs --dispatcher "$service" | grep -q '^[0-9a-f]\{16\} '; }
result a_client_that_nobody_answers_leaves_no_job \
    "$([ $rc = 130 ] && until_true no_job_without_a_name; echo $?)" "$rc $("$m" service jobs --dispatcher "$service")"
result nor_does_any_that_ends "$(grep -q 'anonymous job .* is silent' dispatcher.err; echo $((1 - $?)))" "$(grep silent dispatcher.err)"
rm -f unheard

# ---- what is asked for next is not: the rest is acknowledged, also while its consumer does nothing
mkfifo busy
"$m" show "$(d 'counter()' 'streams=2, job_name="busy"')" >busy 2>busy.err &
reader=$!
exec 4<busy
some_are_acknowledged() { "$m" service streams busy --dispatcher "$service" --json | grep -q '"acknowledged": [1-9]'; }
result a_busy_consumer_has_acknowledged "$(while_runs $reader some_are_acknowledged; echo $?)" "$("$m" service streams busy --dispatcher "$service")"
kill -9 $reader; wait $reader
exec 4<&-

# ---- registered datasets
id=$("$m" service register 'text_line("part-*.txt").batch(2)' --dispatcher "$service")
expect a_dataset_by_its_id 0 "$(show "$(l 'text_line("part-*.txt").batch(2)' streams=3)")" -- "$m" show "distributed_dataset(\"$service\", \"$id\", streams=3)"
expect its_repetitions 0 "$(show "$(l 'text_line("part-*.txt").batch(2)' streams=3).repeat(2)")" -- "$m" show "distributed_dataset(\"$service\", \"$id\", streams=3).repeat(2)"
expect an_id_of_nothing 1 '' 'not found' 0123 -- "$m" show "distributed_dataset(\"$service\", \"0123\")"
expect an_id_of_nothing_is_not_ignored 1 '' 'not found' 0123 -- "$m" show "distributed_dataset(\"$service\", \"0123\").ignore_errors()"
expect an_id_of_nobody 2 '' unavailable 127.0.0.1:1 -- "$m" show 'distributed_dataset("127.0.0.1:1", "0123", connect_timeout=0.1)'
expect an_id_in_this_process 2 '' HOST:PORT -- "$m" show 'distributed_dataset("local", "0123")'

result anonymous_jobs_are_told_apart "$(grep -Eq 'anonymous job [0-9a-f]{16} begins, in 3 streams' dispatcher.err; echo $?)" "$(head -20 dispatcher.err)"
result named_jobs_by_their_names "$(grep -q 'job "busy" begins' dispatcher.err; echo $?)" "$(head -20 dispatcher.err)"

# ---- garbage on a worker's port
garbage='the connection from .* does not speak this protocol' # a busy machine may close others
printf 'GET / HTTP/1.0\r\n\r\n%0100d' 0 >"/dev/tcp/${two%:*}/${two##*:}"
until_true grep -q "$garbage" two.err
result garbage_is_one_line_of_the_log "$([ "$(grep -c "$garbage" two.err)" = 1 ]; echo $?)" "$two $(cat two.err)"

# ---- draining
"$m" show "$(d 'range(400000).map(x => x + 1)' 'streams=4')" >drained 2>drained.err &
reader=$!
while_runs $reader has drained
expect a_worker_is_drained 0 '' -- "$m" service drain "$one" --dispatcher "$service"
end_of "$one_pid"; rc=$?
result it_ends_with_status_0 "$([ $rc = 0 ]; echo $?)" "$rc $(cat one.err)"
until_true grep -q "worker $one has drained" dispatcher.err
result and_that_is_no_warning "$(grep -q "warning: worker $one" dispatcher.err; echo $((1 - $?)))" "$(cat dispatcher.err)"
end_of $reader; rc=$?
"$m" show "$(l 'range(400000).map(x => x + 1)' 'streams=4')" >want
result nothing_is_lost_by_it "$([ $rc = 0 ] && cmp -s drained want; echo $?)" "$rc $(cat drained.err)"
pid=$two_pid at=$two
stop a_worker_ends_on_sigterm 0

# ---- roots
mkdir -p root/in
ln -s ../../few root/in/out
cp part-3.txt root/in/
start three "$m" worker --dispatcher "$service" --root root/in
three_pid=$pid three=$at
expect below_the_root 0 "$(cat part-3.txt | sed 's/.*/"&"/')" -- "$m" show "$(d 'text_line("root/in/part-3.txt")' streams=1)"
expect above_the_root 1 '' 'permission denied' 'few/part-3.txt' '--root' 'at worker' -- "$m" show "$(d 'text_line("few/part-3.txt")' streams=1)"
expect above_by_dots 1 '' 'permission denied' '--root' -- "$m" show "$(d 'text_line("root/in/../../few/part-3.txt")' streams=1)"
expect above_by_a_link 1 '' 'permission denied' '--root' -- "$m" show "$(d 'text_line("root/in/out/part-3.txt")' streams=1)"
expect above_by_a_pattern 1 '' -- "$m" show "$(d 'text_line("root/in/out/*.txt")' streams=1)"
pid=$three_pid at=$three
stop a_worker_with_a_root_ends 0

# ---- a file that some see
mkdir with without
cp part-3.txt with/here.txt
(cd without && exec "$m" worker --dispatcher "$service") >blind 2>blind.err & blind_pid=$!
(cd with && exec "$m" worker --dispatcher "$service") >sees 2>sees.err & sees_pid=$!
both_have_come() {
    local w workers
    workers=$("$m" service workers --dispatcher "$service" --json)
    for w in blind sees; do grep -qF "\"$(sed -n 's/^ready //p' $w)\"" <<<"$workers" || return 1; done
}
until_true both_have_come
expect it_moves_to_who_sees_the_file 0 "$(sed 's/.*/"&"/' part-3.txt)" -- "$m" show "$(d 'text_line("/proc/self/cwd/here.txt")' 'streams=1, on_missing="move"')"
"$m" show "$(d 'text_line("/proc/self/cwd/here.txt")' 'streams=16')" >got 2>err
result it_does_not_otherwise "$([ $? = 1 ] && grep -q 'not found' err && grep -q "at worker $(sed 's/ready //' blind)" err; echo $?)" "$(cat err)"
kill $blind_pid $sees_pid; end_of $blind_pid; end_of $sees_pid

# ---- systemd, and two signals
python3 -c '
import socket
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind("notify")
s.settimeout(120)
open("bound", "w").close()
for i in range(2): print(s.recv(100).decode(), flush=True)' >notified &
listener=$!
until_true test -e bound
start five env NOTIFY_SOCKET="$dir/notify" "$m" worker --dispatcher "$service"
stop a_worker_ends_under_systemd 0
wait $listener
result systemd_is_told "$([ "$(tr '\n' ' ' <notified)" = 'READY=1 STOPPING=1 ' ]; echo $?)" "$(cat notified five.err)"

# ---- no dispatcher
expect no_dispatcher 1 '' unavailable 127.0.0.1:1 -- "$m" show 'range(3).distribute("127.0.0.1:1", connect_timeout=0.2)'
expect no_worker 1 '' unavailable "$service" 'for 3.0 s; no worker serves the job' -- "$m" show "$(d 'range(3)' stall_timeout=3.0)"
expect no_worker_is_no_elements_error 1 '' unavailable -- "$m" show "$(d 'range(3)' stall_timeout=0.5).ignore_errors()"
"$m" show "$(d 'range(3)' streams=1)" >late 2>late.err & reader=$!
sleep 0.3 # late: it may not be, which is as well
start four "$m" worker --dispatcher "$service"
end_of $reader
same a_worker_may_come_late "$(cat late)" "$(seq 0 2)"
pid=$dispatcher at=$service
stop the_dispatcher_ends 0

# ---- static modes: the first two workers, in the order in which they come
start listing "$m" dispatcher --listen 127.0.0.1:0 --num-workers 2
service=$at listing=$pid
start first "$m" worker --dispatcher "$service"
a_worker_serves() { "$m" service workers --dispatcher "$service" | grep -q serving; }
until_true a_worker_serves
start second "$m" worker --dispatcher "$service"
turns() { show "from_tensor_slices([0, 1]).interleave(i => $1, cycle_length=2)"; }
same data_is_dealt_by_element "$(show "$(d 'range(9).batch(2)' 'processing_mode="data"')")" "$(turns 'range(9).batch(2).shard(2, i)')"
same file_is_dealt_by_file "$(show "$(d 'text_line("part-*.txt").batch(3)' 'processing_mode="file"')")" \
    "$(turns 'list_files("part-*.txt", shuffle=false).shard(2, i).flat_map(f => text_line(f)).batch(3)')"
same a_hint_is_where_the_shard_goes "$(show "$(d 'range(9).shard(-1, 0).batch(2)' 'processing_mode="hint"')")" "$(turns 'range(9).shard(2, i).batch(2)')"
expect what_cannot_be_sharded_by_file 1 '' range -- "$m" show "$(d 'range(9)' 'processing_mode="file"')"
"$m" worker --dispatcher "$service" >third 2>third.err & third_pid=$! # it asks again and again
while_runs $third_pid grep -q 'not on the dispatcher.s list' third.err
kill $third_pid; end_of $third_pid
result a_third_worker_is_refused $(grep -q 'not on the dispatcher.s list' third.err; echo $?) "$(cat third.err)"
expect the_list_is_there_for_exactly_once_too 0 "$(seq 0 5)" -- "$m" show "$(d 'range(6)' streams=3)"

# ---- tokens
echo secret >token; echo other >wrong
start locked "$m" dispatcher --listen 127.0.0.1:0 --token-file token
service=$at locked_pid=$pid
start keyed "$m" worker --dispatcher "$service" --token-file token --root root/in
expect a_client_with_the_token 0 "$(seq 0 3)" -- "$m" show --token-file token "$(d 'range(4)' streams=1)"
expect a_client_with_the_token_of_the_environment 0 "$(seq 0 3)" -- env MILLRACE_TOKEN_FILE=token "$m" show "$(d 'range(4)' streams=1)"
expect a_client_without_a_token 1 '' 'permission denied' token -- "$m" show "$(d 'range(4)' streams=1)"
expect a_client_with_another_token 1 '' 'permission denied' token -- "$m" show --token-file wrong "$(d 'range(4)' streams=1)"
expect a_token_is_no_elements_error 1 '' 'permission denied' token -- "$m" show --token-file wrong "$(d 'range(4)' streams=1).ignore_errors()"
expect a_worker_with_another_token 1 ANY 'permission denied' token -- "$m" worker --dispatcher "$service" --token-file wrong
expect a_token_file_that_is_missing 1 '' 'none.token' -- "$m" show --token-file none.token "$(d 'range(4)' streams=1)"
finish
