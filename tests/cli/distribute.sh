#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tier: plain=full
# The op distribute with service="local": the streams' elements, their order, and positions.
. "$(dirname "${BASH_SOURCE[0]}")/../expect.sh"
show() { timeout $patience "$m" show --seed 5 "$@" 2>&1; }
# without what is said of skipped elements at the end of each stream
elements() { sed '/^millrace: warning: ignore_errors: .* skipped$/d'; }
refused() { # NAME STATUS EXPR WORD...
    local name=$1 want=$2 text=$3 rc bad=0 w
    "$m" show "$text" >out 2>err
    rc=$?
    [ $rc = "$want" ] || bad=1
    shift 3
    for w; do grep -qF -- "$w" err || bad=1; done
    result "$name" $bad "  status $rc, $(cat err)"
}

for i in 0 1 2 3 4 5 6 7 8 9; do seq $((i * 10)) $((i * 10 + i)) >part-$i.txt; done
mkdir few
cp part-3.txt part-7.txt few/

# ---- what a pattern leaves out for readers it leaves out here
mkdir sets
"$m" write --out sets/s --shards 3 --expr 'range(9).map(x => {"x": x})' 2>/dev/null
"$m" index sets/s-* >/dev/null
echo nothing >sets/.t.partial
same indexes_and_unfinished_files_are_no_data "$(show 'tfrecord("sets/*").map(r => parse_example(r, {"x": int64})["x"]).distribute("local", streams=3)' | sort)" "$(seq 0 8)"
same an_index_is_no_split "$(show 'tfrecord("sets/*").map(r => parse_example(r, {"x": int64})["x"]).distribute("local", processing_mode="dynamic")' | sort)" "$(seq 0 8)"
touch sets/.s.commit
refused a_set_that_is_being_written 1 'tfrecord("sets/s-*").distribute("local")' 'sets/.s.commit' 'write --recover --out sets/s'
rm sets/.s.commit sets/s-*
refused nothing_but_unfinished_files 1 'tfrecord("sets/*").distribute("local")' 'sets/*'

# ---- the other modes: this process is the one worker
for mode in dynamic parallel_epochs file data file_or_data hint; do
    same "one worker has all: $mode" "$(show "text_line(\"part-*.txt\").shuffle(9, seed=1).batch(4).distribute(\"local\", processing_mode=\"$mode\")")" \
        "$(show 'text_line("part-*.txt").shuffle(9, seed=1).batch(4)')"
done
same a_hint_with_one_worker "$(show 'range(9).shard(-1, 0).distribute("local", processing_mode="hint")')" "$(seq 0 8)"
same a_graph_that_is_never_the_same "$(show 'range(9).map(x => x * x, num_parallel_calls=3, deterministic=false).distribute("local", processing_mode="parallel_epochs")' | sort -n)" \
    "$(show 'range(9).map(x => x * x)')"

# ---- each element once, in the order of interleave over the graphs that the rules give
# cut NAME S BLOCK GRAPH-WITH-%s PART: what is below distribute, and the same with the stream's shard in it
cut() {
    local name=$1 s=$2 block=$3 whole=$4 part=$5 ids
    ids=$(seq -s, 0 $((s - 1)))
    same "cut: $name" "$(show "$whole.distribute(\"local\", streams=$s, block_length=$block)")" \
        "$(show "from_tensor_slices([$ids]).interleave(s => $part, cycle_length=$s, block_length=$block)")"
}
cut after_a_source 3 1 'range(20).batch(3)' 'range(20).shard(3, s).batch(3)'
cut blocks_of_two 3 2 'range(20).map(x => x * x)' 'range(20).shard(3, s).map(x => x * x)'
cut after_take 3 1 'range(20).take(7).batch(2)' 'range(20).take(7).shard(3, s).batch(2)'
cut after_enumerate 2 1 'range(5).enumerate().filter((i, x) => x > 0)' 'range(5).enumerate().shard(2, s).filter((i, x) => x > 0)'
cut after_a_zip 2 1 'zip(range(5), text_line("part-9.txt")).prefetch(1)' 'zip(range(5), text_line("part-9.txt")).shard(2, s).prefetch(1)'
cut after_a_shard 2 1 'range(20).shard(3, 1).map(x => x + 1)' 'range(20).shard(3, 1).shard(2, s).map(x => x + 1)'
cut after_a_window 2 1 'range(9).window(2).flat_map(w => w)' 'range(9).window(2).shard(2, s).flat_map(w => w)'
cut every_input_of_concatenate 2 1 'range(5).concatenate(range(10, 15).skip(1)).batch(2)' 'range(5).shard(2, s).concatenate(range(10, 15).skip(1).shard(2, s)).batch(2)'
cut through_everything 2 3 'range(30).map(x => x % 7).batch(2).unbatch().shuffle(4, seed=1).cache().repeat(2).padded_batch(3).prefetch(2)' \
    'range(30).shard(2, s).map(x => x % 7).batch(2).unbatch().shuffle(4, seed=1).cache().repeat(2).padded_batch(3).prefetch(2)'
cut files_are_dealt 4 1 'text_line("part-*.txt").batch(3)' 'list_files("part-*.txt").shard(4, s).flat_map(f => text_line(f)).batch(3)'
cut few_files_are_read_by_all 4 1 'text_line("few/*.txt").batch(3)' 'text_line("few/*.txt").shard(4, s).batch(3)'
cut names_as_data 4 1 'list_files("part-*.txt", shuffle=true, seed=3).flat_map(f => text_line(f))' \
    'list_files("part-*.txt", shuffle=true, seed=3).shard(4, s).flat_map(f => text_line(f))'
cut few_names_as_data 4 1 'list_files("few/*.txt").flat_map(f => text_line(f)).batch(2)' 'list_files("few/*.txt").flat_map(f => text_line(f)).shard(4, s).batch(2)'
cut errors_in_their_places_ignored 3 1 'range(12).map(x => 12 // (x - 5)).ignore_errors()' 'range(12).shard(3, s).map(x => 12 // (x - 5)).ignore_errors()'
same errors_stay_in_the_order "$(show 'range(12).map(x => 12 // (x - 5)).distribute("local", streams=3).ignore_errors()')" \
    "$(show 'from_tensor_slices([0,1,2]).interleave(s => range(12).shard(3, s).map(x => 12 // (x - 5)), cycle_length=3).ignore_errors()')"

# A missing file ends the pipeline: its name is not an element, because the files are dealt to streams.
for g in 'text_line(["part-0.txt", "absent"])' 'tfrecord(["absent", "absent"], num_parallel_reads=2)'; do
    expect "a_missing_file_ends_it_above: $g" 1 ANY 'not found' absent -- "$m" show "$g.distribute(\"local\", streams=2).ignore_errors()"
    expect "and_below: $g" 1 ANY 'not found' absent -- "$m" show "$g.ignore_errors().distribute(\"local\", streams=2)"
done
expect but_where_its_name_is_one 0 ANY 'was skipped' -- "$m" show 'from_tensor_slices(["absent", "part-0.txt"]).flat_map(text_line).distribute("local").ignore_errors()'

# ---- properties
for g in 'range(50)' 'range(50).shuffle(7)' 'range(50).shuffle(7, seed=2).take(20)' 'text_line("part-*.txt").shuffle(5)' \
    'range(9).flat_map(x => range(x).shuffle(9)).take(20).map(x => x + 1)' 'list_files("part-*.txt", shuffle=true).flat_map(f => text_line(f))' \
    'range(4).interleave(x => range(x * 3), cycle_length=2)' 'text_line("few/*.txt").repeat(3)'; do
    for s in 1 3 auto; do
        same "every element once: $g, $s" "$(show "$g.distribute(\"local\", streams=$s, seed=9)" | sort)" "$(show --seed 9 "$g" | sort)"
    done
done
for g in 'text_line("part-*.txt").shuffle(5).batch(2)' 'range(40).map(x => 7 // (x - 11), num_parallel_calls=3).ignore_errors().batch(4).prefetch(2)'; do
    d="$g.distribute(\"local\", streams=3, block_length=2)"
    all=$(show "$d" | elements)
    for o in '--threads 0' '--threads 1' '--threads 4' '--block-rows 1' '--block-rows 3' '--block-rows 1024'; do
        # shellcheck disable=SC2086
        same "the same with $o: $g" "$(show $o "$d" | elements)" "$all"
    done
    bad=0
    for k in $(seq 0 $(echo "$all" | wc -l)); do
        got=$(show --save-after "$k" --state pos "$d"; "$m" show --restore pos "$d" 2>&1)
        [ "$(echo "$got" | sed '/^$/d' | elements)" = "$all" ] || bad=1
    done
    result "resumes anywhere, without the seed: $g" $bad
done
same "unseeded ops below the cut draw the same in every stream" \
    "$(show 'range(50).shuffle(9).take(20).distribute("local", streams=3)' | sort -u | wc -l)" 20
d='range(12).shuffle(5).distribute("local", streams=3).repeat(3)'
all=$(show "$d")
result "another order in each repetition" $([ "$(echo "$all" | head -n 12)" != "$(echo "$all" | sed -n 13,24p)" ]; echo $?) "$all"
# Random functions draw what they draw without the service, with a seed of the run's, of the op's, and with none.
draws='range(12).map(x => (x, random_uniform([], seed=1), random_int(0, 1000)))'
same "draws without a seed" "$(show "$draws.distribute(\"local\", streams=3)")" "$(show "$draws")"
same "draws with the seed of the run" "$(show --seed 3 "$draws.distribute(\"local\", streams=2)")" "$(show --seed 3 "$draws")"
same "draws with the seed of the op" "$(show "$draws.distribute(\"local\", seed=3)")" "$(show --seed 3 "$draws")"
same "every repetition has every element" "$(echo "$all" | sort -n)" "$(show 'range(12).repeat(3)' | sort -n)"
bad=0
for k in $(seq 0 36); do
    got=$(show --save-after "$k" --state pos "$d"; "$m" show --restore pos "$d" 2>&1)
    [ "$(echo "$got" | sed '/^$/d')" = "$all" ] || bad=1
done
result "resumes in any repetition" $bad
# Ops that note the place of their input when they are opened, and ops that close it before they end.
for g in 'range(3).distribute("local", streams=2).shuffle(6, seed=1).repeat(3)' \
    'range(8).distribute("local", streams=1).shuffle(4, seed=1, reshuffle_each_iteration=false).repeat(3)' \
    'range(8).shuffle(3).distribute("local", streams=2).shuffle(2).prefetch(2).repeat(2)' \
    'range(5).shuffle(5).distribute("local", streams=2).concatenate(range(2)).repeat(3)' \
    'range(9).shuffle(9).distribute("local", streams=3).take(4).repeat(4)'; do
    all=$(show "$g")
    bad=0
    for k in $(seq 0 "$(wc -l <<<"$all")"); do
        got=$(show --save-after "$k" --state pos "$g"; show --restore pos "$g")
        [ "$(echo "$got" | sed '/^$/d')" = "$all" ] || { bad=1; break; }
    done
    result "resumes in a repetition of $g" $bad "after $k: $(head -c 300 <<<"$got")"
done
(for c in 0 1 2; do show "range(20).distribute(\"local\", streams=8, consumer_index=$c, num_consumers=3)"; done) | sort -n >got
same "consumers have every element once" "$(cat got)" "$(seq 0 19)"
same "without an order every element comes once" "$(show 'range(20).distribute("local", deterministic=false)' | sort -n)" "$(seq 0 19)"
same "as many streams as files" "$(show 'text_line("few/*.txt").batch(100).distribute("local")' | wc -l)" 2
same "8 streams of anything else" "$(show 'range(99).batch(100).distribute("local")' | wc -l)" 8
mkdir elsewhere
show --save-after 4 --state pos 'text_line("part-*.txt").distribute("local")' >head
(cd elsewhere && "$m" show --restore ../pos 'text_line("part-*.txt").distribute("local")') >tail 2>&1
same "a position keeps the directory that it was made in" "$(cat head tail)" "$(show 'text_line("part-*.txt").distribute("local")')"
"$m" show 'counter().filter(x => x < 0).distribute("local", streams=2)' >out 2>err & pid=$!
until_it_catches $pid; sleep 0.5; kill -INT $pid; end_of $pid; rc=$?
result "an interrupt ends it" $([ $rc = 130 ]; echo $?) "status $rc $(cat err)"
same "millrace ops has its page" "$("$m" ops --names | grep -c '^distribute$')" 1

# ---- explain
"$m" explain 'text_line("part-*.txt").take(5).batch(2).distribute("local", streams=2)' >out 2>&1
result "explain has each stream's graph and why" $(grep -q 'stream 0: .*take(5).shard(2, 0).batch(2)' out && grep -q 'stream 1: .*take(5).shard(2, 1).batch(2)' out &&
    grep -q 'the shard goes after take, .* everything below it runs in every stream' out; echo $?) "$(cat out)"
"$m" explain --json 'text_line("part-*.txt").distribute("local", streams=4)' >out 2>&1
result "explain as JSON" $(python3 -c '
import json
r = json.load(open("out"))
assert len(r["streams"]) == 1 and len(r["streams"][0]) == 4 and "shard(4, 3)" in r["streams"][0][3]' 2>err; echo $?) "$(cat out err)"
for mode in dynamic parallel_epochs file data hint; do
    "$m" explain 'text_line("part-*.txt").shard(-1, 0).batch(2).distribute("127.0.0.1:5050", processing_mode="'$mode'")' >out 2>&1
    case $mode in
        dynamic) words='dynamic: its splits (1) are assigned on demand' ;;
        parallel_epochs) words='parallel_epochs: every worker has its own stream' ;;
        *) words="$mode: worker i of the dispatcher's list has stream i" ;;
    esac
    result "explain without a server: $mode" "$(grep -q '^  stream 0: ' out && grep -qF "mode: $words" out; echo $?)" "$(cat out)"
done

# ---- files of elements: each stream has its own
for i in first second; do
    show 'range(10).map(x => x * 2).cache("own").distribute("local", streams=3).batch(10)' >$i
done
result "each stream keeps its part of a cache" $([ "$(cat first)" = '[0, 2, 4, 6, 8, 10, 12, 14, 16, 18]' ] && cmp -s first second &&
    [ "$(echo own*)" = 'own-stream-0-of-3.cache own-stream-1-of-3.cache own-stream-2-of-3.cache' ]; echo $?) "$(cat first second; echo own*)"
# An order drawn at random by the first run is that of the file: what a job draws is not part of the graph.
for i in first second; do
    "$m" show 'range(30).shuffle(30).cache("drawn").distribute("local", streams=2).batch(30)' >$i 2>&1
done
result "caches of streams keep an order that was drawn" $(grep -q '^\[' first && cmp -s first second; echo $?) "$(cat first second)"
for i in first second; do
    "$m" show 'range(30).shuffle(30).cache("alone").distribute("local", streams=1).batch(30)' >$i 2>&1
done
result "one stream has the file of none" $(grep -q '^\[' first && cmp -s first second && [ -f alone.cache ]; echo $?) "$(cat first second; echo alone*)"
refused cache_of_another_graph_in_streams 1 'range(10).map(x => x * 3).cache("own").distribute("local", streams=3).ignore_errors()' 'own-stream-0-of-3.cache' 'another graph'
mkdir -p linked/a
ln -s gone linked/b
cp part-3.txt linked/a/x.txt
for list in '"linked/*/x.txt"' '["part-1.txt*", "linked/*/x.txt"]'; do
    refused a_link_to_nothing_below_streams 1 "text_line($list).distribute(\"local\", streams=2).ignore_errors()" linked/b 'leads nowhere'
done
mkdir listed
seq 3 >listed/a.txt
seq 5 >listed/b.txt
for list in 'list_files("listed/*.txt")' 'list_files("listed/*.txt", shuffle=true)'; do
    name=$(tr -dc a-z <<<"$list")
    text="$list.flat_map(text_line).cache(\"$name\").distribute(\"local\", streams=2)"
    for i in first second; do show "$text" >$i; done
    result "a cache of listed files in streams" $([ "$(wc -l <first)" = 8 ] && cmp -s first second; echo $?) "$(cat first second)"
    touch listed/new.txt
    refused a_new_file_below_streams 1 "$text.ignore_errors()" "$name-stream-0-of-2.cache" 'another list of files'
    rm listed/new.txt
    show "$text" >second
    result "without the new file the cache is read" $(cmp -s first second; echo $?) "$(cat first second)"
    show "$list.flat_map(text_line).cache(\"$name\").concatenate(list_files(\"part-0.txt\")).distribute(\"local\", streams=2)" >second
    result "other lists of the job do not matter" $([ "$(wc -l <second)" = 9 ]; echo $?) "$(cat second)"
done
show 'range(4).cache("each").distribute("local", streams=2).repeat(2).batch(8)' >first
result "a cache in streams, repeated" $([ "$(cat first)" = '[0, 1, 2, 3, 0, 1, 2, 3]' ]; echo $?) "$(cat first)"
show 'range(4).save("above").distribute("local", streams=1).batch(4)' >first
result "one stream saves" $([ "$(cat first)" = '[0, 1, 2, 3]' ] && [ -f above/elements.mre ]; echo $?) "$(cat first)"
show 'range(4).distribute("local", streams=2).save("top").batch(4)' >first
result "save above the streams" $([ "$(cat first)" = '[0, 1, 2, 3]' ] && [ -f top/elements.mre ]; echo $?) "$(cat first)"
show 'range(4).save("dynamic").distribute("local", processing_mode="dynamic").batch(4)' >first
result "the one stream of dynamic saves" $([ "$(cat first)" = '[0, 1, 2, 3]' ] && [ -f dynamic/elements.mre ]; echo $?) "$(cat first)"
for op in save snapshot; do
    refused ${op}_below_streams 2 'range(4).map(x => x).'$op'("none").batch(2).distribute("local", streams=2)' $op 'below 2 streams' 'write the same file'
    refused ${op}_below_automatic_streams 2 'range(4).'$op'("none").distribute("local")' $op 'several streams'
    refused ${op}_below_a_service 2 'range(4).'$op'("none").distribute("127.0.0.1:1", processing_mode="parallel_epochs")' $op 'streams'
    refused ${op}_in_a_function_of_streams 2 'range(4).flat_map(x => range(2).'$op'("none")).distribute("local", streams=2)' $op 'in a function'
done
refused cache_in_a_function_of_streams 2 'range(4).flat_map(x => range(2).cache("none")).distribute("local", streams=2)' 'cache' 'in a function'
refused cache_of_streams_without_a_number 2 'range(4).cache("none").distribute("127.0.0.1:1", processing_mode="dynamic")' 'cache' 'not fixed'
result "what is refused writes nothing" $([ ! -e none ] && [ ! -e none.cache ]; echo $?)

# ---- refusals
refused no_files 1 'text_line("none-*").distribute("local")' 'no file matches' 'none-*'
refused unknown_mode 2 'range(3).distribute("local", processing_mode="twice")' 'processing_mode'
refused consumers_of_shared_jobs 2 'range(3).distribute("local", processing_mode="dynamic", consumer_index=0, num_consumers=2)' 'num_consumers' 'job_name'
refused nobody_there 1 'range(3).distribute("127.0.0.1:1", connect_timeout=0.1)' '127.0.0.1:1' unavailable
refused no_time_to_connect 2 'range(3).distribute("local", connect_timeout=0.0)' 'connect_timeout must be at least 0.001'
refused no_time_to_be_silent 2 'range(3).distribute("local", client_timeout=0.5)' 'client_timeout must be at least 1'
refused no_such_port 2 'range(3).distribute("127.0.0.1:65536")' '65536' 'a port from 0 to 65535'
refused port_nobody_has 2 'range(3).distribute("127.0.0.1:0")' 'port 0'
refused no_port 2 'distributed_dataset("localhost", "d6f1")' 'host:port' '"localhost"'
refused no_service 2 'range(3).distribute("")' 'HOST:PORT'
long=$(printf '%5000s' | tr ' ' n)
refused long_job_name 2 "range(3).distribute(\"127.0.0.1:1\", job_name=\"$long\")" '5000 bytes' 'at most 4096'
refused long_name_of_a_dataset 2 "distributed_dataset(\"127.0.0.1:1\", \"$long\")" '5000 bytes' 'at most 4096'
refused half_a_consumer 2 'range(3).distribute("local", num_consumers=2)' 'consumer_index'
refused consumer_out_of_range 2 'range(3).distribute("local", num_consumers=2, consumer_index=2)' 'below num_consumers'
refused more_consumers_than_streams 2 'range(3).distribute("local", streams=2, num_consumers=3, consumer_index=0)' 'at most'
refused more_consumers_than_files 1 'text_line("few/*").distribute("local", num_consumers=3, consumer_index=0)' 'num_consumers'
refused a_scheme_in_an_address 2 'range(3).distribute("grpc://localhost:5050")' '"grpc://localhost:5050"; leave out grpc://'
refused resume_without_a_name 2 'range(3).distribute("local", resume=true)' 'job_name'
refused too_many_streams 2 'range(3).distribute("local", streams=65537)' 'streams'
refused unordered_map 1 'range(3).map(x => x, num_parallel_calls=2, deterministic=false).distribute("local")' 'deterministic=false' 'dynamic'

# ---- the graph below is part of a position, so its mixture cannot change
show --save-after 3 --state mixed 'mix({"a": range(9), "b": range(9)}, seed=1).distribute("local", streams=2)' >/dev/null
expect a_mixture_below_stays_the_same 1 '' 'none below distribute' -- "$m" show --seed 5 --restore mixed --restore-by-name 'mix({"a": range(9), "c": range(9)}, seed=1).distribute("local", streams=2)'
show --save-after 3 --state mixed 'mix({"a": range(9).distribute("local"), "b": range(9)}, seed=1)' >/dev/null
expect a_mixture_above_may_change 0 ANY 'source "b" is removed' -- "$m" show --seed 5 --restore mixed --restore-by-name 'mix({"a": range(9).distribute("local")}, seed=1)'

finish
