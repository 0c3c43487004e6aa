#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tier: plain=full tsan=full
# The processing modes whose streams come and go, between processes on loopback: how often each
# element comes, whichever process dies.
. "$(dirname "${BASH_SOURCE[0]}")/../expect.sh"
. "$tests/daemons.sh"

show() { timeout $patience "$m" show "$@" 2>err; }
# elements: the numbers of standard input, one a line, in order
elements() { tr -d '[]" ' | tr , '\n' | sed '/^$/d' | sort -n; }
# times N FIRST LAST: each of them N times
times() { seq "$2" "$3" | awk -v n="$1" '{ for (i = 0; i < n; i++) print }'; }
# exactly NAME N FIRST LAST FILES...: what they hold is each number N times
exactly() {
    local name=$1 want
    want=$(times "$2" "$3" "$4")
    shift 4
    cat "$@" | elements >all
    result "$name" $([ "$(cat all)" = "$want" ]; echo $?) "$(uniq -c all | awk '{ print $1 " times" }' | sort | uniq -c)
$(tail -n 5 ./*.err)"
}
# serving N: until N workers serve
serving() {
    until_true serve "$1"
}
serve() { [ "$("$m" service workers --dispatcher "$service" | grep -c serving)" = "$1" ]; }
# started FILE: until something is in it
started() {
    until_true has_or_ended "$1"
    has "$1" || result "$1_has_begun" 1 "nothing came in $patience s"
}
has_or_ended() { has "$1" || [ -e "$1.rc" ]; }
# slowly FILE COMMAND...: starts it, and takes the second part of its output late: after go_on
slowly() {
    local out=$1
    shift
    rm -f "$out" "$out.rc" "go_on.$out" # now: what an earlier test left is not what `started` waits for
    {
        (timeout $patience "$@" 2>"$out.err"; echo $? >"$out.rc") | {
            head -c 3000 >"$out"
            until_true test -e "go_on.$out"
            cat >>"$out"
        }
    } &
}
# go_on FILE...
go_on() { touch "${@/#/go_on.}"; }

start dispatcher "$m" dispatcher --listen 127.0.0.1:0 --state account
service=$at dispatcher=$pid
p() { echo "$1.distribute(\"$service\", processing_mode=\"parallel_epochs\"${2:+, $2})"; }
start one "$m" worker --dispatcher "$service"
one=$at one_pid=$pid
serving 1

# ---- parallel_epochs, of one worker: the order of service="local"
for g in 'range(30).shuffle(9).batch(4)' 'range(12).map(x => 12 // (x - 5)).ignore_errors()'; do
    same "one worker: $g" "$(show "$(p "$g" seed=3)")" "$(show "$g.distribute(\"local\", processing_mode=\"parallel_epochs\", seed=3)")"
    same "its repetitions: $g" "$(show "$(p "$g" seed=3).repeat(3)")" "$(show "$g.distribute(\"local\", processing_mode=\"parallel_epochs\", seed=3).repeat(3)")"
done
show --ledger l "$(p 'range(3)')" >out
expect a_ledger_says_that_a_service_names_no_records 0 ANY '3 of 3 elements have no records' -- "$m" why l
expect a_record_is_not_looked_for_in_vain 1 '' 'no element has the record 0:1' '3 of 3 elements have no records' -- "$m" why l --record 0:1
expect nothing_to_read 0 '' -- "$m" show "$(p 'range(0)')"
"$m" show "$(p 'range(12).map(x => 12 // (x - 5))')" >got 2>err
result an_error_names_the_worker "$([ $? = 1 ] && grep -q "map: element 5: .*: stream 0: .*at worker $one" err; echo $?)" "$(cat got err)"

# ---- of several workers
start two "$m" worker --dispatcher "$service" --no-uring
two=$at two_pid=$pid
serving 2
show "$(p 'range(500).shuffle(100).batch(3)')" >got
exactly two_workers_have_all_of_it_each 2 0 499 got
result each_in_an_order_of_its_own "$([ "$(show "$(p 'range(500).shuffle(500)')" | head -n 1000 | awk '!seen[$0]++' | elements | wc -l)" = 500 ]; echo $?)"
show --block-rows 1 "$(p 'range(50)').repeat(2)" >got
exactly repetitions_of_two_workers 4 0 49 got
show "$(p 'range(60).map(x => 60 // (x - 5))').ignore_errors()" >got
same errors_are_each_workers "$(wc -l <got)" 118
"$m" show "$(p 'range(9)' 'job_name="shared", num_consumers=2, consumer_index=0')" >/dev/null 2>err
result consumers_are_refused "$([ $? = 2 ] && grep -q job_name err; echo $?)" "$(cat err)"

# ---- clients share a job by its name
graph=$(p 'range(20000).batch(5)' 'job_name="shared", max_outstanding_bytes=4000')
slowly first "$m" show "$graph"; a=$!
slowly second "$m" show "$graph"; b=$!
either_has_begun() { [ -s first ] || [ -s second ]; } # the other may have to wait for its end
until_true either_has_begun
go_on first second
end_of $a; end_of $b
exactly two_clients_have_it_together 2 0 19999 first second
json it_has_a_stream_for_each_worker 'len(x) == 2 and all(s["end"] and s["acknowledged"] == 4000 for s in x)' \
    "$("$m" service streams shared --dispatcher "$service" --json)"
json its_mode_is_shown '[j["mode"] for j in x if j["job"] == "shared"] == ["parallel_epochs"]' "$("$m" service jobs --dispatcher "$service" --json)"
expect who_comes_late_gets_the_end 0 '' -- "$m" show "$graph"
"$m" show "$(p 'range(7)' 'job_name="shared"')" >got 2>err
result another_graph_under_its_name "$([ $? = 1 ] && grep -q 'job "shared"' err; echo $?)" "$(cat err)"

# ---- a worker that is killed continues from its position, a new one begins
slowly got "$m" show "$(p 'range(40000).shuffle(50).batch(5)' 'job_name="back", max_outstanding_bytes=4000')"; reader=$!
started got
kill -9 $two_pid; wait $two_pid
start two "$m" worker --dispatcher "$service" --listen "$two"
two_pid=$pid
go_on got
end_of $reader
exactly a_worker_that_is_back_goes_on 2 0 39999 got
json it_is_the_same_stream 'len(x) == 2' "$("$m" service streams back --dispatcher "$service" --json)"
slowly got "$m" show "$(p 'range(40000).batch(5)' 'job_name="new", max_outstanding_bytes=4000')"; reader=$!
started got
start three "$m" worker --dispatcher "$service"
three_pid=$pid
serving 3
go_on got
end_of $reader
exactly a_new_worker_begins 3 0 39999 got
kill -9 $three_pid; wait $three_pid

# ---- one that is lost when it has given all of a repetition is awaited in the next one
serving 2
slowly got "$m" show "$(p 'range(200000).batch(50)' 'job_name="twice", max_outstanding_bytes=4000').repeat(2)"; reader=$!
started got
kill -STOP $one_pid # else the repetition ends; what it has sent is less than all of it
go_on got
a_stream_has_ended() { "$m" service streams twice --dispatcher "$service" --json | grep -q '"end": true'; }
until_true a_stream_has_ended
kill -9 $two_pid; wait $two_pid
# A kernel closes the connections of a process with io_uring some time after its death; one that seems to
# serve still has a stream in the next repetition, which waits for it.
two_is_lost() { "$m" service workers --dispatcher "$service" | grep -q "^$two .* lost"; }
until_true two_is_lost
kill -CONT $one_pid
end_of $reader
result the_next_repetition_awaits_it "$([ "$(cat got.rc)" = 0 ] && grep -q "continues without worker $two" got.err; echo $?)" "$(cat got.rc got.err)"
exactly but_not_for_ever 1 0 199999 <(elements <got | uniq)
same of_the_others_it_has_all "$(elements <got | wc -l)" 600000
start two "$m" worker --dispatcher "$service" --listen "$two"
two_pid=$pid

# ---- the dispatcher is killed, and the client
serving 2
slowly got "$m" show "$(p 'range(40000).batch(5)' 'job_name="kept", max_outstanding_bytes=4000')"; reader=$!
started got
kill -9 $dispatcher; wait $dispatcher
start dispatcher "$m" dispatcher --listen "$service" --state account
dispatcher=$pid
go_on got
end_of $reader
exactly a_dispatcher_that_is_back_goes_on 2 0 39999 got
serving 2

# ---- positions
graph=$(p 'range(90).shuffle(20).batch(2)' 'seed=8')
bad=0
for k in 0 1 7 40 89 90; do
    timeout $patience "$m" show --save-after $k --state pos "$graph" >got 2>err && timeout $patience "$m" show --restore pos "$graph" >>got 2>>err || bad=1
    [ "$(elements <got)" = "$(times 2 0 89)" ] || bad=1
    ! grep -q 'after it was lost' err || bad=1 # nothing was
done
result positions_are_each_streams $bad "$(elements <got | uniq -c | head -n 5) $(cat err)"

# ---- dynamic: every element once, whichever stream has which split
d() { echo "$1.distribute(\"$service\", processing_mode=\"dynamic\"${2:+, $2})"; }
for i in 0 1 2 3 4 5 6 7 8 9; do seq $((i * 300)) $((i * 300 + 299)) >part-$i.txt; done
while IFS='|' read -r graph times first last; do
    show --block-rows 50 "$(d "$graph")" >got
    exactly "dynamic: $graph" "$times" "$first" "$last" got
done <<'GRAPHS'
text_line("part-*.txt").batch(7)|1|0|2999
text_line("part-*.txt").shuffle(500).prefetch(2)|1|0|2999
list_files("part-*.txt", shuffle=true).flat_map(f => text_line(f))|1|0|2999
list_files("part-*.txt").shuffle(4).interleave(f => text_line(f), cycle_length=4, num_parallel_calls=4, deterministic=false)|1|0|2999
text_line("part-*.txt").repeat(3).shuffle(100)|3|0|2999
range(0)|1|0|-1
range(3)|1|0|2
range(100000).shuffle(1000).batch(9)|1|0|99999
range(99, -1, -1)|1|0|99
range(60).repeat(4)|4|0|59
range(50).concatenate(range(50, 100)).repeat(2)|2|0|99
from_tensor_slices([0, 1, 2, 3])|1|0|3
range(100).take(30).shuffle(9)|1|0|29
range(30).repeat(2).concatenate(range(30))|3|0|29
range(30).cache().repeat(3)|3|0|29
range(600).map(x => x, num_parallel_calls=4, deterministic=false)|1|0|599
zip(text_line("part-*.txt"), text_line("part-*.txt").map(x => x)).filter((x, y) => x == y).map((x, y) => x)|1|0|2999
zip(range(30), range(30)).map((x, y) => x)|1|0|29
GRAPHS
show "$(d 'range(90)').repeat(3)" >got
exactly repetitions_of_dynamic 3 0 89 got
show "$(d 'text_line("part-*.txt")' 'match="client", streams=1, job_name="one"')" >got
exactly the_client_matched_the_files 1 0 2999 got
json at_most_as_many_streams 'len(x) == 1' "$("$m" service streams one --dispatcher "$service" --json)"
expect a_zip_that_would_come_apart 1 '' 'failed precondition' zip 'no longer match' exactly_once -- "$m" show "$(d 'zip(text_line("part-*.txt"), range(9))')"
expect a_file_that_is_missing 1 ANY 'not found' absent.txt 'at worker' -- "$m" show "$(d 'text_line(["part-1.txt", "absent.txt"])')"
expect it_ends_whatever_follows 1 ANY 'not found' absent.txt 'at worker' -- "$m" show "$(d 'text_line(["part-1.txt", "absent.txt", "part-2.txt"])').ignore_errors()"
expect it_ends_whatever_is_below 1 ANY 'not found' absent.txt 'at worker' -- "$m" show "$(d 'text_line(["part-1.txt", "absent.txt", "part-2.txt"]).ignore_errors()')"
same reading_goes_on_where_its_name_is_an_element \
    "$("$m" show "$(d 'from_tensor_slices(["part-1.txt", "absent.txt", "part-2.txt"]).flat_map(text_line)').ignore_errors()" 2>/dev/null | wc -l)" 600

# ---- clients share it
graph=$(d 'range(40000).batch(5)' 'job_name="ours", max_outstanding_bytes=4000')
slowly first "$m" show "$graph"; a=$!
slowly second "$m" show "$graph"; b=$!
started first
started second
go_on first second
end_of $a; end_of $b
exactly two_clients_have_every_element_once 1 0 39999 first second
result each_has_some "$([ -s first ] && [ -s second ]; echo $?)"
expect who_comes_late_gets_the_end_too 0 '' -- "$m" show "$graph"

# ---- more clients than streams: who has none says so, and gets the end
says() { grep -q "$2" "$1" 2>/dev/null; }
wide=$(d 'range(40000).batch(5)' 'job_name="wide", max_outstanding_bytes=4000')
slowly third "$m" show "$wide" & c=$!
started third
timeout $patience "$m" show "$wide" >fourth 2>fourth.err & b=$! # all but what the streams of the third have
graph=$(d 'range(40000).batch(5)' 'job_name="narrow", streams=1, max_outstanding_bytes=4000')
rm -f began second.err
timeout $patience "$m" show "$graph" 2>err | { head -c 3000 >first; touch began; until_true says second.err 'waiting for a stream'; cat >>first; } & a=$!
until_true test -e began
timeout $patience "$m" show "$graph" >second 2>second.err
same a_client_without_a_stream_gets_the_end $? 0
end_of $a
exactly both_have_every_element_once 1 0 39999 first second
result a_client_without_a_stream_says_so "$(grep -q 'waiting for a stream of the job' second.err; echo $?)" "$(cat second.err)"
until_true says fourth.err 'waiting for'
go_on third
end_of $b; end_of $c
exactly these_have_every_element_once 1 0 39999 third fourth
result one_that_has_read_its_streams_says_so_too "$(grep -q 'waiting for a stream of the job' fourth.err; echo $?)" "$(cat fourth.err)"

# ---- workers and the dispatcher are killed
slowly got "$m" show "$(d 'range(60000).shuffle(50).batch(5)' 'job_name="moved", max_outstanding_bytes=4000')"; reader=$!
started got
kill -9 $two_pid; wait $two_pid
sleep 0.3
kill -9 $dispatcher; wait $dispatcher
start dispatcher "$m" dispatcher --listen "$service" --state account
dispatcher=$pid
start two "$m" worker --dispatcher "$service" --listen "$two"
two_pid=$pid
go_on got
end_of $reader
exactly killed_workers_and_dispatcher_lose_nothing 1 0 59999 got

# ---- positions: also of a job that the dispatcher has forgotten, as it does with those without a name
for graph in "$(d 'range(2000).shuffle(100).batch(5)' 'seed=3')" "$(d 'text_line("part-*.txt").repeat(2).shuffle(50).batch(3)' 'seed=4')" \
    "$(d 'range(2000).batch(5)' 'seed=5, job_name="saved"')"; do
    case $graph in *part-*) want=$(times 2 0 2999) ;; *) want=$(times 1 0 1999) ;; esac
    bad=0
    for k in 0 1 90 399; do
        timeout $patience "$m" show --save-after $k --state pos "$graph" >got 2>err && timeout $patience "$m" show --restore pos "$graph" >>got 2>>err || bad=1
        [ "$(elements <got)" = "$want" ] || bad=1
        ! grep -q 'after it was lost' err || bad=1 # nothing was
        "$m" service cancel saved --dispatcher "$service" 2>/dev/null
    done
    result "resumes anywhere: $graph" $bad "$(elements <got | uniq -c | awk '{ print $1 " times" }' | sort | uniq -c) $(cat err)"
done
graph=$(d 'range(2000).batch(5)' 'job_name="again"')
timeout $patience "$m" show --save-after 90 --state pos "$graph" >first 2>err
show "$(d 'range(2000).batch(5)' 'job_name="again", resume=true')" >second
exactly a_client_without_its_position_goes_on_too 1 0 1999 first second
show --restore pos "$graph" >second
exactly a_position_counts_more_than_what_came_after_it 1 0 1999 first second

# ---- a client is killed: what it did not acknowledge goes to the other
graph=$(d 'range(40000).batch(5)' 'job_name="heir", max_outstanding_bytes=4000, client_timeout=1.0')
slowly first "$m" show "$graph"; a=$!
rm -f second second.rc
"$m" show "$graph" >second 2>second.err & b=$!
started second
kill -9 $b; wait $b
go_on first
end_of $a
cat first <(head -c -1 second | sed '$d') | elements | uniq | cmp -s - <(seq 0 39999)
result nothing_is_lost_with_a_client $? "$(cat first.rc first.err)"

# ---- a dispatcher that loses its account: the clients know which splits their streams have
graph=$(d 'range(60000).shuffle(50).batch(5)' 'job_name="lost", max_outstanding_bytes=4000')
slowly first "$m" show "$graph"; a=$!
slowly second "$m" show "$graph"; b=$!
started first # whether the second one began too, or begins after the loss, does not matter
slowly third "$m" show "$(p 'range(20000).batch(5)' 'job_name="lost too", max_outstanding_bytes=4000')"; c=$!
started third
kill -9 $dispatcher; wait $dispatcher
start dispatcher "$m" dispatcher --listen "$service"
dispatcher=$pid
go_on first second third
end_of $a; end_of $b; end_of $c
exactly a_lost_account_loses_nothing 1 0 59999 first second
exactly nor_in_parallel_epochs 2 0 19999 third

# ---- a client that returns after its job was created again without it is refused: what it read came again
graph=$(d 'range(60000).shuffle(50).batch(5)' 'job_name="anew", max_outstanding_bytes=4000')
mkfifo pipe
"$m" show "$graph" >pipe 2>old.err & a=$!
{ head -c 3000 >old; started go; cat >>old; } <pipe & b=$!
started old
kill -STOP $a
kill -9 $dispatcher; wait $dispatcher
start dispatcher "$m" dispatcher --listen "$service"
dispatcher=$pid
show "$graph" >new
exactly a_job_made_anew_is_whole 1 0 59999 new
echo >go
kill -CONT $a
end_of $a
same who_is_not_in_it_fails $? 1
end_of $b
result and_hears_why "$(grep -q 'lost its account, and job "anew"' old.err; echo $?)" "$(cat old.err)"

finish
