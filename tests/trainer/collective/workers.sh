#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tier: plain=full tsan=full
# millrace train in several processes: the same losses however the replicas are spread, and what
# happens where a process differs, fails or is lost.
. "$(dirname "${BASH_SOURCE[0]}")/../../expect.sh"
. "$tests/job.sh"
"$m" train --help >/dev/null 2>&1 || exit 77 # built without the trainer
model=(--model 'dense(16, activation="relu").dense(3)' --loss 'sparse_categorical_crossentropy(from_logits=true)'
    --optimizer 'adam(learning_rate=0.01)' --log json)
data='range(403).map(i => ([cast(i % 17, "float32") / 17.0, cast(i % 5, "float32"), 1.0], i % 3)).batch(32)'
all=(--data "$data" --metrics accuracy --check-replicas --eval "$data" --epochs 20 --steps 200)

# ---- one global batch, spread in three ways, with a short last batch in each epoch
for how in '1 4' '2 2' '4 1'; do
    # shellcheck disable=SC2086
    set -- $how
    start_all "$1" --replicas "$2" "${all[@]}"
    # shellcheck disable=SC2046
    ended $(yes 0 | head -n "$1") && chief_alone
    result "workers_${1}_replicas_$2" $? "$(said)"
    cp out.0 "losses.$1"
done
python3 - <<'PYTHON'
import json, sys
runs = [[json.loads(l) for l in open(f"losses.{n}")] for n in (1, 2, 4)]
assert len(runs[0]) == len(runs[1]) == len(runs[2]) > 200
for lines in zip(*runs):
    for x in lines[1:]:
        assert x.keys() == lines[0].keys(), lines
        for k, v in x.items():
            assert abs(v - lines[0][k]) <= 2e-5 * abs(lines[0][k]), lines
PYTHON
result the_spread_of_replicas_does_not_change_the_losses $? "$(tail -qn 1 losses.*)"
# Rows draw by their number in the global batch: masks and noise are those of one process.
noisy=(--data "$data" --epochs 2 --seed 3)
for i in "${!model[@]}"; do
    [ "${model[i]}" != --model ] || model[i + 1]='dense(16, activation="relu").dropout(0.5).dense(3)'
done
for how in '1 4' '2 2' '4 1' '3 2' '2 3' '1 6'; do
    # shellcheck disable=SC2086
    set -- $how
    start_all "$1" --replicas "$2" "${noisy[@]}"
    # shellcheck disable=SC2046
    ended $(yes 0 | head -n "$1") && chief_alone
    result "dropout_on_workers_${1}_replicas_$2" $? "$(said)"
    cp out.0 "noisy.$1.$2"
done
python3 - <<'PYTHON'
import json
for names in ("1.4", "2.2", "4.1"), ("1.6", "3.2", "2.3"):
    runs = [[json.loads(l) for l in open("noisy." + n)] for n in names]
    assert len(runs[0]) == len(runs[1]) == len(runs[2]) > 20
    for lines in zip(*runs):
        for x in lines[1:]:
            assert abs(x["loss"] - lines[0]["loss"]) <= 2e-5 * abs(lines[0]["loss"]), lines
PYTHON
result the_spread_of_replicas_does_not_change_masks $? "$(tail -qn 1 noisy.*)"
for i in "${!model[@]}"; do
    [ "${model[i]}" != --model ] || model[i + 1]='dense(16, activation="relu").dense(3)'
done
start_all 2 --replicas 2 "${all[@]}"
ended 0 0 && cmp -s out.0 losses.2
result the_same_command_gives_the_same_bits $? "$(said)"

# ---- uneven data: files of other sizes, one of them with less than a batch, one worker without any
for i in 0 1 2; do
    "$m" write --out "part-$i" --expr "range($((i == 1 ? 3 : 40 - i))).map(x => {\"a\": cast(x, \"float32\"), \"y\": x % 3})" >/dev/null
done
files='tfrecord("part-*").map(x => parse_example(x, a=float32, y=int64)).map(r => ([r["a"]], r["y"])).batch(6)'
start_all 3 --data "$files" --auto-shard file --epochs 2
ended 0 0 0 && chief_alone && grep -q '"epoch": 2' out.0
result workers_of_uneven_data_stop_together $? "$(said)"
# Worker 0 has 40 rows, so 7 batches of at most 6, each cut for three replicas in sync.
[ "$(grep -c '"step"' out.0)" = 42 ]
result the_longest_share_decides_the_number_of_steps $? "$(said)"

# ---- an input function: each worker reads the shard that it makes of its context, and one ends before the other
rows='range(97).map(i => ([cast(i % 17, "float32") / 17.0, cast(i % 5, "float32"), 1.0], i % 3))'
"$m" train "${model[@]}" --data "$rows.batch(12)" --epochs 2 --seed 1 >one 2>err.0
start_all 2 --from-function --epochs 2 --seed 1 \
    --data "$rows.shard(num_input_pipelines, input_pipeline_id).batch(per_replica_batch_size(12))"
ended 0 0 && chief_alone && python3 - one out.0 <<'PYTHON'
import json, sys
one, two = ([json.loads(l) for l in open(f)] for f in sys.argv[1:])
assert len(one) == len(two) == 20, (len(one), len(two))
for x, y in zip(one, two):
    assert x.keys() == y.keys() and all(abs(x[k] - y[k]) <= 2e-5 * abs(x[k]) for k in x), (x, y)
PYTHON
result workers_shard_by_an_input_function $? "$(said)"

# ---- who prints
workers=2 port=$(free_port) pids=()
model[7]=text
# Without GPUs, which cuda_double/double.sh runs this with.
CUDA_VISIBLE_DEVICES='' start 0 --data "$data" -v; CUDA_VISIBLE_DEVICES='' start 1 --data "$data" -v
ended 0 0 && grep -q 'epoch 1' out.0 && [ ! -s out.1 ] && all_say '2 workers by torchrun, 2 replicas in sync, sums by ring' 0
result the_chief_prints_alone_without_json $? "$(said)"
all_say 'processes sum with ring \(.*\) instead of nccl: rank 0 \(127\.0\.0\.1:[0-9]+\): cpu:0' 0 && ! grep -q 'instead of nccl' err.1
result the_first_says_why_it_is_not_nccl $? "$(said)"
port=$(free_port) pids=()
start 0 --data "$data" --validation "$data" --epochs 3; start 1 --data "$data" --validation "$data" --epochs 3
ended 0 0 && [ "$(grep -c 'AUTO chose DATA' err.0)" = 1 ]
result how_data_are_shared_is_said_once $? "$(said)"
model[7]=json
workers=2 port=$(free_port) pids=()
start 0 --data "$data"; start 1 --data "$data"
ended 0 0 && grep -q '"epoch": 1' out.0 && [ ! -s out.1 ]
result the_chief_of_a_launcher_prints_alone_as_json $? "$(said)"
# Processes that were started separately have separate outputs.
cluster="{\"worker\": [\"127.0.0.1:$(free_port)\", \"127.0.0.1:$(free_port)\"]}" pids=()
rm -f out.* err.*
for i in 0 1; do
    TF_CONFIG="{\"cluster\": $cluster, \"task\": {\"type\": \"worker\", \"index\": $i}}" \
        timeout -k 1 $patience "$m" train "${model[@]}" --data "$data" --metrics accuracy --seed 1 >"out.$i" 2>"err.$i" </dev/null &
    pids[i]=$!
done
ended 0 0 && grep -q '"epoch": 1' out.0 && cmp -s out.0 out.1
result workers_of_tf_config_print_the_same_as_json $? "$(said)"

# ---- differences
workers=2 port=$(free_port) pids=()
start 0 --data "$data"; start 1 --data "${data/batch(32)/batch(16)}"
ended 1 1 && all_say "the data is '.*batch\((32|16)\)' here and '.*batch\((32|16)\)' on rank [01] \(127" 0 1
result other_data_are_refused_by_both $? "$(said)"
port=$(free_port) pids=()
start 0 --data "$data" --seed 1; start 1 --data "$data"
ended 1 1 && all_say "the seed is '(1|none)' here and '(1|none)' on rank" 0 1
result another_seed_is_refused_by_both $? "$(said)"
port=$(free_port) pids=()
start 0 --data "$data" --replicas 2; start 1 --data "$data"
ended 1 1 && all_say "number of replicas of a process is '[12]' here and '[12]' on rank" 0 1
result another_number_of_replicas_is_refused_by_both $? "$(said)"
CUDA_VISIBLE_DEVICES='' start_all 2 --data "$data" --communication nccl
ended 2 2 && all_say 'nccl: rank 0 \(127\.0\.0\.1:[0-9]+\): cpu:0' 0 1
result nccl_without_gpus_is_refused_by_both $? "$(said)"
port=$(free_port) pids=()
start 0 --data "$data" --connect-timeout 1
ended 1 && all_say 'after 1 s, still waiting for rank 1' 0
result a_worker_that_never_comes_is_named $? "$(said)"

# ---- failures of one worker are all workers'
long=(--data "${data/.batch/.repeat().batch}" --steps 1000000)
start_all 3 "${long[@]}"
wait_for '"step": 20,' out.0
kill -9 "$(process 1)"
ended 75 137 75 && all_say 'rank 1 \(127\.0\.0\.1:[0-9]+\) .*at step [0-9]+' 0 2
result a_killed_worker_ends_all $? "$(said)"
start_all 3 --peer-timeout 10 "${long[@]}"
wait_for '"step": 20,' out.0
stopped=$(process 1)
kill -STOP "$stopped"
wait "${pids[0]}"; a=$?
wait "${pids[2]}"; b=$?
kill -CONT "$stopped"
wait "${pids[1]}"; c=$?
[ "$a $b $c" = '75 75 75' ] && all_say 'rank 1 \(127\.0\.0\.1:[0-9]+\) gave no sign of life for 10 s, at step [0-9]+' 0 2
result a_stopped_worker_ends_all $? "$(said)"
start_all 2 "${long[@]}"
wait_for '"step": 20,' out.0
kill -INT "$(process 1)"
ended 1 130 && all_say 'rank 1 \(.*\) failed at step [0-9]+: .*(interrupted|cancelled)' 0
result an_interrupted_worker_ends_all $? "$(said)"

start_all 2 --data 'range(64).map(i => ([1.0], cast(i / 63, "int64") * 7)).batch(8)'
ended 1 1 && all_say 'label 7' 1 && all_say 'rank 1 .* failed at step .*label 7' 0
result a_label_out_of_range_on_one_worker_is_everybodys $? "$(said)"
# A label is named by its row in the global batch, whichever process has it.
for bad in 0 5 9 13 15; do
    wrong="range(64).map(i => ([1.0], 7 if i == 16 + $bad else i % 3)).batch(16)"
    for how in '1 4' '2 2' '4 1'; do
        # shellcheck disable=SC2086
        set -- $how
        start_all "$1" --replicas "$2" --data "$wrong"
        # shellcheck disable=SC2046
        ended $(yes 1 | head -n "$1") && grep -qF "label 7 of row $bad of the batch" err.*
        result "a_label_in_row_${bad}_of_workers_${1}_replicas_$2" $? "$(said)"
    done
done
printf 'spoiled' | dd of=part-2-00000-of-00001.tfrecord bs=1 seek=400 conv=notrunc 2>/dev/null
start_all 3 --data "$files" --auto-shard file
ended 1 1 1 && all_say 'part-2' 2 && all_say 'rank 2 .* failed at step [0-9]+: ' 0 1
result an_error_in_the_data_of_one_worker_is_everybodys $? "$(said)"

# ---- a saved model over workers
"$m" train "${model[@]}" --data "$data" --metrics accuracy --seed 1 --save saved >/dev/null
# use N COMMAND ARGUMENT...: N workers, 2 replicas each
use() {
    local count=$1 i
    port=$(free_port) pids=()
    rm -f out.* err.*
    for ((i = 0; i < count; i++)); do
        RANK=$i WORLD_SIZE=$count MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
            timeout -k 1 $patience "$m" "${@:2}" --replicas 2 >"out.$i" 2>"err.$i" </dev/null &
        pids[i]=$!
    done
}
"$m" evaluate --saved saved --data "$data" >evaluated
"$m" predict --saved saved --data "$data" >predicted
for many in 2 3; do
    use $many evaluate --saved saved --data "$data"
    # shellcheck disable=SC2046
    ended $(yes 0 | head -n $many) && [ ! -s out.1 ] && python3 -c '
import json
a, b = (json.load(open(f)) for f in ("evaluated", "out.0"))
assert a.keys() == b.keys() and all(abs(a[k] - b[k]) <= 2e-5 * abs(a[k]) for k in a), (a, b)'
    result "evaluate_on_${many}_workers" $? "$(cat evaluated; said)"
    use $many predict --saved saved --data "$data"
    # shellcheck disable=SC2046
    ended $(yes 0 | head -n $many) && [ ! -s out.1 ] && python3 -c '
import json
a, b = ([json.loads(l) for l in open(f)] for f in ("predicted", "out.0"))
assert len(a) == len(b) == 403
assert all(abs(x - y) <= 1e-5 for p, q in zip(a, b) for x, y in zip(p, q))'
    result "predict_on_${many}_workers_in_input_order" $? "$(said)"
done

# ---- weights that are not the same everywhere
"$m" train "${model[@]}" --data "$data" --seed 2 --save other >/dev/null
differ='the variable dense/kernel starts with other values on rank 1 \(127\.0\.0\.1:[0-9]+\) than on rank 0 \(127'
workers=2 port=$(free_port) pids=()
start 0 --data "$data" --seed 1 --init saved; start 1 --data "$data" --seed 1 --init other
ended 1 1 && all_say "$differ" 0 1 && ! grep -q '"step"' out.0 out.1
result other_weights_to_begin_with_are_refused_by_both $? "$(said)"
port=$(free_port) pids=()
start 0 --data "$data" --seed 1; start 1 --data "$data" --seed 1 --init other
ended 1 1 && all_say "$differ" 0 1 && ! grep -q '"step"' out.0 out.1
result weights_to_begin_with_on_one_alone_are_refused_by_both $? "$(said)"
for what in evaluate predict; do
    port=$(free_port) pids=()
    rm -f out.* err.*
    for i in 0 1; do
        RANK=$i WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port timeout -k 1 $patience \
            "$m" $what --saved "$([ $i = 0 ] && echo saved || echo other)" --data "$data" >"out.$i" 2>"err.$i" </dev/null &
        pids[i]=$!
    done
    ended 1 1 && all_say "$differ" 0 1 && [ ! -s out.0 ]
    result "${what}_with_other_weights_is_refused_by_both" $? "$(said)"
done

two='range(53).map(i => ([cast(i % 17, "float32") / 17.0, cast(i % 5, "float32"), 1.0],
    {"b": [cast(i % 7, "float32")], "a": i % 3})).batch(16)'
"$m" train --model 'x = input(3); h = x.dense(4, activation="tanh"); a = h.dense(3); b = h.dense(1)' --data "$two" --seed 1 \
    --loss '{"a": sparse_categorical_crossentropy, "b": mse}' --loss-weights '{"b": 0.5}' --metrics b.mae,a.accuracy \
    --optimizer adam --save saved_two >/dev/null
"$m" evaluate --saved saved_two --data "$two" >evaluated
"$m" predict --saved saved_two --data "$two" >predicted
use 2 evaluate --saved saved_two --data "$two"
ended 0 0 && [ ! -s out.1 ] && python3 -c '
import json
a, b = (json.load(open(f)) for f in ("evaluated", "out.0"))
assert list(a) == list(b) == ["eval_" + k for k in ("loss", "a_loss", "b_loss", "b_mae", "a_accuracy")], (a, b)
assert all(abs(a[k] - b[k]) <= 2e-5 * abs(a[k]) for k in a), (a, b)
assert abs(a["eval_loss"] - a["eval_a_loss"] - 0.5 * a["eval_b_loss"]) <= 1e-5 * a["eval_loss"], a'
result evaluate_of_two_outputs_on_2_workers $? "$(cat evaluated; said)"
use 2 predict --saved saved_two --data "$two"
ended 0 0 && [ ! -s out.1 ] && python3 -c '
import json
a, b = ([json.loads(l) for l in open(f)] for f in ("predicted", "out.0"))
assert len(a) == len(b) == 53
assert all(p.keys() == q.keys() == {"a", "b"} and abs(x - y) <= 1e-5 for p, q in zip(a, b) for k in p for x, y in zip(p[k], q[k]))'
result predict_of_two_outputs_on_2_workers_in_input_order $? "$(said)"

# ---- what layers learn of data that workers share
# learn N ARGUMENT...: N workers, all with the same arguments but for LAST on the last of them
learn() {
    local count=$1 i last
    shift
    port=$(free_port) pids=()
    rm -rf out.* err.* learned
    for ((i = 0; i < count; i++)); do
        last=()
        [ $i = $((count - 1)) ] && [ "${LAST-}" ] && last=(--layer "$LAST")
        RANK=$i WORLD_SIZE=$count MASTER_ADDR=127.0.0.1 MASTER_PORT=$port \
            timeout -k 1 $patience "$m" adapt "$@" "${last[@]}" --out learned >"out.$i" 2>"err.$i" </dev/null &
        pids[i]=$!
    done
}
by_elements='range(101).map(i => ([format("w{}", i * i % 17), format("of {}", i % 5)], 1)).shuffle(50).batch(7)'
cp part-0-00000-of-00001.tfrecord part-3-00000-of-00001.tfrecord
by_files='tfrecord("part-[013]-*").map(x => parse_example(x, a=float32, y=int64)).map(r => r["a"] * 1.5)'
while IFS='|' read -r name layer graph; do
    case $graph in
    elements) graph=$by_elements ;;
    files) graph=$by_files ;;
    few) graph="${by_files/013/01}.with_options(auto_shard_policy=\"DATA\")" ;;
    pairs) graph='range(37).map(i => [i * i % 23, 1 - i]).batch(4)' ;;
    esac
    rm -rf alone
    "$m" adapt --data "$graph" --layer "$layer" --out alone
    for many in 2 3; do
        learn $many --data "$graph" --layer "$layer"
        # shellcheck disable=SC2046
        ended $(yes 0 | head -n $many) && python3 -c '
import json, os
(name,) = os.listdir("alone")
a, b = (open(f"{d}/{name}").read() for d in ("alone", "learned"))
if name.endswith("txt"):
    assert a == b and len(a.splitlines()) > 3, (a, b)
else:
    a, b = json.loads(a), json.loads(b)
    assert a.keys() == b.keys()
    assert all(len(a[k]) == len(b[k]) and abs(x - y) <= 1e-12 * max(1, abs(x)) for k in a for x, y in zip(a[k], b[k])), (a, b)'
        result "${name}_on_${many}_workers" $? "$(said; head -c 300 alone/* learned/*)"
    done
done <<'END'
a_vocabulary|lookup()|elements
the_words_of_texts|text_vectorization(max_tokens=9)|elements
moments|normalization()|pairs
moments_of_files|normalization(axis="none")|files
boundaries|discretization(6)|pairs
boundaries_of_files|discretization(4)|files
boundaries_of_fewer_files_than_workers|discretization(5)|few
END
LAST='lookup(max_tokens=3)' learn 2 --data "$by_elements" --layer 'lookup()'
ended 1 1 && all_say 'layer' 0 1 && [ ! -e learned ]
result workers_that_learn_different_things_say_so $? "$(said)"
learn 2 --data 'range(9).map(i => 1.0 / (cast(i, "float32") - 3.0))' --layer 'normalization()'
ended 1 1 && all_say 'a feature is inf' 1 && all_say 'a feature is inf' 0 && [ ! -e learned ]
result what_one_worker_cannot_learn_ends_all $? "$(said)"

# ---- an evaluator next to the cluster
cluster='"cluster": {"worker": ["127.0.0.1:'$(free_port)'"]}'
watch=(--data "$data" --validation "$data" --metrics accuracy --epochs 4 --seed 1)
TF_CONFIG="{$cluster, \"task\": {\"type\": \"evaluator\", \"index\": 0}}" \
    timeout $patience "$m" train "${model[@]}" "${watch[@]}" --callback 'checkpoint("watched/ckpt_{epoch}")' >out.e 2>err.e </dev/null &
evaluator=$!
sleep 0.3
TF_CONFIG="{$cluster, \"task\": {\"type\": \"worker\", \"index\": 0}}" \
    timeout $patience "$m" train "${model[@]}" "${watch[@]}" --callback 'checkpoint("watched/ckpt_{epoch}")' >out.t 2>err.t </dev/null
trained=$?
wait $evaluator && [ $trained = 0 ] && python3 -c '
import json
train = {x["epoch"]: x for x in map(json.loads, open("out.t")) if "val_loss" in x}
seen = [json.loads(l) for l in open("out.e")]
assert [x["epoch"] for x in seen] == [1, 2, 3, 4], seen
for x in seen:
    for k in ("loss", "accuracy"):
        assert abs(x["eval_" + k] - train[x["epoch"]]["val_" + k]) <= 1e-6, (x, train)'
result an_evaluator_evaluates_each_checkpoint_and_ends $? "$(cat err.e out.e err.t)"
TF_CONFIG="{$cluster, \"task\": {\"type\": \"evaluator\", \"index\": 0}}" \
    expect an_evaluator_needs_a_checkpoint_callback 2 '' 'checkpoint' -- "$m" train "${model[@]}" "${watch[@]}"

# ---- TF_CONFIG, and a cluster that is not asked for
pids=()
a=$(free_port) b=$(free_port)
for task in '0 chief 0' '1 worker 0'; do
    # shellcheck disable=SC2086
    set -- $task
    TF_CONFIG="{\"cluster\": {\"chief\": [\"127.0.0.1:$a\"], \"worker\": [\"127.0.0.1:$b\"]}, \"task\": {\"type\": \"$2\", \"index\": $3}}" \
        timeout -k 1 $patience "$m" train "${model[@]}" --data "$data" >"out.$1" 2>"err.$1" </dev/null &
    pids[$1]=$!
done
ended 0 0 && all_say '2 workers by TF_CONFIG' 0
result workers_of_tf_config $? "$(said)"
workers=2 port=$(free_port) pids=()
start 0 --strategy mirrored --data "$data"
ended 0
result mirrored_trains_alone_in_a_cluster $? "$(said)"
finish
