#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tier: plain=full
# Ledgers, and what millrace why tells from them.
. "$(dirname "${BASH_SOURCE[0]}")/../expect.sh"

printf '%s\n' a b c d e f g >letters.txt
"$m" write --out led --shards 2 --text letters.txt >out
e='tfrecord("led-*").shuffle(4, seed=5).batch(2)'
"$m" show --ledger 0.ledger --threads 0 "$e" >elements
for how in '--threads 3' '--threads 2 --block-rows 1'; do
    "$m" show --ledger 1.ledger $how "$e" >out && cmp elements out && cmp 0.ledger 1.ledger
    result "ledgers_are_the_same$(echo "$how" | tr -c 'a-z0-9\n' _)" $? "$(cat out)"
done
cat >why.py <<E
import json, subprocess
def why(*words):
    out = subprocess.run(["$m", "why", *words], check=True, stdout=subprocess.PIPE).stdout
    return [json.loads(l) for l in out.splitlines()]
def places(lines):
    return [[(r["file"], r["ordinal"]) for r in l["records"]] for l in lines]
def letters(line):
    return [["aceg", "bdf"][r["file"]][r["ordinal"]] for r in line["records"]]
E
python3 - >err 2>&1 <<E
from why import *
elements = [json.loads(l) for l in open("elements")]
lines = why("0.ledger")
assert [l["element"] for l in lines] == [0, 1, 2, 3]
for line, element in zip(lines, elements):
    assert letters(line) == element, line
    for r in line["records"]:
        assert r["name"] == "led-0000%d-of-00002.tfrecord" % r["file"] and r["epoch"] == r["source"] == 0
    k = line["element"]
    assert why("0.ledger", "--element", str(k)) == [line]
    assert why("0.ledger", "--step", str(k)) == [{"step": k, "records": line["records"]}]
for name in "1", "led-00001-of-00002.tfrecord":
    [line] = why("0.ledger", "--record", name + ":2")
    assert "f" in elements[line["element"]] and letters(line) == ["f"]
E
result why_tells_records_of_elements $? "$(cat err)"
"$m" show --ledger 2.ledger --replicas 2 --epochs 2 'tfrecord("led-*").batch(4)' >steps
"$m" bench --ledger 3.ledger --repeat 2 'list_files("led-*", shuffle=false).interleave(f => tfrecord(f)).batch(2)' >out
"$m" write --ledger 4.ledger --out copy --expr 'tfrecord("led-*")' >out
python3 - >err 2>&1 <<E
from why import *
steps = [json.loads(l)["replicas"] for l in open("steps")]
lines = why("2.ledger")
assert [l["step"] for l in lines] == [0, 1, 2, 3], lines
for line, step in zip(lines, steps):
    assert letters(line) == sum(step, [])
uses = why("2.ledger", "--record", "led-00000-of-00002.tfrecord:0")
assert [(u["step"], u["records"][0]["epoch"]) for u in uses] == [(0, 0), (2, 1)], uses
lines = why("3.ledger")
assert len(lines) == 8 and lines[4:] == [{**l, "element": l["element"] + 4} for l in lines[:4]]
assert {(r["file"], r["name"]) for l in lines for r in l["records"]} == {
    (i, "led-0000%d-of-00002.tfrecord" % i) for i in (0, 1)}
assert sorted(letters(l)[0] for l in why("4.ledger")) == list("abcdefg")
E
result why_tells_records_of_steps_and_of_what_was_written $? "$(cat err)"
if "$m" train --help >/dev/null 2>&1; then
    "$m" train --data 'range(6).map(x => (ones([2]), x % 2)).batch(4)' --validation 'range(2).map(x => (ones([2]), x)).batch(2)' \
        --model 'dense(2)' --loss sparse_categorical_crossentropy --optimizer 'sgd(0.1)' --replicas 2 --epochs 2 \
        --ledger 5.ledger >out 2>err
    python3 - >>err 2>&1 <<E
from why import *
steps = [(l["step"], [(r["ordinal"], r["epoch"]) for r in l["records"]]) for l in why("5.ledger")]
assert steps == [(2 * e + s, [(i, e) for i in range(4 * s, min(4 * s + 4, 6))]) for e in (0, 1) for s in (0, 1)], steps
E
    result why_tells_records_of_training $? "$(cat err)"
else
    skip why_tells_records_of_training "there is no trainer"
fi
"$m" show --ledger 1.ledger "$e" >out
expect why_does_not_compare_steps_with_elements 1 '' 'one ledger records steps' -- "$m" why 0.ledger 5.ledger
expect why_finds_no_difference 0 '' -- "$m" why 0.ledger 1.ledger
"$m" show --ledger 1.ledger 'tfrecord("led-*").shuffle(4, seed=6).batch(2).take(3)' >out
"$m" why 0.ledger 1.ledger >out 2>err; rc=$?
[ $rc = 1 ] && grep -q ' of 3 elements that both have differ; 0.ledger has 4, 1.ledger 3' err && python3 - >>err 2>&1 <<E
from why import *
a, b = places(why("0.ledger")), places(why("1.ledger"))
seen = {l["element"]: l for l in map(json.loads, open("out"))}
assert set(seen) == {i for i in range(3) if a[i] != b[i]}
for i, l in seen.items():
    only = [sorted((r["file"], r["ordinal"]) for r in l[k]) for k in ("only_first", "only_second")]
    assert only == [sorted(set(a[i]) - set(b[i])), sorted(set(b[i]) - set(a[i]))]
    assert l["order_differs"] == (only == [[], []])
E
result why_tells_where_two_runs_differ $? "status $rc $(cat out err)"
# differ NAME MESSAGE GRAPH GRAPH: what why says of their ledgers, which differ, goes to out
differ() {
    "$m" show --ledger 6.ledger "$3" >out 2>err && "$m" show --ledger 7.ledger "$4" >out 2>>err
    "$m" why 6.ledger 7.ledger >out 2>>err
    [ $? = 1 ] && grep -qF "$2" err
    result "$1" $? "$(cat out err)"
}
differ why_compares_the_lengths_of_runs '0 of 3 elements that both have differ; 6.ledger has 4, 7.ledger 3' "$e" "$e.take(3)"
differ why_tells_epochs_apart '2 of 2 elements that both have differ' 'tfrecord("led-*").take(1).repeat(2)' \
    'tfrecord("led-*").take(1).repeat(4).skip(1).take(2)'
differ why_counts_a_record_as_often_as_it_is_there '1 of 1 elements that both have differ' \
    'tfrecord("led-*").take(4).window(2, 1, 1, true).flat_map(w => w).batch(8)' 'tfrecord("led-*").take(4).batch(8)'
[ "$(grep -o '"only_first": .*"only_second": \[\]' out | grep -o '"ordinal": [0-9]*' | tr -dc '0-9')" = 12 ]
result why_tells_only_what_is_missing $? "$(cat out)"
mkdir sub && cp led-* sub
"$m" show --ledger 6.ledger 'tfrecord("sub/led-*")' >out
for name in led-00001-of-00002.tfrecord sub/led-00001-of-00002.tfrecord; do
    expect "why_knows_a_file_as_$(dirname "$name" | tr -d .)_and_its_name" 0 ANY -- "$m" why 6.ledger --record "$name:2"
done
expect why_knows_no_part_of_a_name 1 '' 'no element has' -- "$m" why 6.ledger --record 00001-of-00002.tfrecord:2
expect why_knows_no_such_step 1 '' '0.ledger: there is no step 4; it has 4' -- "$m" why 0.ledger --step 4
expect why_knows_no_such_record 1 '' 'no element has the record 1:3' -- "$m" why 0.ledger --record 1:3
# records FILE...: how often each record is in some entry of these ledgers, as "NAME:N times"
records() {
    for f; do "$m" why "$f"; done | python3 -c '
import collections, json, sys
n = collections.Counter((r.get("name", "?"), r["ordinal"], r["epoch"]) for l in sys.stdin for r in json.loads(l)["records"])
print(*("%s:%d:%d %d" % (*k, n[k]) for k in sorted(n)), sep="\n")'
}
# once NAME FILE...: each record of the data is in these ledgers once
once() {
    local name=$1 got
    got=$(records "${@:2}")
    [ "$(echo "$got" | sed 's/.* //' | sort -u)" = 1 ] && [ "$(echo "$got" | wc -l)" = 7 ] &&
        ! grep -q '^?' <<<"$got"
    result "$name" $? "$got"
}
for how in '3 4' '8 2' '5 7' '2 1'; do
    # shellcheck disable=SC2086
    set -- $how
    "$m" show --replicas "$1" --ledger 6.ledger "tfrecord(\"led-*\").batch($2)" >out
    once "replicas_with_empty_slices_have_no_records_of_others_$1_of_$2" 6.ledger
done
for w in 0 1; do
    "$m" show --replicas 2 --workers 2 --worker $w --auto-shard data --ledger "of-$w.ledger" 'tfrecord("led-*").batch(3)' >out
done
once workers_with_empty_slices_have_no_records_of_others of-0.ledger of-1.ledger

# ---- a restored run names the files of rows that the position holds
for g in 'shuffle(7, seed=1)' 'map(x => x, num_parallel_calls=2, deterministic=false).shuffle(7, seed=1)' \
    'map(x => x, num_parallel_calls=2, deterministic=false).batch(5).unbatch()' 'cache().shuffle(9, seed=1).repeat(1)' \
    'window(5).flat_map(w => w)' 'group_by_window(x => 0, (k, w) => w, 9)' 'batch(7).rebatch(1).unbatch()' \
    'map(x => x, num_parallel_calls=2, deterministic=false).prefetch(7)'; do
    bad=0
    for k in 0 1 3 4 5 6 7; do
        "$m" show --threads 0 --save-after $k --state pos --ledger 6.ledger "tfrecord(\"led-*\").$g" >out &&
            "$m" show --threads 0 --restore pos --ledger 7.ledger "tfrecord(\"led-*\").$g" >out || bad=1
        got=$(records 7.ledger)
        [ "$(grep -c '^led-' <<<"$got")" = $((7 - k)) ] || { bad=1; break; }
    done
    result "a_restored_run_names_its_files: $g" $bad "after $k: $got"
    # The next position has the names too.
    "$m" show --threads 0 --save-after 2 --state pos --ledger 6.ledger "tfrecord(\"led-*\").$g" >out &&
        "$m" show --threads 0 --restore pos --save-after 2 --state pos --ledger 7.ledger "tfrecord(\"led-*\").$g" >out &&
        "$m" show --threads 0 --restore pos --ledger 7.ledger "tfrecord(\"led-*\").$g" >out
    [ "$(records 7.ledger | grep -c '^led-')" = 3 ]
    result "a_run_restored_twice_names_its_files: $g" $? "$(records 7.ledger)"
done
"$m" show --threads 0 --save-after 3 --state pos --ledger 6.ledger "tfrecord(\"led-*\").$g" >out
expect names_need_no_ledger_when_restored 0 ANY -- "$m" show --threads 0 --restore pos "tfrecord(\"led-*\").$g"

expect why_wants_a_record 2 '' 'FILE:N' -- "$m" why 0.ledger --record 17
expect why_wants_a_ledger 2 '' 'expected one ledger' -- "$m" why
expect why_wants_one_question 2 '' 'cannot be combined' -- "$m" why 0.ledger --step 1 --record 1:1
expect why_reads_ledgers 1 '' 'letters.txt: not a ledger' -- "$m" why letters.txt
expect why_finds_its_ledger 1 '' 'nowhere' -- "$m" why nowhere
{ head -c 8 0.ledger; printf '\2'; tail -c +10 0.ledger; } >9.ledger
expect why_names_another_version 1 '' 'a ledger of version 2; this program reads version 1' -- "$m" why 9.ledger
head -c -12 0.ledger >9.ledger
"$m" why 9.ledger >out 2>err; rc=$?
[ $rc = 1 ] && [ "$(wc -l <out)" = 4 ] && grep -q 'stops after 4 entries' err
result why_reads_a_ledger_that_was_cut $? "status $rc $(cat out err)"
expect why_has_answers_from_a_ledger_that_was_cut 0 ANY -- "$m" why 9.ledger --step 3
expect ledgers_must_have_a_place 1 '' 'nowhere/l: cannot create the ledger' -- "$m" show --ledger nowhere/l 'range(3)'
[ ! -e /dev/full ] || expect ledgers_must_be_written 1 ANY 'cannot write the ledger' -- "$m" bench --ledger /dev/full 'range(3)'
expect ledgers_are_of_pipelines 2 '' 'ledger needs a pipeline' -- "$m" write --out x --jsonl letters.txt --ledger 9.ledger

finish
