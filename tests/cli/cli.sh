#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tier: plain=quick
# The program as a user sees it: output, exit status, the words of its errors.
. "$(dirname "${BASH_SOURCE[0]}")/../expect.sh"

# ---- output
expect numbers 0 $'0\n1\n2' -- "$m" show 'range(3)'
expect floats_look_like_floats 0 $'0.0\n0.5\n1.0' -- "$m" show 'range(3).map(x => x / 2)'
expect float32_digits 0 0.1 -- "$m" show 'from_tensors(0.1)'
expect not_numbers 0 $'"inf"\n"nan"' -- "$m" show 'from_tensor_slices([1.0, 0.0]).map(x => x / 0.0)'
expect strings 0 $'"a\\"b"\n{"b64": "/w=="}' -- "$m" show 'from_tensor_slices(["a\"b", "\xff"])'
expect keys_that_are_no_text 0 '{"é": 2, "{\"b64\": \"/w==\"}": 1}' -- "$m" show 'from_tensors(1, 2).map((a, b) => {"\xff": a, "\xc3\xa9": b})'
expect records 0 '{"a": 1}' -- "$m" show 'from_tensors(a=1)'
expect a_shape_beyond_memory_is_its_elements_error 0 $'[0.0]\n[0.0]' -- "$m" show 'range(3).map(x => zeros([9223372036854775807 if x == 1 else 1])).ignore_errors()'
expect datasets 0 '{"dataset": [0, 1]}' -- "$m" show 'range(2).window(2)'
expect dataset_that_fails 1 '{"dataset": [-6]}' zero -- "$m" show 'range(3).map(x => range(x + 1).map(y => 6 // (y - 1)))'
for source in 'random()' 'counter()' '(1, {"a": range(2).repeat()})'; do
    expect "a_dataset_without_end: $source" 1 ANY 'never ends' 'random_uniform()' -- "$m" show "range(3).map(x => $source)"
done
expect a_dataset_that_ends_again 0 $'{"dataset": [0, 1]}\n{"dataset": [0, 1]}' -- "$m" show 'range(2).map(x => counter().take(2))'
expect limit 0 $'0\n1' -- "$m" show --limit 2 'counter()'
expect epochs 0 $'0\n1\n0\n1' -- "$m" show --epochs 2 'range(2)'
echo 'range(2) # a comment' >e.txt
expect expression_from_a_file 0 $'0\n1' -- "$m" show -f e.txt
expect replicas 0 '{"step": 0, "replicas": [[0, 1], [2, 3]]}' -- "$m" show --replicas 2 'range(4).batch(4)'
expect version 0 ANY -- "$m" --version
expect a_command_nearby 2 '' "unknown command 'shwo'; did you mean 'show'?" -- "$m" shwo 'range(3)'
expect an_option_nearby 2 '' "unknown option '--limt'; did you mean '--limit'?" -- "$m" show --limt=3 'range(3)'
expect an_option_that_begins_with_one 2 '' "'--threads-in-all'; did you mean '--threads'?" -- "$m" show --threads-in-all 3 'range(3)'
expect an_option_of_no_neighbours 2 '' "unknown option '--lxxxt'; see" -- "$m" show --lxxxt 'range(3)'
expect an_op_nearby 2 '' "'shufle'; did you mean 'shuffle'?" -- "$m" ops shufle
expect an_op_in_another_case 2 '' "'paddedBatch'; did you mean 'padded_batch'?" -- "$m" ops paddedBatch
expect a_function_nearby 2 '' "'random_unifrm'; did you mean 'random_uniform'?" -- "$m" ops random_unifrm
expect an_op_of_no_neighbours 2 '' "'qqqqqq'; 'millrace ops --names' lists them" -- "$m" ops qqqqqq
expect words_of_options_in_any_case 0 "$("$m" show --replicas 1 --workers 2 --auto-shard data 'range(4).batch(2)')" -- "$m" show --replicas 1 --workers 2 --auto-shard DATA 'range(4).batch(2)'
expect help_of_nothing 2 '' "unknown command 'nonsense'" -- "$m" help nonsense
for c in show explain ops inspect index reduce why write bench top train; do
    expect "help_$c" 0 ANY -- "$m" "$c" --help
    expect "help_of_$c" 0 "$("$m" "$c" --help)" -- "$m" help "$c"
    expect "wrong_flag_$c" 2 '' "$c" '--no-such-flag' -- "$m" "$c" --no-such-flag
done
# The lines of usage, which are written by hand, name no other options than the command takes, and say so if it takes more.
for c in $("$m" --help=options | cut -f 1 | grep -v '^-'); do
    "$m" "$c" --help=options >options 2>/dev/null || continue # built without the trainer
    cut -f 1 options | grep '^-' | sort >takes
    "$m" "$c" --help | sed -n '/^usage:/,/^$/p' >usage
    grep -oE -- '(^|[^[:alnum:]_-])--?[a-z][a-z-]*' usage | sed 's/^[^-]//' | sort -u >named
    other=$(comm -13 takes named) more=$(comm -23 takes named | grep -vxE -e '--(help|load)')
    result "usage_of_$c" $([ -z "$other" ] && { [ -z "$more" ] || grep -qF '[OPTIONS]' usage; }; echo $?) "no options: $other; more: $more"
    result "help_of_${c}_fits_a_terminal" $("$m" "$c" --help | awk 'length > 100 { exit 1 }'; echo $?)
done
"$m" show 'counter()' 2>err | head -n 1 >out
result sigpipe_is_quiet $([ "$(cat out)" = 0 ] && [ ! -s err ]; echo $?) "$(cat err)"
"$m" show 'counter()' >/dev/null 2>err & pid=$!
until_it_catches $pid; sleep 0.3; kill -INT $pid; end_of $pid; rc=$?
result sigint_ends_with_130 $([ $rc = 130 ]; echo $?) "status $rc"
if "$m" train --help >/dev/null 2>&1; then
    timeout -s KILL $patience "$m" train --data 'counter().filter(x => x < 0).map(x => (zeros([2]), x)).batch(2)' --model 'dense(2)' \
        --loss 'sparse_categorical_crossentropy(from_logits=true)' --optimizer 'sgd()' >/dev/null 2>err & pid=$!
    until_it_catches $pid; sleep 0.5; kill -INT $pid; wait $pid; rc=$?
    result sigint_ends_training_that_waits_for_data $([ $rc = 130 ] && [ ! -s err ]; echo $?) "status $rc $(cat err)"
else
    skip sigint_ends_training_that_waits_for_data "built without the trainer"
fi
# A wait for a pipe ends at the first interrupt, whether or not anybody writes into it.
mkfifo fifo
timeout -s KILL $patience "$m" show -f fifo >out 2>err & pid=$!
until_it_catches $pid; sleep 0.3; kill -INT $pid; wait $pid; rc=$?
result sigint_ends_a_wait_for_the_pipeline $([ $rc = 130 ] && [ ! -s err ]; echo $?) "status $rc $(cat err)"
mkdir -p piped
ln fifo piped/elements.mre
ln fifo piped/c.cache
expect load_takes_no_pipe 1 '' 'not a regular file' -- "$m" show 'load("piped")'
expect cache_takes_no_pipe 1 '' 'not a regular file' -- "$m" show 'range(3).cache("piped/c")'
expect bench_stops_while_it_waits_for_an_element 0 ANY -- "$m" bench --seconds 0.2 --repeat 2 'text_line("fifo")'
expect bench_stops_in_a_filter 0 ANY -- "$m" bench --seconds 0.2 'counter().filter(x => x < 0)'
for c in "show text_line(\"fifo\")" "show --threads 0 text_line(\"fifo\")" "bench text_line(\"fifo\")" \
    "show --replicas 2 text_line(\"fifo\").batch(2)" "write --out x --text fifo" "write --out x --jsonl fifo" "write --out x --idx fifo fifo" \
    "inspect fifo" "why fifo" "why fifo fifo" "show range(3) --restore fifo" "show tar(\"fifo\",members=[\"a\"])" \
    "show from_tensors(\"fifo\").map(read_file)" "show --threads 0 range(9).map(x=>lookup(\"a\",\"fifo\"))" \
    'train --data text_line("fifo").map(x=>(zeros([2]),0)).batch(2) --model dense(2) --loss sparse_categorical_crossentropy() --optimizer sgd()'; do
    "$m" "${c%% *}" --help >/dev/null 2>&1 || continue # built without the trainer
    for writer in nobody somebody; do
        [ $writer = nobody ] || exec 9<>fifo
        # shellcheck disable=SC2086
        timeout -s KILL $patience "$m" $c >out 2>err 9>&- & pid=$!
        until_it_catches $pid
        sleep 0.3
        kill -INT $pid; wait $pid; rc=$?
        exec 9>&-
        result "sigint_ends_a_wait_for_a_pipe: $writer writes, $c" $([ $rc = 130 ]; echo $?) "status $rc $(cat err)"
    done
done
expect full_disk_on_stdout 1 '' 'standard output' -- sh -c "'$m' show 'range(100000)' >/dev/full"

# ---- positions
for p in 'range(10).shuffle(4, seed=3).batch(3)' 'range(6).flat_map(x => range(x)).prefetch(3)' \
    'range(9).map(x => x * x, num_parallel_calls=3).window(2).flat_map(w => w.batch(2))'; do
    all=$("$m" show "$p")
    lines=$(echo "$all" | wc -l)
    bad=0
    for k in $(seq 0 $((lines + 1))); do
        got=$("$m" show --save-after "$k" --state pos "$p"; "$m" show --restore pos "$p")
        [ "$(echo "$got" | sed '/^$/d')" = "$all" ] || bad=1
    done
    result "resumes_anywhere: $p" $bad
done
for o in '--epochs 3' '--epochs 2 --replicas 2 --workers 2'; do
    p='range(7).batch(2).shuffle(4, seed=3)'
    # shellcheck disable=SC2086
    all=$("$m" show $o "$p" 2>/dev/null)
    bad=0
    for k in $(seq 0 13); do
        # shellcheck disable=SC2086
        got=$("$m" show $o --save-after "$k" --state pos "$p" 2>/dev/null; "$m" show $o --restore pos "$p" 2>/dev/null)
        [ "$(echo "$got" | sed '/^$/d')" = "$all" ] || bad=1
    done
    result "resumes_in_a_later_pass: $o" $bad
done
"$m" show --save-after 1 --state pos 'range(5)' >/dev/null
expect another_graph_is_refused 1 '' 'another graph' '6)' -- "$m" show --restore pos 'range(6)'
printf 'MRP4xxxxgarbage' >bad
expect damaged_position 1 '' 'position' -- "$m" show --restore bad 'range(5)'
: >empty
expect empty_position 1 '' 'position' -- "$m" show --restore empty 'range(5)'
expect unwritable_position 1 ANY '/dev/full' -- "$m" show --save-after 1 --state /dev/full 'range(2)'
expect a_position_beyond_the_end_is_warned_of 0 $'0\n1\n2' 'after 3 elements' 'before the 10' -- "$m" show --save-after 10 --state end 'range(3)'
expect and_is_the_end 0 '' -- "$m" show --restore end 'range(3)'
"$m" show --save-after 1 --state plain 'range(6).batch(2)' >out
"$m" show --replicas 2 --save-after 1 --state distributed 'range(6).batch(2)' >out
expect plain_position_for_replicas 1 '' 'without --replicas' -- "$m" show --replicas 2 --restore plain 'range(6).batch(2)'
expect distributed_position_without_them 1 '' 'with --replicas' -- "$m" show --restore distributed 'range(6).batch(2)'
"$m" show --save-after 1 --state kept.pos 'range(5)' >/dev/null
expect a_position_that_cannot_be_written_keeps_the_old_one 1 '' 'kept' 'File too large' -- bash -c "(trap '' XFSZ; ulimit -f 0; '$m' show --save-after 2 --state kept.pos 'range(5)') 2>&1 >/dev/null | cat >&2; exit \${PIPESTATUS[0]}"
expect and_leaves_nothing_else 0 $'1\n2\n3\n4' -- sh -c "set -- .kept*; [ \"\$1\" = '.kept*' ] && '$m' show --restore kept.pos 'range(5)'"
expect a_position_goes_through_a_pipe 0 ANY -- bash -c "'$m' show --save-after 1 --state >(cat >piped_position) 'range(5)'"
result devices_are_never_removed $([ -c /dev/full ]; echo $?)
expect missing_position 1 '' 'nowhere' -- "$m" show --restore nowhere 'range(5)'

# ---- files of elements
expect load_of_nothing 1 '' 'nowhere' -- "$m" show 'load("nowhere")'
expect save_and_load 0 $'0\n1\n0\n1' -- sh -c "'$m' show 'range(2).save(\"kept\")'; '$m' show 'load(\"kept\")'"
expect cache_in_a_file 0 $'0\n1\n0\n1' -- sh -c "'$m' show 'range(2).cache(\"c\")'; '$m' show 'range(2).cache(\"c\")'"
expect cache_of_another_graph 1 '' 'another graph' -- "$m" show 'range(9).cache("c").ignore_errors()'
expect load_of_datasets 2 '' 'allow_datasets=true' -- sh -c "'$m' show 'range(4).window(2).save(\"windows\")' >/dev/null; '$m' show 'load(\"windows\")'"
expect load_of_datasets_that_are_allowed 0 $'0\n1\n2\n3' -- "$m" show 'load("windows", allow_datasets=true).flat_map(w => w)'

# ---- reduce
expect reduce_sums 0 10 -- "$m" reduce 'range(5)' --init 0 --fn '(s, x) => s + x'
expect reduce_of_nothing 0 '{"0": 7, "1": "a"}' -- "$m" reduce 'range(0)' --init '(7, "a")' --fn '(s, x) => (s[0] + x, s[1])'
expect reduce_keeps_order 0 '"abc"' -- "$m" reduce --threads 4 --block-rows 1 'from_tensor_slices(["a", "b", "c"])' --init '""' --fn '(s, x) => s + x'
expect reduce_fails_at_an_element 1 '' 'zero' -- "$m" reduce 'range(3)' --init 0 --fn '(s, x) => s + 6 // x'
expect reduce_fails_of_the_input 1 '' 'zero' -- "$m" reduce 'range(3).map(x => 6 // x)' --init 0 --fn '(s, x) => s + x'
expect reduce_of_another_type 2 '' 'reduce' 'state' -- "$m" reduce 'range(3)' --init 0 --fn '(s, x) => "a"'
expect reduce_of_no_function 2 '' 'function' -- "$m" reduce 'range(3)' --init 0 --fn '3'
expect reduce_of_a_bad_value 2 '' '^' -- "$m" reduce 'range(3)' --init '(0' --fn '(s, x) => s'
expect reduce_without_a_function 2 '' '--fn' -- "$m" reduce 'range(3)' --init 0
mkdir -p folder && echo precious >folder/file
expect write_needs_a_name 2 '' "'folder/' has no name" "'folder/train'" -- "$m" write --out folder/ --overwrite --expr 'range(3)'
expect write_takes_a_pipeline_as_an_option 2 '' "unexpected 'range(3)'; a pipeline is given as --expr EXPR" -- "$m" write --out k 'range(3)'
expect write_needs_a_directory 1 '' 'nodir/k-00000-of-00001.tfrecord' 'its directory does not exist' -- "$m" write --out nodir/k --expr 'range(3)'
expect write_needs_a_prefix 2 '' "'' has no name" -- "$m" write --out '' --expr 'range(3)'
same write_without_a_name_leaves_other_files file "$(ls -A folder)"
expect write_to_a_closed_output 0 '' -- sh -c "'$m' write --out closed --expr 'range(3)' >&-"
result and_the_files_are_there $([ -s closed-00000-of-00001.tfrecord ]; echo $?)

# ---- graphs that can't be built
while IFS='|' read -r name text words; do
    # shellcheck disable=SC2086
    expect "$name" 2 '' $words -- "$m" show "$text"
done <<'CASES'
unclosed|range(3|^
unknown_op|range(3).shufle(2)|shuffle ^
unknown_name|range(n)|n
batch_of_zero|range(3).batch(0)|batch
negative_batch|range(3).batch(-1)|batch
float_range|range(1.5)|range
step_zero|range(1, 5, 0)|range
wrong_type|range(3).map(x => x + "a")|map
mixed_types|range(3).map(x => x + 1.5)|float
unknown_parameter|range(3).batch(2, size=3)|size
source_as_method|range(3).range(4)|range
method_as_source|batch(3)|batch
shard_out_of_range|range(3).shard(2, 2)|shard
too_many_axes|from_tensors([[[[[[[[[[1]]]]]]]]]])|at most 8 axes, this list has 10
files_without_a_list|text_line("a", "b")|several names go in a list
feature_called_as_the_argument|tfrecord("a").map(x => parse_example(x, x=int64))|braces
other_types|range(3).concatenate(from_tensors("a"))|concatenate
unknown_compression|tfrecord("a", compression="LZ9")|compression
number_for_a_file|range(3).map(tfrecord)|tfrecord int64
number_among_files|tfrecord("a", 1)|tfrecord 1
number_for_a_pattern|range(3).flat_map(x => list_files("a", x))|list_files int64
condition_not_bool|range(3).filter(x => x)|filter
CASES
expect nothing_to_show 2 '' 'expression' -- "$m" show
expect two_expressions 2 '' 'expression' -- "$m" show 'range(1)' 'range(2)'
expect deep_nesting 2 '' 'deep' -- "$m" show "$(printf '(%.0s' $(seq 10000))1"
printf 'range(3)' >long.txt
head -c 1000000 /dev/zero | tr '\0' ' ' >>long.txt
expect a_megabyte_of_text 0 $'0\n1\n2' -- "$m" show -f long.txt
(printf 'from_tensors(['; for _ in $(seq 100000); do printf '1, '; done; printf '1])') >long.txt
expect a_long_list 0 ANY -- "$m" show -f long.txt
head -c 1000000 /dev/urandom >long.txt
expect a_megabyte_of_noise 2 '' -- "$m" show -f long.txt

# ---- what millrace-service may know is given to it: a command, an op, the help, however -f was read
mkdir alone
cp "$m" alone/millrace
expect unknown_command_alone 2 '' 'unknown command' nonsense 'millrace-service' -- alone/millrace nonsense
expect unknown_op_alone 2 '' 'unknown op' nonsense -- alone/millrace show 'range(3).nonsense()'
expect known_graphs_need_no_service 0 $'0\n1\n2' -- alone/millrace show 'range(3)'
cat >alone/millrace-service <<'SERVICE'
#!/bin/sh
for word; do
    echo "<$word>"
    case $word in -f=*) cat "${word#-f=}" ;; /dev/fd/*) cat "$word" ;; esac
done
exit 7
SERVICE
chmod +x alone/millrace-service
expect known_graphs_do_not_start_the_service 0 $'0\n1\n2' -- alone/millrace show 'range(3)'
expect unknown_command_goes_to_the_service 7 $'<nonsense>\n<--flag>' -- alone/millrace nonsense --flag
expect unknown_op_goes_to_the_service 7 $'<show>\n<range(3).nonsense()>\n<--limit>\n<2>' -- alone/millrace show 'range(3).nonsense()' --limit 2
expect unknown_op_in_a_distributed_graph 7 ANY -- alone/millrace show --replicas 2 'range(3).nonsense()'
expect help_goes_to_the_service 7 '<--help=man>' -- alone/millrace --help=man
expect expression_of_a_pipe_reaches_the_service 7 ANY -- sh -c 'echo "range(3).nonsense()" | alone/millrace show -f - >out; rc=$?; grep -qx "range(3).nonsense()" out || exit 1; exit $rc'
expect expression_of_a_file_reaches_the_service 7 ANY -- sh -c 'echo "nonsense()" >x.txt; alone/millrace show -f=x.txt >out; rc=$?; grep -qx "nonsense()" out || exit 1; exit $rc'
expect a_bad_expression_of_a_file_is_shown 2 '' "unknown op 'nonsense'" -- "$m" show -f x.txt
expect the_service_has_the_same_commands 0 $'0\n1' -- "$m-service" show 'range(2)'
expect the_service_finds_the_trainer 0 ANY -- sh -c "'$m' train --help >/dev/null 2>&1 || exit 0; '$m-service' train --help"
expect usual_error_for_an_op_that_nobody_knows 2 '' 'unknown op' '^' -- "$m" show 'range(3).nonsense()'

# ---- errors while running
expect division_by_zero 1 $'10\n5' 'division by zero' 'map' -- "$m" show 'from_tensor_slices([1, 2, 0, 5]).map(x => 10 // x)'
expect least_by_minus_one 0 '-9223372036854775808' -- "$m" show 'from_tensors(-9223372036854775808).map(x => x // -1)'
expect bad_batch_in_a_function 1 '' 'batch' -- "$m" show 'range(3).flat_map(x => range(3).batch(0))'
expect unequal_shapes 1 '' 'shape' -- "$m" show 'range(1, 3).map(x => zeros([x])).batch(2)'
expect huge_batch 0 '[0, 1, 2]' -- "$m" show 'range(3).batch(9223372036854775807)'
expect huge_shuffle 0 ANY -- "$m" show 'range(3).shuffle(9223372036854775807, seed=1)'
expect huge_repeat 0 $'0\n0\n0' -- "$m" show --limit 3 'range(1).repeat(9223372036854775807)'
expect huge_tensor 1 '' 'memory' -- "$m" show 'range(1).map(x => zeros([x + 1000000000, 1000000000]))'

# ---- errors of the environment, which no op hides
printf 'a\nb\nc\n' | "$m" write --out env-s --shards 3 --text - >/dev/null
printf '\x28\xb5\x2f\xfd\x00\xa8\x11\x00\x00a\n' >window.zst # of 2 GiB, as zstd --long=31 makes them
expect zstd_of_a_large_window_is_read 0 '"a"' -- "$m" show 'text_line("window.zst", compression="ZSTD")'
expect no_file_matches_is_of_no_element 1 '' 'no file matches' -- "$m" show 'tfrecord("env-none-*").ignore_errors()'
expect a_missing_index_is_of_no_element 1 '' 'it has no index' -- "$m" show 'tfrecord("env-s-*").global_shuffle(seed=1).ignore_errors()'
expect a_missing_vocabulary_is_of_no_element 1 '' 'cannot open' 'lookup(x, "env-none")' -- \
    "$m" show 'range(3).map(x => lookup(x, "env-none")).ignore_errors()'
expect a_missing_folder_of_a_cache_ends_it 1 '' 'cannot be made' -- "$m" show 'range(4).cache("env/none/c").ignore_errors()'
expect write_writes_nothing_then 1 '' 'no file matches' -- "$m" write --out env-w --expr 'tfrecord("env-none-*").ignore_errors()'
result no_file_is_left "$(compgen -G 'env-w*' >/dev/null; echo $((! $?)))"
"$m" write --out env-many --shards 99 --expr 'range(300)' >/dev/null
expect too_many_open_files_end_it 1 ANY 'too many open files' -- bash -c "ulimit -n 60; exec \"$m\" show 'list_files(\"env-many-*\").interleave(tfrecord, cycle_length=80).ignore_errors()'"
expect the_soft_limit_of_open_files_is_raised 0 99 -- bash -c "ulimit -S -n 60; \"$m\" show 'list_files(\"env-many-*\").interleave(tfrecord, cycle_length=99).take(99)' | wc -l"
printf 'a\nb\n' >env-pipe
cat env-pipe | "$m" show 'text_line("-").repeat(2).ignore_errors()' >out 2>err
result a_pipe_is_read_once_whatever_follows $([ $? = 1 ] && [ "$(cat out)" = $'"a"\n"b"' ] && grep -q 'can be read once' err; echo $?) "$(cat err)"
expect skipped_elements_are_counted 0 $'6\n6' '2 elements failed and were skipped' -- "$m" show 'range(4).map(x => 6 // (x % 2)).ignore_errors()'
expect errors_beyond_max_are_returned 1 6 'max=1' 'element 2' 'division by zero' -- "$m" show 'range(4).map(x => 6 // (x % 2)).ignore_errors(max=1)'
"$m" bench --json 'range(4).map(x => 6 // (x % 2)).ignore_errors()' 2>/dev/null | grep -q '"op": "ignore_errors".*"dropped": 2}, {"op": "map"'
result bench_says_how_many_were_dropped $?
rm env-s-00001-of-00003.tfrecord
expect an_incomplete_set_is_warned_about 0 $'"a"\n"c"' 'env-s-*-of-00003 is incomplete: 1 of its 3 files is missing, first env-s-00001-of-00003.tfrecord' -- \
    "$m" show 'tfrecord("env-s-*")'
"$m" show 'tfrecord("env-s-0000[02]-of-*")' >/dev/null 2>err
result a_chosen_part_is_not $([ $? = 0 ] && [ ! -s err ]; echo $?) "$(cat err)"
ln -s env-gone env-s-00001-of-00003.tfrecord
expect a_link_to_nothing_is_an_error 1 '"a"' 'env-s-00001-of-00003.tfrecord' 'not found' -- "$m" show 'tfrecord("env-s-*").ignore_errors()'
expect it_is_an_elements_error_by_its_name 0 $'"a"\n"c"' '1 element failed' -- "$m" show 'list_files("env-s-*").flat_map(tfrecord).ignore_errors()'
expect index_names_a_link_to_nothing 1 '' env-s-00001-of-00003.tfrecord -- "$m" index 'env-s-*'
rm -f env-*

# ---- record files
"$m" write --out a --expr 'range(4).map(x => "record" + "s")' >/dev/null
f=a-00000-of-00001.tfrecord
expect reads_what_it_wrote 0 $'"records"\n"records"\n"records"\n"records"' -- "$m" show "tfrecord(\"$f\")"
expect missing_file 1 '' 'nothing.tfrecord' -- "$m" show 'tfrecord("nothing.tfrecord")'
expect no_match 1 '' 'nothing-*' -- "$m" show 'tfrecord("nothing-*")'
: >empty.tfrecord
expect empty_file 0 '' -- "$m" show 'tfrecord("empty.tfrecord")'
head -c 60 $f >cut.tfrecord
expect truncated 1 $'"records"\n"records"' 'truncated' 'cut.tfrecord' 'record 2' 'byte 46' -- "$m" show 'tfrecord("cut.tfrecord")'
cp $f flip.tfrecord; printf 'X' | dd of=flip.tfrecord bs=1 seek=36 conv=notrunc 2>/dev/null
expect bit_flip 1 '"records"' 'corrupt' 'flip.tfrecord' 'record 1' -- "$m" show 'tfrecord("flip.tfrecord")'
printf '\377\377\377\377\377\377\377\177aaaabbbb' >huge.tfrecord
expect huge_length 1 '' 'corrupt' 'huge.tfrecord' -- "$m" show 'tfrecord("huge.tfrecord")'
expect wrong_compression 1 '' "$f" -- "$m" show "tfrecord(\"$f\", compression=\"GZIP\")"
expect index_is_text 0 '' 'records' '4 records' -- "$m" index -v $f
result index_lines "$([ "$(cat $f.idx)" = $'0 23\n23 23\n46 23\n69 23' ]; echo $?)" "$(cat $f.idx)"
expect an_index_is_no_file_of_records 0 4 -- sh -c "'$m' show 'tfrecord(\"a-*\")' | wc -l"
expect an_index_is_no_file_to_divide 1 '' 'found 1 elements (files)' -- "$m" show --replicas 1 --workers 2 --auto-shard file 'tfrecord("a-*").batch(4)'
expect index_compact 0 '' -- "$m" index --compact $f
result index_is_compact "$(head -c 7 $f.idx | grep -q MRINDEX; echo $?)"
rm $f.idx
expect index_of_a_damaged_file 1 '' 'flip.tfrecord' 'record 1' -- "$m" index flip.tfrecord
mkdir quoted && cp $f quoted/a-1 && cp $f quoted/a-2 && cp $f 'quoted/b[1]'
expect index_of_a_pattern 0 '' 'quoted/a-1: 4 records' 'quoted/a-2: 4 records' -- "$m" index -v 'quoted/a-*'
expect index_of_a_pattern_again 0 '' -- "$m" index 'quoted/a-*'
result index_of_a_pattern_leaves_out_indexes "$([ "$(ls quoted)" = $'a-1\na-1.idx\na-2\na-2.idx\nb[1]' ]; echo $?)" "$(ls quoted)"
expect index_of_a_name_with_brackets 0 '' 'b[1]: 4 records' -- "$m" index -v 'quoted/b[1]'
expect index_of_a_pattern_without_files 1 '' 'no file matches quoted/c*' -- "$m" index 'quoted/c*'
expect index_wants_a_file 2 '' 'expected at least one file' -- "$m" index
expect index_of_standard_input 2 '' 'which standard input is not' -- "$m" index -
expect index_of_what_the_shell_finds 0 '' 'quoted/a-2: 4 records' -- sh -c "'$m' index -v quoted/a-*"
expect index_without_its_file_is_a_file 1 '' 'quoted/a-1.idx' -- "$m" index quoted/a-1.idx
expect verify_good 0 ANY -- "$m" inspect --verify $f
expect verify_bad 1 ANY 'flip.tfrecord' 'record 1' -- "$m" inspect --verify flip.tfrecord
result control_bytes_of_a_name_are_escaped "$("$m" inspect --verify $'no\e[2Jsuch' 2>&1 | grep -q $'\e'; [ $? = 1 ]; echo $?)"
expect verify_standard_input 0 ANY -- sh -c "cat $f | '$m' inspect --verify -"
result verify_reads_a_pipe_to_its_end "$(cat $f | "$m" inspect --json --verify /dev/stdin | grep -q '"records": 4,'; echo $?)"
expect verify_damaged_pipe 1 ANY 'record 1' -- sh -c "cat flip.tfrecord | '$m' inspect --verify -"
{ cat $f; printf 'stray'; } >stray.tfrecord
expect stray_bytes_are_read_over 0 ANY -- "$m" inspect stray.tfrecord
expect verify_stray_bytes 1 ANY 'truncated record at 92' -- "$m" inspect --verify stray.tfrecord
expect read_standard_input 0 $'"a"\n"b"' -- sh -c "printf 'a\nb\n' | '$m' show 'text_line(\"-\")'"
expect read_fixed_standard_input 0 $'"ab"\n"cd"' -- sh -c "printf 'Habcd' | '$m' show 'fixed_length_record(\"-\", 2, header_bytes=1)'"
expect read_records_of_standard_input 0 '"records"' -- sh -c "cat $f | '$m' show 'tfrecord(\"-\").take(1)'"
printf 'skipped\na\nb\n' >lines
expect a_file_as_input_is_read_from_where_it_stands 0 $'"a"\n"b"\n"a"\n"b"' -- sh -c "{ read x; '$m' show --epochs 2 'text_line(\"-\")'; } <lines"
"$m" write --out zl --compress ZLIB --expr 'range(5).map(x => {"a": x})' >/dev/null
cat zl-00000-of-00001.tfrecord zl-00000-of-00001.tfrecord >two.zlib
expect verify_good_zlib 0 ANY -- "$m" inspect --verify zl-00000-of-00001.tfrecord
expect verify_two_zlib_streams 1 ANY 'ZLIB stream' 'two.zlib' -- "$m" inspect --verify two.zlib
expect of_two_zlib_streams_the_first_is_read 0 5 'ZLIB stream' 'two.zlib' -- sh -c "'$m' show 'tfrecord(\"two.zlib\", compression=\"ZLIB\")' | wc -l"
expect a_pipeline_from_input_that_reads_it 2 '' '-f -' -- sh -c "echo 'range(1).flat_map(x => text_line([\"a\", \"-\"]))' | '$m' show -f -"
expect a_pipe_is_read_once 1 $'"a"' 'read once' -- sh -c "echo a | '$m' show --epochs 2 'text_line(\"-\")'"
expect members_of_piped_tar_must_be_given 2 '' 'members must be given' -- sh -c "tar cf - $f | '$m' show 'tar(\"-\")'"
expect members_of_tar_from_a_fifo_must_be_given 2 '' 'members must be given' -- "$m" show 'tar("fifo")'
expect a_tar_of_a_pipe 0 ANY -- sh -c "tar cf - $f | '$m' show 'tar(\"-\", members=[\"tfrecord\"])'"
expect a_tar_of_redirected_input 0 ANY -- sh -c "tar cf in.tar $f && '$m' show 'tar(\"-\")' <in.tar"
expect inspect_a_missing_file 1 gone 'gone' 'No such file' -- "$m" inspect gone
expect inspect_a_missing_file_as_json 1 '{"file": "gone", "error": "cannot open the file: No such file or directory"}' -- "$m" inspect --json gone
printf abc >tiny
expect inspect_a_tiny_file 0 $'tiny\n  0 records, 0 bytes of data, uncompressed' 'tiny' 'not a record' -- "$m" inspect tiny
expect inspect_json 0 "{\"file\": \"$f\", \"compression\": \"\", \"records\": 4, \"bytes\": 28, \"corrupt\": null}" -- "$m" inspect --json $f
for c in GZIP ZLIB ZSTD; do
    "$m" write --out z$c --shards 2 --compress $c --expr 'range(5).map(x => {"a": x})' >/dev/null
    expect "round_trip_$c" 0 $'{"a": 0}\n{"a": 2}\n{"a": 4}\n{"a": 1}\n{"a": 3}' -- "$m" show "tfrecord(\"z$c-*\", compression=\"$c\").map(x => parse_example(x, a=int64))"
done
printf '{"a": [1, 2], "s": "x", "f": 1.5}\n' >ex.jsonl
"$m" write --out ex --jsonl ex.jsonl >/dev/null
expect inspect_shows_examples 0 $'ex-00000-of-00001.tfrecord\n    record 0, 42 bytes, an Example:\n      a: int64[2] 1, 2\n      f: float32[1] 1.5\n      s: bytes[1] "x"\n  1 record, 42 bytes of data (42 to 42 a record, 42.0 on average), uncompressed\n  checksums good' -- "$m" inspect --examples 2 ex-00000-of-00001.tfrecord
expect inspect_shows_other_records 0 ANY -- "$m" inspect $f
result inspect_prints_their_bytes $("$m" inspect $f | grep -q 'record 0, 7 bytes: "records"'; echo $?)
mkdir links; cp $f links/here.tfrecord; ln -s round links/round; ln -s gone links/dangling
expect links_that_lead_nowhere_are_no_directories 1 '' 'links/' 'leads nowhere' -- "$m" show 'list_files("li*/*.tfrecord", "links/*/*")'
expect nor_are_files 0 '"links/here.tfrecord"' -- "$m" show 'list_files("li*/*.tfrecord", "links/h*/*")'
expect as_files_they_are_listed 0 $'"links/dangling"\n"links/here.tfrecord"\n"links/round"' -- "$m" show 'list_files("links/*")'
if [ "$(id -u)" = 0 ]; then
    mkdir locked; cp $f locked/; chmod 700 locked; chmod 755 .
    expect unreadable_directory 1 '' 'locked' -- setpriv --reuid 65534 --regid 65534 --clear-groups "$m" show 'list_files("locked/*")'
else
    skip unreadable_directory "needs root to become another user"
fi

"$m" write --out mixed --expr 'from_tensor_slices(["", "", "\xff"])' >/dev/null
for rows in 1 2 9; do
    expect "records_are_counted_from_their_own_vector: $rows" 1 $'{"a": 7}\n{"a": 7}' 'Index: 0. could' -- "$m" show --block-rows $rows 'tfrecord("mixed-*").map(x => parse_example(x, a=feature(int64, default=7)))'
    expect "and_in_it: $rows" 1 '' 'Index: 2. could' -- "$m" show --block-rows $rows 'tfrecord("mixed-*").batch(3).map(x => parse_example(x, a=feature(int64, default=7)))'
done

# ---- writing
mkdir -p pets/dog pets/cat
printf d >pets/dog/1.jpg
printf c >pets/cat/2.PNG
expect images 0 '2 records in 1 file: pets-*-of-00001.tfrecord' -- "$m" write --out pets --images pets
expect images_labels 0 '{"0": "c", "1": 0}
{"0": "d", "1": 1}' -- "$m" show 'tfrecord("pets-*").map(r => parse_example(r, image=bytes, label=int64)).map(r => (r["image"], r["label"]))'
expect no_images 1 '' 'no folders of images in none' -- "$m" write --out none --images none
printf '{"a": [0.1, 3.4028235e38, 1e-45, "inf"]}\n' | "$m" write --out shortest --jsonl - >/dev/null
"$m" inspect shortest-00000-of-00001.tfrecord >shown
result inspect_shows_the_shortest_digits "$(grep -qF 'float32[4] 0.1, 3.4028235e+38, 1e-45, inf' shown; echo $?)" "$(cat shown)"
rm -f shortest-*
expect json_lines 0 ANY -- sh -c "printf '{\"a\": 1, \"b\": [1.5, 2], \"c\": \"x\"}\n' | '$m' write --out j --jsonl -"
expect json_read_back 0 '{"a": 1, "b": [1.5, 2.0], "c": "x"}' -- "$m" show 'tfrecord("j-*").map(x => parse_example(x, a=int64, b=float32[2], c=bytes))'
expect schema_says_the_types 0 '2 records in 1 file: sch-*-of-00001.tfrecord' -- sh -c "printf '{\"a\": 1, \"z\": null}\n{\"a\": 2, \"b\": [\"x\"]}\n' | '$m' write --out sch --jsonl - --schema '{\"a\": float32, \"b\": bytes[]}'"
expect schema_was_kept 0 $'{"a": 1.0, "b": []}\n{"a": 2.0, "b": ["x"]}' -- "$m" show 'tfrecord("sch-*").map(r => parse_example(r, a=float32, b=bytes[]))'
expect schema_does_not_fit 1 '' 'line 2' 'field a' 'expected int64' -- sh -c "printf '{\"a\": 1}\n{\"a\": 1.5}\n' | '$m' write --out schbad --jsonl - --schema '{\"a\": int64}'"
result schema_that_does_not_fit_leaves_no_file "$(ls schbad* 2>/dev/null | grep -q .; [ $? = 1 ]; echo $?)"
expect schema_is_checked 2 '' 'features' -- "$m" write --out schbad --jsonl one.jsonl --schema '{"a": int65}'
expect schema_without_json 2 '' '--jsonl' -- "$m" write --out schbad --text one.jsonl --schema '{"a": int64}'
expect bad_json 1 '' 'line 2' -- sh -c "printf '{}\n{\n' | '$m' write --out bad --jsonl -"
# jsonl NAME LINES FEATURES OUTPUT: written, and read back as FEATURES
jsonl() {
    printf '%b' "$2" | "$m" write --out jl --jsonl - >/dev/null 2>err
    expect "$1" 0 "$4" -- "$m" show "tfrecord(\"jl-*\").map(x => parse_example(x, $3))"
    rm -f jl-*
}
jsonl ints_among_floats_are_floats '{"a": 1}\n{"a": 0.5}\n{"a": true}\n' a=float32 $'{"a": 1.0}\n{"a": 0.5}\n{"a": 1.0}'
jsonl an_empty_list_has_the_type_of_the_others '{"a": []}\n{"a": ["x"]}\n' 'a=bytes[]' $'{"a": []}\n{"a": ["x"]}'
jsonl not_numbers_among_numbers '{"a": [1, "nan"]}\n{"a": ["-inf"]}\n' 'a=float32[]' $'{"a": [1.0, "nan"]}\n{"a": ["-inf"]}'
jsonl their_names_among_strings '{"a": "nan"}\n{"a": "x"}\n' a=bytes $'{"a": "nan"}\n{"a": "x"}'
jsonl a_float32_is_rounded_once '{"a": [1.000000178813934326171874999, 1.000000178813934326171875001, -3.00000000000000000000000000001e2], "s": "1.000000178813934326171874999"}\n' 'a=float32[], s=bytes' '{"a": [1.0000001, 1.0000002, -300.0], "s": "1.000000178813934326171874999"}'
jsonl bytes_in_base64 '{"a": {"b64": "/w=="}, "b": [{"b64": ""}, {"b64": "YWJj"}, "d"]}\n' 'a=bytes, b=bytes[]' '{"a": {"b64": "/w=="}, "b": ["", "abc", "d"]}'
while IFS='|' read -r name lines words; do
    # shellcheck disable=SC2086
    expect "$name" 1 '' $words -- sh -c "printf '$lines' | '$m' write --out bad --jsonl -"
done <<'CASES'
string_after_a_number|{"a": 1}\n\n{"a": "x"}\n|"a" string number line 3
number_after_a_string|{"n": "x"}\n{"n": 2.5}\n|"n" string number line 2
mixed_list|{"a": [1, "x"]}\n|"a" mixes line 1
bad_base64|{"a": {"b64": "/w="}}\n|base64 line 1
other_object|{"a": {"c": 1}}\n|"a" b64 line 1
too_large_a_float|{"a": 1}\n{"a": 1e39}\n|"a" 1e+39 too large for float32 line 2
too_large_an_integer|{"a": 18446744073709551615}\n|18446744073709551615 line 1
CASES
echo '{"a": 1}' >one.jsonl; echo '{"a": 1.5}' >two.jsonl; echo '{"a": "x"}' >three.jsonl
"$m" write --out two --jsonl one.jsonl two.jsonl >/dev/null
expect one_type_over_several_files 0 $'{"a": 1.0}\n{"a": 1.5}' -- "$m" show 'tfrecord("two-*").map(x => parse_example(x, a=float32))'
expect mixed_files 1 '' three.jsonl 'line 1' '"a"' one.jsonl -- "$m" write --out bad --jsonl one.jsonl three.jsonl
expect uint64_beyond_int64 1 '' "'a'" 18446744073709551615 'record 1' -- "$m" write --out bad --expr 'range(2).map(x => {"a": cast(1 - x, "uint64") - 1})'
expect largest_int64_as_uint64 0 ANY -- "$m" write --out most --expr 'from_tensors(a=9223372036854775807).map(x => {"a": cast(x["a"], "uint64")})'
cycle='from_tensor_slices(["", "a\n", "\xff\x00", "nan"]).enumerate().map((i, s) => {"b": s, "f": [cast(i, "float32") / 10.0, -1.0 / cast(i, "float32")], "i": i})'
"$m" show "$cycle" >shown
"$m" write --out cycle --jsonl shown >/dev/null
expect show_write_show 0 "$(cat shown)" -- "$m" show 'tfrecord("cycle-*").map(x => parse_example(x, b=bytes, f=float32[2], i=int64))'
result bad_json_leaves_no_file $([ -z "$(ls bad-* 2>/dev/null)" ]; echo $?)
# ---- other formats of files
expect lines_written 0 '3 records in 2 files: lines-*-of-00002.jsonl' -- "$m" write --out lines --shards 2 --format jsonl --expr 'from_tensor_slices(["long text", "\xff", ""]).map(s => {"s": s})'
same lines_read_back "$(cat lines-00000-of-00002.jsonl lines-00001-of-00002.jsonl)" $'{"s": "long text"}\n{"s": ""}\n{"s": {"b64": "/w=="}}'
expect lines_are_what_jsonl_reads 0 $'{"x": 0}\n{"x": 1}' -- sh -c "'$m' write --out again --format jsonl --expr 'range(2).map(x => {\"x\": x})' >/dev/null && '$m' show 'jsonl(\"again-*\", {\"x\": int64})'"
expect lines_compressed 0 '{"a": 0}' -- sh -c "'$m' write --out packed --format jsonl --compress GZIP --expr 'range(1).map(x => {\"a\": x})' >/dev/null && gunzip -c <packed-00000-of-00001.jsonl"
expect datasets_within_lines 0 $'{"dataset": [0, 1]}\n{"dataset": [2]}' -- sh -c "'$m' write --out nested --format jsonl --expr 'range(3).window(2)' >/dev/null && cat nested-*.jsonl"
expect arrays_written 0 '5 records in 2 files: arrays-*-of-00002.npy' -- "$m" write --out arrays --shards 2 --format npy --expr 'range(5).map(x => [x, 2 * x])'
python3 - arrays-00001-of-00002.npy >shown <<'EOF'
import ast, struct, sys
data = open(sys.argv[1], "rb").read()
size = struct.unpack("<H", data[8:10])[0]
print(ast.literal_eval(data[10:10 + size].decode()), struct.unpack("<4q", data[10 + size:]))
EOF
same arrays_read_back "$(cat shown)" "{'descr': '<i8', 'fortran_order': False, 'shape': (2, 2)} (1, 2, 3, 6)"
expect arrays_of_one_shape 1 '' 'record 2' 'shape [2]' 'pad or batch' -- "$m" write --out wrong --format npy --expr 'range(3).map(x => ones([1 + x // 2]))'
expect no_arrays_of_strings 2 '' "'0'" 'string' -- "$m" write --out wrong --format npy --expr 'range(3).map(x => ("a", x))'
expect frames_in_records 0 "$("$m" show 'range(400).map(x => format("user {} of town {}", x, x % 9))')" -- sh -c "'$m' write --out frames --shards 2 --compress zstd-record --expr 'range(400).map(x => format(\"user {} of town {}\", x, x % 9))' >/dev/null && test -f frames.dict && '$m' show 'tfrecord(\"frames-*\", record_compression=\"ZSTD\", num_parallel_reads=2)'"
expect inspect_shows_what_is_in_frames 0 ANY -- "$m" inspect --examples 2 frames-00000-of-00002.tfrecord
result inspect_reads_their_dictionary "$("$m" inspect --examples 2 frames-00000-of-00002.tfrecord | grep -q 'record 1, 16 bytes in a zstd frame of [0-9]*: "user 2 of town 2"'; echo $?)"
cp frames-00000-of-00002.tfrecord frame_alone
result inspect_takes_a_dictionary "$("$m" inspect --dictionary frames.dict frame_alone | grep -q ': "user 0 of town 0"'; echo $?)"
result inspect_says_what_a_frame_lacks "$("$m" inspect frame_alone | grep -q 'a zstd frame that cannot be read: .*dictionary'; echo $?)"
result inspect_unpacks_frames_of_a_pipe "$(cat frame_alone | "$m" inspect --dictionary frames.dict - | grep -q ': "user 0 of town 0"'; echo $?)"
expect verify_unpacks_frames 0 ANY -- sh -c "'$m' inspect --verify frames-00000-of-00002.tfrecord && cat frame_alone | '$m' inspect --verify --dictionary frames.dict -"
expect verify_lacks_a_dictionary 1 ANY 'frame_alone' 'record 0' 'give its file' -- "$m" inspect --verify frame_alone
expect a_dictionary_that_is_missing 1 '' 'nofile: cannot open' -- "$m" inspect --dictionary nofile frame_alone
"$m" write --out others --compress zstd-record --expr 'range(400).map(x => format("place {} of list {}", x, x % 7))' >/dev/null
expect a_dictionary_of_others 1 ANY 'frame_alone' 'record 0' 'others.dict is dictionary' -- "$m" inspect --dictionary others.dict frame_alone
expect a_dictionary_without_end 1 '' '/dev/zero: it has more than the 268435456 bytes' -- "$m" inspect --dictionary /dev/zero frame_alone
python3 - <<'EOF'
import struct
def crc(data):
    c = 0xffffffff
    for byte in data:
        c ^= byte
        for _ in range(8):
            c = c >> 1 ^ (0x82f63b78 if c & 1 else 0)
    c ^= 0xffffffff
    return struct.pack("<I", ((c >> 15 | c << 17) + 0xa282ead8) & 0xffffffff)
def record(data):
    size = struct.pack("<Q", len(data))
    return size + crc(size) + data + crc(data)
open("bad_frame", "wb").write(record(b"whole") + record(b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", 1 << 26) + b"\1\0\0"))
EOF
expect verify_a_damaged_frame 1 ANY 'bad_frame' 'record 1' 'a zstd frame that cannot be read' -- "$m" inspect --verify bad_frame
result verify_says_where_it_lies "$("$m" inspect --verify --json bad_frame 2>/dev/null | grep -q '"corrupt": {"record": 1, "offset": 21, "error": "a zstd frame'; echo $?)"
mkfifo never
"$m" write --out held --text never >/dev/null 2>&1 & pid=$!
while_runs $pid test -f .held.lock
while_runs $pid sh -c "! flock -n .held.lock true"
expect a_prefix_takes_one_write 1 '' 'another write' -- "$m" write --out held --shards 2 --overwrite --expr 'range(3)'
kill -9 $pid; wait $pid 2>/dev/null
expect a_killed_write_leaves_no_lock 0 '3 records in 2 files: held-*-of-00002.tfrecord' -- "$m" write --out held --shards 2 --overwrite --expr 'range(3)'
expect frames_of_records_alone 2 '' 'tfrecord files' -- "$m" write --out wrong --format jsonl --compress zstd-record --expr 'range(3)'
expect no_packed_arrays 2 '' 'compress' -- "$m" write --out wrong --format npy --compress GZIP --expr 'range(3)'
expect row_groups_of_parquet_alone 2 '' '--row-group applies only to parquet files' -- "$m" write --out wrong --format arrow --row-group 1M --expr 'range(3)'
expect formats_are_of_pipelines 2 '' '--schema' -- "$m" write --out wrong --format jsonl --idx a b
expect unknown_format 2 '' 'npy' -- "$m" write --out wrong --format xml --expr 'range(3)'
for format in arrow parquet; do
    expect "$format: written" 0 "5 records in 2 files: $format-*-of-00002.$format" -- "$m" write --out $format --shards 2 --format $format --expr 'range(5).map(x => {"n": x, "s": "\xff", "l": ones([x])})'
    expect "$format: read back" 0 "$("$m" show 'range(5).map(x => {"n": x, "s": "\xff", "l": ones([x])}).shard(2, 0)'; "$m" show 'range(5).map(x => {"n": x, "s": "\xff", "l": ones([x])}).shard(2, 1)')" -- "$m" show "$format(\"$format-*\")"
    expect "$format: records in records" 0 $'{"a": {"b": {"c": 0}, "l": []}, "a.b": 0}\n{"a": {"b": {"c": 1}, "l": [[1]]}, "a.b": 1}' -- sh -c "'$m' write --out in$format --format $format --expr 'range(2).map(x => {\"a\": {\"b\": {\"c\": x}, \"l\": reshape(ones([x], \"int64\"), [x, 1])}, \"a.b\": x})' >/dev/null && '$m' show '$format(\"in$format-*\")'"
    expect "$format: counted" 0 $'0\n2\n4\n1\n3' -- "$m" show "$format(\"$format-*\").map(r => r[\"n\"]).assert_cardinality(5)"
    expect "$format: computed names" 0 $'0\n2\n1\n3' -- "$m" show "list_files(\"$format-*\", shuffle=false).flat_map(f => $format(f, schema={\"n\": int64}).take(2)).map(r => r[\"n\"])"
    expect "$format: no schema" 2 '' 'schema must be given' "$format(f, schema=" -- "$m" show "list_files(\"$format-*\").flat_map(f => $format(f))"
    "$m" write --out wide$format --format $format --expr "range(1).map(x => {$(printf '"c%02d": x, ' $(seq 12))})" >/dev/null
    expect "$format: no column of many" 2 '' "there is no column 'x'; the file has the columns c01, c02, c03, c04, c05, c06, c07, c08, c09, c10, ..." -- "$m" show "$format(\"wide$format-*\", columns=[\"x\"])"
    "$m" write --out one$format --format $format --expr 'range(1).map(x => {"a": x})' >/dev/null
    expect "$format: no column of one" 2 '' "there is no column 'x'; the file has the column a" -- "$m" show "$format(\"one$format-*\", columns=[\"x\"])"
    expect "$format: no column" 2 '' "$format: $format-00000-of-00002.$format: there is no column 'y'" -- "$m" show "$format(\"$format-*\", columns=[\"n\", \"y\"])"
    expect "$format: another type" 1 '' "column 'n' is int64[] here, and int8[] in the first file or the schema; values are not converted on reading: use cast() in a map" -- "$m" show "$format(\"$format-*\", schema={\"n\": int8})"
    after=$("$m" explain --workers 2 --auto-shard file "$format(\"$format-*\", columns=[\"n\", \"s\"]).batch(2)" | sed -n '/after, on worker 0/{n;s/^ *//;s/[.]replica_slices.*//;p}')
    expect "$format: divided by files" 0 $'0\n2\n4' -- "$m" show "$after.unbatch().map(r => r[\"n\"])"
    expect "$format: in pieces" 0 $'{"0": "a", "1": 0}\n{"0": "a", "1": 1}' -- sh -c "'$m' write --out few --overwrite --format $format --compress ZSTD --expr 'range(2).map(x => (\"a\", x))' >/dev/null && '$m' show '$format(\"few-*\")'"
    expect "$format: not in ZLIB" 2 '' 'ZSTD' -- "$m" write --out wrong --format $format --compress ZLIB --expr 'range(3)'
    expect "$format: not of datasets" 2 '' "'value'" 'dataset' -- "$m" write --out wrong --format $format --expr 'range(3).window(2)'
    expect "$format: of nothing" 0 '' -- sh -c "'$m' write --out nothing --overwrite --format $format --expr 'range(0).map(x => {\"x\": x})' >/dev/null && '$m' show '$format(\"nothing-*\")'"
    expect "$format: input that is a file" 0 $'{"n": 1}\n{"n": 3}' -- sh -c "'$m' show '$format(\"-\", columns=[\"n\"])' <$format-00001-of-00002.$format"
done
mkdir -p folder.d
for format in arrow parquet tfrecord; do
    expect "$format: of a directory" 1 '' 'folder.d' 'directory' -- "$m" show "$format(\"folder.d\")"
done
printf 'PK\003\004not a table' >zip.arrow
expect arrow_of_other_files 1 '' 'zip.arrow: ' 'not an Arrow IPC file or stream: it is compressed with zip as a whole' 'decompress it' -- "$m" show 'arrow("zip.arrow")'
expect arrow_of_other_pipes 1 '' 'compressed with zip as a whole' -- sh -c "cat zip.arrow | '$m' show 'arrow(\"-\")'"
expect tables_of_pipes 0 $'{"n": 0}\n{"n": 2}\n{"n": 4}' -- sh -c "cat arrow-00000-of-00002.arrow | '$m' show 'arrow(\"-\", columns=[\"n\"])'"
expect tables_of_pipes_once 1 '' 'read once' -- sh -c "cat arrow-00000-of-00002.arrow | '$m' show 'arrow(\"-\", columns=[\"n\"]).take(1).repeat(2)' >/dev/null"
expect no_tables_of_other_pipes 2 '' 'standard input' -- sh -c "rm -f fifo; mkfifo fifo; '$m' show 'arrow(\"fifo\")'"
expect no_parquet_of_pipes 2 '' 'write it to a file' -- sh -c "cat parquet-* | '$m' show 'parquet(\"-\")'"
expect parquet_in_gzip 0 '{"value": 0}' -- sh -c "'$m' write --out few --overwrite --compress GZIP --format parquet --expr 'range(1)' >/dev/null && '$m' show 'parquet(\"few-*\")'"
expect no_arrow_in_gzip 2 '' 'ZSTD' -- "$m" write --out wrong --format arrow --compress GZIP --expr 'range(3)'
result nothing_is_left_of_what_failed $([ -z "$(find . -name '*wrong*')" ]; echo $?) "$(ls -a)"
expect file_size_limit 1 '' -- bash -c "ulimit -f 64; '$m' write --out limited --expr 'range(100000).map(x => zeros([100], \"uint8\"))'"
result file_size_limit_leaves_no_file $([ -z "$(ls limited* .limited* 2>/dev/null)" ]; echo $?) "$(ls -a)"
# The pattern that write prints can be read, whatever is in the prefix, and matches these files alone.
seq 0 8 >nine
seq 0 2 >three
mkdir 'run[1]' run1 'b\d' bd 'a*' a1
for prefix in 'run[1]/x' 'run1/x[2]' 'b\d/x' 'a*/x?' 'a1/[' 'a1/x]'; do
    "$m" write --out "${prefix//[^a-z0-9\/]/1}" --shards 2 --text nine >/dev/null 2>&1 # what the pattern may match by mistake
    pattern=$("$m" write --out "$prefix" --shards 2 --overwrite --text three | sed 's/.*: //; s/\\/\\\\/g')
    expect "the printed pattern of $prefix" 0 $'"0"\n"2"\n"1"' -- "$m" show "tfrecord(\"$pattern\")"
    expect "the files of $prefix by name" 0 $'"0"\n"2"' -- "$m" show "tfrecord(\"${prefix//\\/\\\\}-00000-of-00002.tfrecord\")"
done
expect a_directory_that_exists_is_no_pattern 0 $'"0"\n"2"\n"1"' -- "$m" show 'list_files("run[1]/x-*").flat_map(f => tfrecord(f))'
expect a_file_that_exists_is_no_pattern 0 $'"run1/x[2]-00000-of-00002.tfrecord"' -- "$m" show 'list_files("run1/x[2]-00000-of-00002.tfrecord")'
"$m" write --out gen --shards 3 --expr 'range(3)' >/dev/null
expect another_set_is_refused 1 '' 'set of 3 shards' -- "$m" write --out gen --shards 2 --expr 'range(3)'
expect a_set_is_indexed 0 '' -- "$m" index 'gen-*.tfrecord'
expect another_set_is_replaced 0 '3 records in 2 files: gen-*-of-00002.tfrecord' -- "$m" write --out gen --shards 2 --overwrite --expr 'range(3)'
expect the_index_of_a_set_goes_with_it 0 3 -- sh -c "'$m' show 'tfrecord(\"gen-*\")' | wc -l"
result only_the_new_set_is_left "$([ "$(echo gen-* .gen*)" = 'gen-00000-of-00002.tfrecord gen-00001-of-00002.tfrecord .gen*' ]; echo $?)"
a_part_is_there() { [ -e "$(echo .stopped-00001*)" ]; }
for signal in INT TERM HUP; do
    env --default-signal=HUP "$m" write --out stopped --shards 2 --expr 'counter()' 2>/dev/null &
    pid=$!
    while_runs $pid a_part_is_there
    result "partial_files_are_hidden_$signal" "$([ -e "$(echo .stopped-00001*)" ] && [ "$(echo stopped-*)" = 'stopped-*' ]; echo $?)"
    kill -$signal $pid
    end_of $pid
    result "${signal}_is_the_exit_status" "$([ $? = $((128 + $(kill -l $signal))) ]; echo $?)"
    result "${signal}_leaves_no_partial_files" "$([ "$(echo stopped-* .stopped*)" = 'stopped-* .stopped*' ]; echo $?)"
done
expect recover_nowhere 1 '' 'nowhere/' 'No such file' -- "$m" write --out nowhere/a --recover
expect recover_of_nothing 0 '' -- "$m" write --out unheard --recover
expect write_nowhere 1 '' 'nowhere' -- "$m" write --out nowhere/a --expr 'range(1)'
printf 'a\nb\n' >lines.txt
expect text_of_standard_input 0 '2 records in 1 file: tp-*-of-00001.tfrecord' -- sh -c "printf 'a\nb\n' | '$m' write --out tp --text -"
expect text_lines 0 ANY -- "$m" write --out t --text lines.txt
expect text_from_a_pipe 0 ANY -- sh -c "cat lines.txt | '$m' write --out t --text -"
expect text_read_back 0 $'"a"\n"b"' -- "$m" show 'tfrecord("t-*")'
printf 'half' >.left.txt.12-0.partial
printf 'whole\n' >left.txt
expect unfinished_files_are_no_match 0 '"whole"' -- "$m" show 'text_line(["*left.txt*"])'
printf '\0\0\10\1\0\0\0\2ab' >labels.idx
printf '\0\0\10\3\0\0\0\2\0\0\0\1\0\0\0\2ABCD' >images.idx
expect idx 0 ANY -- "$m" write --out i --idx images.idx labels.idx
expect idx_read_back 0 $'{"image": "AB", "label": 97}\n{"image": "CD", "label": 98}' -- "$m" show 'tfrecord("i-*").map(x => parse_example(x, image=bytes, label=int64))'
head -c 17 images.idx >short.idx
expect short_idx 1 '' 'short.idx' -- "$m" write --out s --idx short.idx labels.idx

# ---- distributing
expect unbatched 1 '' 'batch' -- "$m" show --replicas 2 'range(4)'
expect too_few_files 1 '' 'file' 'worker' -- "$m" show --replicas 1 --workers 3 --auto-shard file 'tfrecord(["a-00000-of-00001.tfrecord", "empty.tfrecord"]).batch(2)'
expect worker_out_of_range 2 '' 'worker' -- "$m" show --replicas 1 --workers 2 --worker 2 'range(4).batch(2)'
expect no_replicas 2 '' 'replicas' -- "$m" show --replicas 0 'range(4).batch(2)'
expect unknown_policy 2 '' 'auto-shard' -- "$m" show --replicas 1 --auto-shard all 'range(4).batch(2)'
expect input_function 0 $'{"step": 0, "replicas": [[0, 1], [2, 3]]}' -- "$m" show --replicas 2 --from-function 'range(4).batch(per_replica_batch_size(4))'
expect indivisible 1 '' '5' '2' -- "$m" show --replicas 2 --from-function 'range(4).batch(per_replica_batch_size(5))'
"$m" explain --workers 2 --worker 0 --replicas 1 'range(8).batch(4)' >out 2>err
text=$(sed -n '/^after/{n;s/^ *//;p}' out)
expect explained_graph_runs 0 $'[0, 1]\n[4, 5]' -- "$m" show "$text"

grep -q '^    \.batch(4)  *2  int64\[?\]  *4 elements, 32 B$' out
result explain_lists_the_ops $? "$(cat out)"
grep -q '^  + \.shard(2, 0, .*)  *' out
result explain_marks_what_was_added $? "$(cat out)"
"$m" explain --workers 2 --worker 0 'zip(range(9), text_line("a")).cache("c").batch(2)' >out 2>err
grep -q '^  - \.cache("c")$' out && grep -q '^  + \.cache("c-stream-0-of-2"' out && grep -q '^      range(9)  *9  int64' out &&
    grep -q '^    zip(\.\.\.)  *unknown  (int64\[\], string\[\])' out
result explain_marks_what_is_gone $? "$(cat out)"
! grep -q "$(printf '\033')" out
result explain_has_colours_on_terminals_only $? "$(cat out)"
json explain_lists_the_ops_as_json 'x["ops before"] == [
    {"op": "counter()", "depth": 0, "element": "int64[]", "elements": "infinite", "held_elements": 0, "held_bytes": 0},
    {"op": ".shuffle(-2)", "depth": 0, "element": "int64[]", "elements": "infinite", "held_elements": "infinite", "held_bytes": None}]' \
    "$("$m" explain --json 'counter().shuffle(-2)' 2>err)"

long='range(2).map(x => {"a rather long name": x, "another name, no shorter": x})'
"$m" explain "$long" >out
result explain_cuts_long_entries "$(grep -q '^    \.map(x => {"a rather long name": x, "another name, …  *2  {"a rather long name": int64\[\], "anothe…  a block$' out &&
    grep -qxF "  $long" out; echo $?)" "$(cat out)"
"$m" explain "range(2).map(x => {\"$(printf 'é%.0s' $(seq 60))\": x})" >out
result explain_cuts_between_characters "$(iconv -f utf-8 -t utf-8 out >/dev/null && grep -q '"é*…  *2  {"é*…  a block$' out; echo $?)" "$(cat out)"

# ---- the memory limit
graph='range(800).map(x => random_uniform([25000], seed=1)).prefetch(100000).map(x => sum(sort(x)))'
least=$("$m" explain --json --threads 2 "$graph" | python3 -c 'import json, sys; print(json.load(sys.stdin)["memory before"]["bytes"])')
result explain_prints_the_least_memory_limit $([ "$least" -gt 1000000 ]; echo $?) "$least"
expect a_lower_memory_limit_is_refused 1 '' 'memory_limit is 1048576 bytes' 'needs at least' -- "$m" show --memory-limit 1M "$graph"
expect the_graph_says_a_memory_limit 1 '' 'memory_limit is 9 bytes' -- "$m" show 'range(3).with_options(memory_limit=9)'
expect the_flag_comes_before_the_graph 0 $'0\n1\n2' -- "$m" show --memory-limit 4G 'range(3).with_options(memory_limit=9)'
expect memory_limit_of_the_environment 1 '' 'memory_limit is 9 bytes' -- env MILLRACE_MEMORY_LIMIT=9 "$m" show 'range(3)'
expect memory_limit_flag_comes_first 0 $'0\n1\n2' -- env MILLRACE_MEMORY_LIMIT=9 "$m" show --memory-limit 4g 'range(3)'
expect bad_memory_limit_of_the_environment 2 '' 'MILLRACE_MEMORY_LIMIT' '3Q' -- env MILLRACE_MEMORY_LIMIT=3Q "$m" show 'range(3)'
for size in '' 0 -1 12X 1MM 99999999999T 1.5G '512 '; do
    expect "bad_memory_limit: $size" 2 '' '--memory-limit' -- "$m" show "--memory-limit=$size" 'range(3)'
done
"$m" show --threads 0 "$graph" >want 2>err
# resident LIMIT: runs the graph, and prints the most that was resident, in bytes
resident() {
    python3 -c 'import resource, subprocess, sys
subprocess.run(sys.argv[1:], stdout=open("got", "w"), check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024)' "$m" show --threads 2 --memory-limit "$1" "${2:-$graph}" 2>err
}
limit=$((least + (16 << 20)))
if grep -qs '^MR_SANITIZE:[^=]*=.' "${MR_BUILD:-}/CMakeCache.txt"; then
    skip the_process_stays_below_its_limit "a sanitizer takes memory of its own"
    resident $((least + (400 << 20))) >used
else
    used=$(resident $limit)
    result the_process_stays_below_its_limit $([ "${used:-$limit}" -lt "$limit" ]; echo $?) "$used of $limit: $(cat err)"
    used=$(resident 64M 'range(3000).map(x => zeros([26214])).prefetch(100000).distribute("local").map(x => sum(x))')
    result streams_read_here_stay_below_it $([ "${used:-$((64 << 20))}" -lt $((64 << 20)) ]; echo $?) "$used: $(cat err)"
    resident $limit >used
fi
result a_memory_limit_changes_nothing_that_comes_out "$(cmp want got >&2; echo $?)"

expect spec 0 '(int64[], {a: float32[2], b: string[]})' -- "$m" show --spec 'range(3).map(x => (x, {"b": "s", "a": zeros([2])}))'
expect spec_runs_nothing 0 'string[?]' -- "$m" show --spec 'text_line("none-*").batch(2)'
expect spec_of_a_replica 0 'int64[?]' -- "$m" show --spec --replicas 2 'range(3).batch(2)'
expect spec_and_limit 2 '' 'spec' -- "$m" show --spec --limit 3 'range(3)'

# ---- errors of a graph: one place, with a caret under what is wrong
# refused NAME EXPR COLUMN MESSAGE: all of standard error; COLUMN counts from 1, of line 1
refused() {
    local want got rc
    want=$(printf 'millrace: %sinvalid argument: line 1, column %d: %s\n  %s\n  %*s^' "${5:-}" "$3" "$4" "$2" $(($3 - 1)) '')
    got=$("$m" show "$2" 2>&1 </dev/null)
    rc=$?
    [ "$rc" = 2 ] && [ "$got" = "$want" ]
    result "$1" $? "  status $rc; want: $want
  got: $got"
}
refused place_of_a_range 'range(3).batch(0)' 16 'batch: batch_size must be at least 1, not 0'
refused place_of_a_range_of_an_option 'range(3).interleave(x => range(x), cycle_length=0)' 49 \
    'interleave: cycle_length must be at least 1, not 0'
refused place_of_a_type 'range(3).batch("a")' 16 'batch: batch_size must be an integer, not "a"'
refused place_of_a_type_of_an_option 'range(3).shuffle(5, seed="a")' 26 'shuffle: seed must be an integer, not "a"'
refused place_of_a_word 'text_line("a", compression="foo")' 28 \
    'text_line: compression must be "", "GZIP", "ZLIB" or "ZSTD", not "foo"'
refused place_of_an_unknown_keyword 'range(3).skip(2, foo=1)' 18 "skip has no parameter 'foo'; it has count"
refused place_of_a_keyword_given_twice 'range(9).skip(2, count=3)' 18 'skip: count is given twice'
refused place_of_one_argument_too_many 'range(3).take(1, 2)' 18 'take takes no further argument here'
refused place_of_a_missing_argument 'range(3).take()' 10 'take: expected count, which is missing, as in range(10).take(3)'
refused features_that_are_missing 'jsonl("f")' 1 \
    'jsonl: expected features, which is missing, as in jsonl("people-*.jsonl", {"name": bytes, "age": feature(int64, default=-1)})'
refused columns_that_are_missing 'csv("f")' 1 \
    'csv: expected features, which is missing, as in csv("table.csv", {"name": bytes, "x": float32})'
refused a_tuple_of_datasets 'zip((range(3), range(4)))' 5 'zip takes datasets, as in zip(range(3), range(10, 20))'
refused a_list_that_is_no_dataset 'zip(range(3), [1])' 15 'zip takes datasets, as in zip(range(3), range(10, 20))'
refused a_list_behind_a_dataset 'range(3).concatenate([1])' 22 'concatenate takes datasets, as in range(3).concatenate(range(10, 12))'
refused parameters_without_parentheses 'zip(range(3), range(3)).map(x, y => x + y)' 32 \
    'map: num_parallel_calls cannot be a function; one of several parameters is written (x, y) => ...'
refused a_function_where_none_can_be 'range(3).batch(x => x)' 16 'batch: batch_size cannot be a function'
refused place_of_a_check 'range(1, 2, 0)' 13 'range: step must not be 0'
refused place_of_a_check_of_two 'range(3).shard(2, 5)' 19 \
    'shard: index must be 0 or more and below num_shards (2), not 5'
refused place_of_the_values_of_a_source 'from_tensor_slices([[1, 2], [3]])' 20 \
    'from_tensor_slices: a list must hold numbers, bools or strings, in one shape'
refused place_of_an_empty_name 'image_folder("")' 14 'image_folder: dir must be the name of a folder'
refused place_of_an_option_of_names 'image_folder("a", extensions=[".jpg"])' 30 \
    'image_folder: extensions are written without the dot, such as "jpg"'
expect op_before_the_file_when_built 1 '' 'millrace: tar: none: byte 0: not found: cannot open' -- "$m" show 'tar("none")'
refused place_of_a_function 'range(3).flat_map(x => x)' 19 \
    'flat_map: fn must return a dataset, not int64[]; use map for that'
refused place_in_a_function 'range(3).map(x => y)' 19 "unknown name 'y'" 'map: '
refused place_of_a_type_in_a_function 'range(3).flat_map(x => range(3).batch("a"))' 39 \
    'batch: batch_size must be an integer, not a value of type string[]' 'flat_map: '
refused place_of_an_unknown_op 'range(3).btch(2)' 10 "unknown op 'btch'; did you mean 'batch'?"
refused place_of_the_end 'range(3' 8 "expected ',' or ')' to close the '(' of line 1, found the end of the text"
big=$(printf '.map(x => (x, x))%.0s' $(seq 30))
expect too_many_leaves 2 '' '131072 components, but at most 65536' -- "$m" show "range(3)$big"
# ---- control characters do not reach the terminal
esc=$(printf '\033')
c1=$(printf '\302\233')
expect control_bytes_of_file_names 1 '' 'a\x1b[31m\xc2\x9bz' -- "$m" show "text_line(\"a$esc[31m${c1}z\")"
expect control_bytes_of_arguments 2 '' 'unknown option '\''--\x1b[31m'\''' -- "$m" show "--$esc[31m" 'range(1)'
expect control_bytes_of_texts 2 '' 'not "\x1b[31m"' -- "$m" show "range(3).batch(\"$esc[31m\")"
expect newlines_in_names_make_no_lines 1 '' 'a\x0amillrace: fine' -- "$m" show $'text_line("a\nmillrace: fine")'
grep -q "$esc" err
result control_bytes_are_escaped $((! $?)) "$(cat -v err)"

# ---- the cluster in TF_CONFIG: as --worker I --workers W, which override it
cluster='{"cluster": {"chief": ["a:1"], "worker": ["b:1", "c:1"]}, "task": {"type": "worker", "index": 1}}'
graph='range(24).batch(6).shuffle(3)'
want=$("$m" show --replicas 1 --workers 3 --worker 2 "$graph" 2>/dev/null)
expect tf_config_names_the_worker 0 "$want" 'chose DATA' -- env TF_CONFIG="$cluster" "$m" show --replicas 1 "$graph"
want=$("$m" show --replicas 1 --workers 3 --worker 0 "$graph" 2>/dev/null)
expect worker_overrides_that_of_tf_config 0 "$want" -- env TF_CONFIG="$cluster" "$m" show --replicas 1 --worker 0 "$graph"
want=$("$m" show --replicas 1 --workers 2 "$graph" 2>/dev/null)
expect workers_override_tf_config 0 "$want" -- env TF_CONFIG="$cluster" "$m" show --replicas 1 --workers 2 "$graph"
# without the memory that it needs at least, which counts what the process has just now
explained() { "$m" explain "$@" "$graph" 2>/dev/null | grep -v '^ *memory limit:'; }
same tf_config_in_explain "$(explained --workers 3 --worker 2)" "$(TF_CONFIG=$cluster explained)"
expect tf_config_of_a_ps 1 '' 'ps 0' 'reads no input' -- \
    env TF_CONFIG='{"cluster": {"ps": ["a:1"]}, "task": {"type": "ps", "index": 0}}' "$m" show --replicas 1 "$graph"
expect broken_tf_config 2 '' 'TF_CONFIG is not JSON: line 1' -- env TF_CONFIG='{"cluster"' "$m" show --replicas 1 "$graph"
expect tf_config_without_a_task 2 '' 'TF_CONFIG' 'task' -- env TF_CONFIG='{"cluster": {"worker": ["a:1"]}}' "$m" explain "$graph"
expect broken_tf_config_overridden 0 ANY -- env TF_CONFIG='{' "$m" explain --workers 2 "$graph"
expect tf_config_only_where_something_is_distributed 0 0 -- env TF_CONFIG='{' "$m" show 'range(1)'
for command in 'show range(1)' 'bench range(1)' 'write --out of_all --expr range(1)' 'reduce range(1) --init 0 --fn (s,x)=>s+x'; do
    # shellcheck disable=SC2086
    expect "a_cluster_is_not_passed_over_in_silence_by_${command%% *}" 0 ANY 'TF_CONFIG describes a job of 3 workers' "${command%% *} takes no part" -- \
        env TF_CONFIG="$cluster" "$m" $command
done
TF_CONFIG='{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}}' "$m" show 'range(1)' >out 2>err
grep -q . err
result a_cluster_of_one_is_no_warning $((! $?)) "$(cat err)"
"$m" show --replicas 2 'range(4).batch(4)' >out 2>err
grep -q . err
result one_worker_is_not_warned $((! $?)) "$(cat err)"

# ---- ops and bench
expect ops_know_batch 0 ANY -- "$m" ops batch
expect ops_know_functions 0 ANY -- "$m" ops cast
result ops_show_arguments_of_functions \
    "$("$m" ops zeros | grep -qF 'zeros(shape, dtype=float32)'; echo $?)" "$("$m" ops zeros)"
result ops_show_operators "$("$m" ops // | head -n 1 | grep -qxF 'a // b'; echo $?)" "$("$m" ops //)"
result ops_name_functions "$("$m" ops --names | grep -qx one_hot; echo $?)" "$("$m" ops --names)"
result ops_show_functions_as_json "$("$m" ops --json | python3 -c '
import json, sys
[cast] = [o for o in map(json.loads, sys.stdin) if o.get("function") == "cast"]
assert cast["params"][1]["type"] == "dtype"' 2>&1; echo $?)" "$("$m" ops cast --json)"
expect ops_do_not_know 2 '' 'nonsense' -- "$m" ops nonsense
expect bench_of_no_time 2 '' 'seconds' -- "$m" bench --seconds 0 'range(3)'
"$m" bench --json 'counter()' >out 2>err & pid=$!
has_worked() { # used two seconds of processor time, however long that took
    local stat
    read -ra stat <"/proc/$pid/stat" || return
    [ $((stat[13] + stat[14])) -ge $((2 * $(getconf CLK_TCK))) ]
}
until_it_catches $pid; while_runs $pid has_worked; kill -INT $pid; end_of $pid; rc=$?
result bench_prints_what_it_measured_until_interrupted \
    $([ $rc = 130 ] && grep -q '"path": "counter"' out && ! grep -q '"elements": 0' out && [ ! -s err ]; echo $?) "status $rc $(cat out err)"
"$m" bench --json --trace stopped.json 'counter()' >out 2>err & pid=$!
until_it_catches $pid; while_runs $pid has_worked; kill -TERM $pid; end_of $pid; rc=$?
result sigterm_leaves_a_whole_trace \
    $([ $rc = 143 ] && python3 -m json.tool stopped.json >/dev/null && [ ! -e stopped.json.partial ]; echo $?) "status $rc $(cat err)"
expect bench_table 0 ANY -- "$m" bench 'range(1000).batch(10)'
"$m" bench --threads 0 'range(300000).map(x => x * x).batch(10)' >out 2>err
grep -qE '^batch.* twice as fast would save [0-9.]+ s \([0-9]+ %\)$' out && ! grep -q '##' out
result bench_says_what_would_help $? "$(cat out)"
"$m" bench --threads 2 'range(300000).map(x => x * x, num_parallel_calls=2).batch(10)' >out 2>err
grep -q 'twice as fast would save at most' out
result bench_with_threads_says_at_most $? "$(cat out)"
# A pipe that is slower than all ops is the slowest. On a busy machine it must be very slow.
slow_pipe() { for i in 1 2 3 4 5 6; do echo $i; sleep "$1"; done; }
blames_the_pipe() { # SECONDS
    slow_pipe "$1" | "$m" bench --threads $threads 'text_line("-").map(x => to_number(x, "int64")).batch(2)' >out 2>err
    grep -q 'text_line .*slowest: waits for its data$' out && grep -q 'text_line twice as fast would save' out
}
for threads in 0 2; do
    result "bench_blames_a_slow_pipe_$threads" "$(blames_the_pipe 0.05 || blames_the_pipe 0.5 || blames_the_pipe 5; echo $?)" "$(cat out err)"
done
json bench_json_says_what_would_help '(x["twice_as_fast"]["saves_seconds"] * 2 == max(o["busy_seconds"] + o["wait_seconds"] for o in x["ops"]) and
    x["twice_as_fast"]["path"] in [o["path"] for o in x["ops"]])' "$("$m" bench --threads 0 --json 'range(300000).map(x => x * x).batch(10)')"
if command -v script >/dev/null; then
    script -qec "$m bench --threads 0 'range(300000).map(x => x * x).batch(10)'" /dev/null </dev/null >out 2>err
    grep -qE '^  batch.* [#.]{23,25}( |\r|$)' out
    result bench_draws_bars_on_a_terminal $? "$(cat out)"
else
    skip bench_draws_bars_on_a_terminal "script(1) is not there"
fi
"$m" bench --json --repeat 2 'range(1000).batch(10)' >out
result bench_json $(python3 -c '
import json
r = [json.loads(l) for l in open("out")]
assert [x["run"] for x in r] == [1, 2] and r[0]["elements"] == 100 and r[0]["bytes"] == 8000
assert {o["op"] for o in r[0]["ops"]} == {"batch", "range"}' 2>&1 >/dev/null; echo $?) "$(cat out)"
for threads in 0 2; do
    "$m" bench --threads $threads --repeat 2 --warmup 1 --trace trace.json \
        'range(2000).map(x => x * x, num_parallel_calls=2).batch(10).prefetch(2)' >out 2>err
    result bench_traces_with_${threads}_threads $(python3 -c '
import json, sys
threads = int(sys.argv[1])
events = json.load(open("trace.json"))["traceEvents"]
spans = [e for e in events if e["ph"] == "X"]
assert {e["pid"] for e in spans} == {1, 2}
assert {e["args"]["path"] for e in spans} == {
    "prefetch", "prefetch/batch", "prefetch/batch/map", "prefetch/batch/map/range"}
assert all(e["dur"] >= 0 and e["cat"] in ("busy", "wait") for e in spans)
named = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
assert {(e["pid"], e["tid"]) for e in spans} == named.keys()
assert sum(n == "consumer" for n in named.values()) == 2
if not threads:
    assert set(named.values()) == {"consumer"}
# Spans of a thread lie within one another or apart.
for thread in named:
    ends = []
    for b, e in sorted((s["ts"], s["ts"] + s["dur"]) for s in spans if (s["pid"], s["tid"]) == thread):
        while ends and ends[-1] <= b + 1e-3:
            ends.pop()
        assert not ends or e <= ends[-1] + 1e-3, (b, e, ends)
        ends.append(e)' $threads 2>err; echo $?) "$(cat err)"
done
(sleep 1; echo line) >fifo & "$m" bench --trace trace.json --threads 0 'text_line("fifo")' >out 2>err
wait $!
result bench_traces_waits $(python3 -c '
import json
waits = [e for e in json.load(open("trace.json"))["traceEvents"] if e.get("cat") == "wait"]
assert sum(e["dur"] for e in waits) > 0.1e6 and waits[0]["name"] == "text_line waits", waits' 2>err; echo $?) "$(cat err)"
rm trace.json
"$m" bench --threads 0 --block-rows 1 --trace trace.json 'range(300000)' >out 2>err
grep -q 'room for 250000 spans; spans shorter than [0-9.e-]* us are omitted' err &&
    [ "$(grep -c '"ph":"X"' trace.json)" -le 250000 ] && grep -q '"name":"range"' trace.json
result bench_leaves_out_the_shortest_spans $? "$(cat err)"
rm trace.json
expect bench_writes_no_trace_of_a_failed_run 1 ANY -- "$m" bench --trace trace.json 'range(3).map(x => 1 // (x - 1))'
[ ! -e trace.json ]; result bench_leaves_no_trace_of_a_failed_run $? "$(ls -a)"
mkfifo trace_pipe
timeout $patience cat trace_pipe >trace.json & pid=$!
expect bench_traces_into_a_pipe 0 ANY -- "$m" bench --trace trace_pipe 'range(3)'
[ -p trace_pipe ]; ok=$?
[ $ok = 0 ] && wait $pid && tail -n 1 trace.json | grep -qxF ']}'
result bench_replaces_no_pipe_by_its_trace $? "$(ls -l trace*)"
rm -f trace_pipe trace.json
ln -s /dev/full full_disk
expect bench_traces_to_a_full_disk 1 ANY full_disk 'no space left' -- "$m" bench --trace full_disk 'range(3)'
[ -c full_disk ]; result bench_replaces_no_device_by_its_trace $? "$(ls -l full_disk)"

"$m" bench --threads 2 --tuning --json --repeat 2 'range(200000).map(x => x * x, num_parallel_calls=auto).batch(10).prefetch(auto)' >out 2>err
result bench_tells_what_auto_chose $(python3 -c '
import json
for line in open("out"):
    chosen = {t["path"]: t for t in json.loads(line)["tuning"]}
    assert chosen.keys() == {"prefetch", "prefetch/batch/map"}, chosen
    assert [chosen[p]["parameter"] for p in sorted(chosen)] == ["buffer_size", "num_parallel_calls"]
    assert all(t["chosen"] >= 1 and t["service_seconds"] >= 0 and t["interval_seconds"] >= 0 for t in chosen.values())' 2>&1 >/dev/null; echo $?) "$(cat out err)"
"$m" bench --threads 2 --tuning 'range(20000).map(x => x * x, num_parallel_calls=auto).batch(10).prefetch(auto)' >out 2>err
grep -qE '^  prefetch/batch/map +num_parallel_calls +[1-3] .* num_parallel_calls=[1-3]$' out &&
    grep -qE '^  prefetch +buffer_size +[0-9]+ .* prefetch\(the elements of [0-9]+ blocks\)$' out
result bench_tells_how_to_pin_what_auto_chose $? "$(cat out err)"
"$m" bench --threads 2 --tuning 'range(20000).map(x => x * x, num_parallel_calls=2)' >out 2>err &&
    grep -q '^no parameter is auto' out
result bench_tells_that_nothing_is_auto $? "$(cat out err)"
"$m" bench --threads 0 --tuning 'range(20).prefetch(auto)' >out 2>err && grep -q '^nothing is tuned without threads' out
result bench_tells_that_nothing_is_tuned $? "$(cat out err)"
json bench_json_tells_that_nothing_is_tuned 'x["tuning"] == []' "$("$m" bench --threads 0 --tuning --json 'range(20).prefetch(auto)')"
expect bench_cannot_write_its_trace 1 '' 'nowhere/t' -- "$m" bench --trace nowhere/t 'range(3)'

finish
