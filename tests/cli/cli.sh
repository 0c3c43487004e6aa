#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The program as a user sees it: output, exit status, the words of its errors.
#   cli.sh [MILLRACE [TAP_FILE]]
set -u
millrace=$(readlink -f "${1:-$MR_BUILD/millrace}")
tap=${2:-${TAP_FILE:-/dev/null}}
dir=$(mktemp -d)
trap 'chmod -R u+rwx "$dir" 2>/dev/null; rm -rf "$dir"' EXIT
cd "$dir" || exit 1
n=0 failed=0
: >"$tap"

result() { # NAME GOOD [WHY]
    n=$((n + 1))
    if [ "$2" = 0 ]; then
        echo "ok $n - $1" >>"$tap"
    else
        echo "not ok $n - $1" >>"$tap"
        printf 'FAILED %s\n%s\n' "$1" "${3:-}"
        failed=$((failed + 1))
    fi
}
# expect NAME STATUS OUTPUT [WORD...] -- COMMAND...: the whole standard output, words of standard error
expect() {
    local name=$1 status=$2 want=$3 words=() got rc bad=0 w
    shift 3
    while [ "$1" != -- ]; do words+=("$1"); shift; done
    shift
    got=$("$@" 2>err </dev/null)
    rc=$?
    [ "$rc" = "$status" ] || bad=1
    [ "$want" = ANY ] || [ "$got" = "$want" ] || bad=1
    for w in "${words[@]+"${words[@]}"}"; do
        grep -qiF -- "$w" err || bad=1
    done
    result "$name" $bad "  status $rc (want $status), output '$got', stderr: $(head -c 400 err)"
}
m=$millrace

# ---- output
expect numbers 0 $'0\n1\n2' -- "$m" show 'range(3)'
expect floats_look_like_floats 0 $'0.0\n0.5\n1.0' -- "$m" show 'range(3).map(x => x / 2)'
expect float32_digits 0 0.1 -- "$m" show 'from_tensors(0.1)'
expect not_numbers 0 $'"inf"\n"nan"' -- "$m" show 'from_tensor_slices([1.0, 0.0]).map(x => x / 0.0)'
expect strings 0 $'"a\\"b"\n{"b64": "/w=="}' -- "$m" show 'from_tensor_slices(["a\"b", "\xff"])'
expect records 0 '{"a": 1}' -- "$m" show 'from_tensors(a=1)'
expect datasets 0 '{"dataset": [0, 1]}' -- "$m" show 'range(2).window(2)'
expect dataset_that_fails 1 '{"dataset": [-6]}' zero -- "$m" show 'range(3).map(x => range(x + 1).map(y => 6 // (y - 1)))'
expect limit 0 $'0\n1' -- "$m" show --limit 2 'counter()'
expect epochs 0 $'0\n1\n0\n1' -- "$m" show --epochs 2 'range(2)'
echo 'range(2) # a comment' >e.txt
expect expression_from_a_file 0 $'0\n1' -- "$m" show -f e.txt
expect replicas 0 '{"step": 0, "replicas": [[0, 1], [2, 3]]}' -- "$m" show --replicas 2 'range(4).batch(4)'
expect version 0 ANY -- "$m" --version
for c in show explain ops inspect write bench train; do
    expect "help_$c" 0 ANY -- "$m" "$c" --help
    expect "wrong_flag_$c" 2 '' "$c" '--no-such-flag' -- "$m" "$c" --no-such-flag
done
"$m" show 'counter()' 2>err | head -n 1 >out
result sigpipe_is_quiet $([ "$(cat out)" = 0 ] && [ ! -s err ]; echo $?) "$(cat err)"
"$m" show 'counter()' >/dev/null 2>err & pid=$!
sleep 0.3; kill -INT $pid; wait $pid; rc=$?
result sigint_ends_with_130 $([ $rc = 130 ]; echo $?) "status $rc"
if "$m" train --help >/dev/null 2>&1; then
    "$m" train --data 'counter().filter(x => x < 0).map(x => (zeros([2]), x)).batch(2)' --model 'dense(2)' \
        --loss 'sparse_categorical_crossentropy(from_logits=true)' --optimizer 'sgd()' >/dev/null 2>err & pid=$!
    sleep 0.5; kill -INT $pid; sleep 1; kill -KILL $pid 2>/dev/null; wait $pid; rc=$?
    result sigint_ends_training_that_waits_for_data $([ $rc = 130 ] && [ ! -s err ]; echo $?) "status $rc $(cat err)"
else
    echo "ok $((n += 1)) - sigint_ends_training_that_waits_for_data # SKIP built without the trainer" >>"$tap"
fi
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
printf 'MRP1xxxxgarbage' >bad
expect damaged_position 1 '' 'position' -- "$m" show --restore bad 'range(5)'
: >empty
expect empty_position 1 '' 'position' -- "$m" show --restore empty 'range(5)'
expect unwritable_position 1 ANY '/dev/full' -- "$m" show --save-after 1 --state /dev/full 'range(2)'
result devices_are_never_removed $([ -c /dev/full ]; echo $?)
expect missing_position 1 '' 'nowhere' -- "$m" show --restore nowhere 'range(5)'

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

# ---- errors while running
expect division_by_zero 1 $'10\n5' 'division by zero' 'map' -- "$m" show 'from_tensor_slices([1, 2, 0, 5]).map(x => 10 // x)'
expect least_by_minus_one 0 '-9223372036854775808' -- "$m" show 'from_tensors(-9223372036854775808).map(x => x // -1)'
expect bad_batch_in_a_function 1 '' 'batch' -- "$m" show 'range(3).flat_map(x => range(3).batch(0))'
expect unequal_shapes 1 '' 'shape' -- "$m" show 'range(1, 3).map(x => zeros([x])).batch(2)'
expect huge_batch 0 '[0, 1, 2]' -- "$m" show 'range(3).batch(9223372036854775807)'
expect huge_shuffle 0 ANY -- "$m" show 'range(3).shuffle(9223372036854775807, seed=1)'
expect huge_repeat 0 $'0\n0\n0' -- "$m" show --limit 3 'range(1).repeat(9223372036854775807)'
expect huge_tensor 1 '' 'memory' -- "$m" show 'range(1).map(x => zeros([x + 1000000000, 1000000000]))'

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
expect verify_good 0 ANY -- "$m" inspect --verify $f
expect verify_bad 1 ANY 'flip.tfrecord' 'record 1' -- "$m" inspect --verify flip.tfrecord
expect inspect_json 0 "{\"file\": \"$f\", \"compression\": \"\", \"records\": 4, \"bytes\": 28, \"corrupt\": null}" -- "$m" inspect --json $f
for c in GZIP ZLIB ZSTD; do
    "$m" write --out z$c --shards 2 --compress $c --expr 'range(5).map(x => {"a": x})' >/dev/null
    expect "round_trip_$c" 0 $'{"a": 0}\n{"a": 2}\n{"a": 4}\n{"a": 1}\n{"a": 3}' -- "$m" show "tfrecord(\"z$c-*\", compression=\"$c\").map(x => parse_example(x, a=int64))"
done
printf '{"a": [1, 2], "s": "x", "f": 1.5}\n' >ex.jsonl
"$m" write --out ex --jsonl ex.jsonl >/dev/null
expect inspect_shows_examples 0 $'ex-00000-of-00001.tfrecord\n    record 0, 42 bytes, an Example:\n      a: int64[2] 1, 2\n      f: float32[1] 1.5\n      s: bytes[1] "x"\n  1 records, 42 bytes of data (42 to 42 a record, 42.0 on average), uncompressed\n  checksums good' -- "$m" inspect --examples 2 ex-00000-of-00001.tfrecord
expect inspect_shows_other_records 0 ANY -- "$m" inspect $f
result inspect_prints_their_bytes $("$m" inspect $f | grep -q 'record 0, 7 bytes: "records"'; echo $?)
mkdir links; cp $f links/here.tfrecord; ln -s round links/round; ln -s gone links/dangling
expect wildcards_pass_by_links_that_lead_nowhere 0 '"links/here.tfrecord"' -- "$m" show 'list_files("li*/*.tfrecord", "links/*/*")'
if [ "$(id -u)" = 0 ]; then
    mkdir locked; cp $f locked/; chmod 700 locked; chmod 755 .
    expect unreadable_directory 1 '' 'locked' -- setpriv --reuid 65534 --regid 65534 --clear-groups "$m" show 'list_files("locked/*")'
else
    echo "ok $((n += 1)) - unreadable_directory # SKIP needs root to become another user" >>"$tap"
fi

"$m" write --out mixed --expr 'from_tensor_slices(["", "", "\xff"])' >/dev/null
for rows in 1 2 9; do
    expect "records_are_counted_from_their_own_vector: $rows" 1 $'{"a": 7}\n{"a": 7}' 'Index: 0. could' -- "$m" show --block-rows $rows 'tfrecord("mixed-*").map(x => parse_example(x, a=feature(int64, default=7)))'
    expect "and_in_it: $rows" 1 '' 'Index: 2. could' -- "$m" show --block-rows $rows 'tfrecord("mixed-*").batch(3).map(x => parse_example(x, a=feature(int64, default=7)))'
done

# ---- writing
expect json_lines 0 ANY -- sh -c "printf '{\"a\": 1, \"b\": [1.5, 2], \"c\": \"x\"}\n' | '$m' write --out j --jsonl -"
expect json_read_back 0 '{"a": 1, "b": [1.5, 2.0], "c": "x"}' -- "$m" show 'tfrecord("j-*").map(x => parse_example(x, a=int64, b=float32[2], c=bytes))'
expect bad_json 1 '' 'line 2' -- sh -c "printf '{}\n{\n' | '$m' write --out bad --jsonl -"
result bad_json_leaves_no_file $([ -z "$(ls bad-* 2>/dev/null)" ]; echo $?)
expect file_size_limit 1 '' -- bash -c "ulimit -f 64; '$m' write --out limited --expr 'range(100000).map(x => zeros([100], \"uint8\"))'"
result file_size_limit_leaves_no_file $([ -z "$(ls limited* .limited* 2>/dev/null)" ]; echo $?) "$(ls -a)"
expect write_nowhere 1 '' 'nowhere' -- "$m" write --out nowhere/a --expr 'range(1)'
printf 'a\nb\n' >lines.txt
expect text_lines 0 ANY -- "$m" write --out t --text lines.txt
expect text_read_back 0 $'"a"\n"b"' -- "$m" show 'tfrecord("t-*")'
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

# ---- ops and bench
expect ops_know_batch 0 ANY -- "$m" ops batch
expect ops_do_not_know 2 '' 'nonsense' -- "$m" ops nonsense
expect bench_table 0 ANY -- "$m" bench 'range(1000).batch(10)'
"$m" bench --json --repeat 2 'range(1000).batch(10)' >out
result bench_json $(python3 -c '
import json
r = [json.loads(l) for l in open("out")]
assert [x["run"] for x in r] == [1, 2] and r[0]["elements"] == 100 and r[0]["bytes"] == 8000
assert {o["op"] for o in r[0]["ops"]} == {"batch", "range"}' 2>&1 >/dev/null; echo $?) "$(cat out)"

echo "1..$n" >>"$tap"
echo "$((n - failed)) passed, $failed failed"
[ $failed = 0 ]
