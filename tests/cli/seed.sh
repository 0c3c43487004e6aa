#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tier: plain=full
# One seed, one order: whatever runs a graph, its random ops draw the same from --seed.
. "$(dirname "${BASH_SOURCE[0]}")/../expect.sh"
. "$tests/daemons.sh"

for i in 0 1 2 3; do seq $((100 * i)) $((100 * i + 11)) >part-$i.txt; done
"$m" write --out records --shards 2 --expr 'range(60).map(i => format("{}", 10 ** (i % 10)) + "x")' >/dev/null 2>&1
"$m" index records-* >/dev/null 2>&1
start dispatcher "$m" dispatcher --listen 127.0.0.1:0 --num-workers 1
service=$at
start worker "$m" worker --dispatcher "$service" </dev/null

# The rows of each step. DATA deals the slices of a batch to the workers in turn.
cat >steps.py <<'E2'
import itertools, json, sys
steps = {}
for name in sys.argv[1:]:
    for i, line in enumerate(open(name)):
        x = json.loads(line)
        steps.setdefault(i, []).append(x["replicas"] if isinstance(x, dict) else [x])
for workers in steps.values():
    print(*itertools.chain.from_iterable(itertools.chain.from_iterable(zip(*workers))))
E2
# same NAME GRAPH [no_service]: batches of 12 rows, run by one process, by replicas, by workers and by a service
same() {
    "$m" show --seed 7 "$2" >one 2>err && python3 steps.py one >want && [ -s want ] || { result "$1" 1 "$(cat err)"; return; }
    "$m" show --seed 8 "$2" >one 2>err && python3 steps.py one >other
    result "$1"_of_another_seed "$(! cmp -s want other; echo $?)"
    local w r i how
    for how in "1 1" "1 2" "1 4" "2 1" "3 1" "2 2" "3 2"; do
        read -r w r <<<"$how"
        for ((i = 0; i < w; i++)); do
            "$m" show --seed 7 --workers "$w" --worker $i --replicas "$r" --auto-shard data "$2" >worker-$i 2>err || break
        done
        # shellcheck disable=SC2046
        python3 steps.py $(seq -f worker-%g 0 $((w - 1))) >got && cmp want got
        result "$1_on_${w}_workers_of_${r}_replicas" $? "$(cat err)"
    done
    [ $# = 2 ] || return
    "$m" show --seed 7 "$2.distribute(\"$service\", processing_mode=\"data\", streams=1)" >one 2>err && python3 steps.py one >got && cmp want got
    result "$1_by_a_service" $? "$(cat err)"
}
same a_shuffle 'range(60).shuffle(20).batch(12)'
same several_shuffles 'range(60).shuffle(20).map(x => x + 1).shuffle(7).repeat(2).batch(12)'
same a_shuffle_of_files 'list_files("part-*.txt", shuffle=true).interleave(text_line, cycle_length=2).map(s => to_number(s, "int64")).shuffle(9).batch(12)' no_service # which lists files for all workers, and shuffles the list
same shuffles_in_functions 'range(12).shuffle(5).flat_map(x => range(10).shuffle(10).map(y => x * 100 + y)).batch(12)'
same a_mixture 'sample_from_datasets([range(60), range(100, 160).shuffle(9)], weights=[0.4, 0.6]).batch(12)'
same random_functions 'range(60).shuffle(60).map(x => x * 1000 + random_int(0, 1000)).batch(12)'
same a_global_shuffle 'tfrecord("records-*").global_shuffle().map(r => length(r)).batch(12)'
same repeated_before_a_shuffle 'range(24).repeat(2).shuffle(24).batch(12, drop_remainder=true)'
finish
