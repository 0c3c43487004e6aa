#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# "Distributed input": docs/guides.md, rows 4.
#   examples/guides/input.sh [BUILD]
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
# steps FLAG...: prints the replicas' input, one line per step, after "worker I:" if there are several
steps() { "$m" show "$@" 2>err | sed -E 's/^\{"step": [0-9]+, "replicas": \[(.*)\]\}$/\1/; s/^\{"step": [0-9]+, "worker": ([0-9]+), "replicas": \[(.*)\]\}$/\1: \2/'; }
worker() { steps --replicas 1 --workers 2 --worker "$@"; }

block 4.1 "versions" "/millrace [0-9]/" "$m" --version
block 4.3 "devices" "/cpu/" "$m" devices
block 4.4 "a plain dataset through labels - 0.3 * features" "$(printf '[[0.7]]\n%.0s' 1 2)" \
    "$m" show 'from_tensors(([1.0], [1.0])).repeat(2).batch(1).map((x, y) => y - 0.3 * x)'
block 4.5 "16 rows on 4 replicas: 4 each" "[[1.0], [1.0], [1.0], [1.0]], [[1.0], [1.0], [1.0], [1.0]], [[1.0], [1.0], [1.0], [1.0]], [[1.0], [1.0], [1.0], [1.0]]" \
    steps --replicas 4 --limit 1 'from_tensors([1.0]).repeat(100).batch(16)'
block 4.6 "range(6) in batches of 4 on 2 replicas" "[0, 1], [2, 3]
[4], [5]" steps --replicas 2 'range(6).batch(4)'
block 4.7 "a batch of 4 on 5 replicas" "[0], [1], [2], [3], []" steps --replicas 5 'range(4).batch(4)'
block 4.8 "range(8) in batches of 4 on 3 replicas" "[0, 1], [2, 3], []
[4, 5], [6, 7], []" steps --replicas 3 'range(8).batch(4)'
block 4.10 "the policy as an option of the dataset" "[0, 1]
[4, 5]" worker 0 'range(8).batch(4).with_options(auto_shard_policy="DATA")'

"$m" write --out one --shards 2 --expr 'range(12)' >/dev/null
"$m" write --out alone --expr 'range(12)' >/dev/null
block 4.11 "AUTO needs as many files as workers" "" sh -c "'$m' show --replicas 1 --workers 2 'tfrecord(\"alone-*\").batch(4)'; [ \$? = 1 ]"
says 'found 1'
for i in 0 1; do
    text_line="text_line([\"a.txt\", \"b.txt\"]).batch(4)"
    seq 0 5 >a.txt
    seq 6 11 >b.txt
    case $i in 0) file='["0", "1"]
["2", "3"]
["4"]
["5"]' data='[0, 1]
[4, 5]
[8, 9]' ;; 1) file='["6", "7"]
["8", "9"]
["10"]
["11"]' data='[2, 3]
[6, 7]
[10, 11]' ;; esac
    block 4.12 "FILE: worker $i reads a file of its own" "$file" worker $i --auto-shard file "$text_line"
    block 4.13 "DATA: worker $i takes its slices" "$data" worker $i --auto-shard data 'range(12).batch(4)'
    block 4.14 "OFF: worker $i reads everything" "$(printf '[%s]\n' '0, 1' '2, 3' '4, 5' '6, 7' '8, 9' '10, 11')" worker $i --auto-shard off 'range(12).batch(4)'
done
block 4.15 "a prefetch as deep as there are replicas" "/replica_slices\(4\)\.prefetch\(4\)/" "$m" explain --replicas 4 'range(16).batch(16)'
block 4.16 "an input function with its context" "[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13, 14, 15]" steps --replicas 4 --limit 1 --from-function \
    'range(64).repeat().shard(num_input_pipelines, input_pipeline_id).batch(per_replica_batch_size(16)).prefetch(2)'
block 4.18 "element specs" "dataset (float32[?, 1], float32[?, 1])
a replica's share (float32[?, 1], float32[?, 1])
of the iterator (float32[?, 1], float32[?, 1])" "$guides/distributed_input" spec
block 4.19 "a loop over it, then an iterator" "/^step 0: \[0.7 0.7 0.7 0.7\] .*step 2: \[0.7\] \[0.7\] \[0.7\] \[0.7\] step 0: .* step 1:/" "$guides/distributed_input" loop
block 4.22 "get_next_as_optional" "step 0: [0] [1] [2] [3]
step 1: [4] [5] [6] [7]
step 2: [8] [] [] []
no value" "$guides/distributed_input" optional
printf 'a\nb\nc\nd\nf\n' >vocabulary.txt
for vocabulary in '["a", "b", "c", "d", "f"]' '"vocabulary.txt"'; do
    block 4.31 "StringLookup in an input function, vocabulary $vocabulary" "[1, 3, 0, 1]
[3, 0, 1, 3]
[0, 1, 3, 0]" steps --replicas 1 --limit 3 --from-function \
        "from_tensor_slices([\"a\", \"c\", \"e\"]).repeat().batch(per_replica_batch_size(4)).map(x => lookup(x, vocabulary=$vocabulary))"
done
words='from_tensor_slices(["d", "a", "d", "c"]).map(x => ([x], [1.0])).batch(2)'
"$m" adapt --data "$words" --layer 'lookup(max_tokens=4)' --out adapted
block 4.25 "adapt learns a vocabulary" "d c a" xargs -a adapted/vocabulary.txt
"$m" train --data "$words" --model 'lookup("adapted").embedding(4, 2).flatten().dense(1)' --loss mse --optimizer adam --seed 1 --save text >/dev/null
block 4.33 "what was learned of all data, in an input function" "[[1], [3]]
[[1], [2]]" steps --replicas 1 --limit 2 --from-function \
    'from_tensor_slices(["d", "a", "d", "c"]).map(x => [x]).batch(per_replica_batch_size(2)).map(x => lookup(x, vocabulary="adapted/vocabulary.txt"))'
rm -r adapted
block 4.28 "a model that takes text, with its vocabulary" same sh -c "
    '$m' predict --saved text --data 'from_tensor_slices([\"d\", \"d\", \"x\", \"y\"]).map(x => [x]).batch(2)' | uniq | wc -l | grep -qx 2 && echo same"
printf '10\n20\n40\n' >numbers.txt
block 4.29 "IntegerLookup by a file" "[1, 0, 3]" "$m" show 'from_tensors([10, 30, 40]).map(x => lookup(x, vocabulary="numbers.txt"))'
"$m" train --data 'from_tensor_slices([10, 20, 40, 30]).map(x => ([x], [1.0])).batch(2)' \
    --model 'lookup("numbers.txt").embedding(4, 2).flatten().dense(1)' --loss mse --optimizer sgd --seed 1 --save numbers >/dev/null
block 4.29 "IntegerLookup by a file, in a model: what it does not list is one class" same sh -c "
    '$m' predict --saved numbers --data 'from_tensor_slices([30, 99, 10, 20]).map(x => [x]).batch(2)' | uniq | wc -l | grep -qx 3 && echo same"
block 4.34 "partial batches, and the end" "[0], [1], [2], [3]
[4], [5], [6], [7]
[8], [], [], []" steps --replicas 4 'range(9).batch(4)'
seq 3 >c.txt
seq 13 >d.txt
block 4.35 "workers of unequal files take as many steps" "4 4" sh -c "for i in 0 1; do
    '$m' show --replicas 2 --workers 2 --worker \$i --auto-shard file 'text_line([\"c.txt\", \"d.txt\"]).batch(8)' | wc -l; done | xargs"
block 4.39 "list_files with a seed: files of their own" "same" sh -c "
    for i in 0 1; do '$m' show --seed 4 --replicas 1 --workers 2 --worker \$i 'list_files(\"[abcd].txt\", shuffle=true).batch(2)'; done |
        grep -o '[abcd]\.txt' | sort | xargs | grep -qx 'a.txt b.txt c.txt d.txt' && echo same"
block 4.40 "list_files, shard, repeat, shuffle, interleave, map" "/text_line/" "$m" explain \
    'list_files("[cd].txt", shuffle=false).shard(2, 1).repeat(2).shuffle(10).interleave(text_line, cycle_length=2, block_length=1).map(x => x, num_parallel_calls=2)'
block 4.41 "shuffle, the same in each pass" same sh -c "
    '$m' show 'range(6).shuffle(3, seed=1, reshuffle_each_iteration=false).repeat(2).batch(6)' | sort -u | wc -l | grep -qx 1 && echo same"
block 4.42 "predictions in the order of their inputs" "/^\{0: 0, 1: 2, 2: 4, .* 23: 46\}/" "$guides/distributed_input" order
block 4.43 "a value for each replica from a function" "replica 0: [0]
replica 1: [1]
replica 2: [2]
replica 3: [3]" "$guides/distributed_input" values
block 4.44 "a generator, not batched" "/^step 0: \[.*step 1: .*step 2: \[.*\] \[.*\] \[\] \[\]/" "$guides/distributed_input" generator
finish
