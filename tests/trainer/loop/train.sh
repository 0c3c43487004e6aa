#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tier: plain=full asan=full
# millrace train as a user sees it: what is refused before the first step, what is printed.
. "$(dirname "${BASH_SOURCE[0]}")/../../expect.sh"
"$m" train --help >/dev/null 2>&1 || exit 77 # built without the trainer
# train NAME STATUS PATTERN-OF-STDOUT WORD-OF-STDERR FLAG...: both as extended patterns; '' : none
train() {
    local name=$1 status=$2 want=$3 words=$4 rc bad=0
    shift 4
    "$m" train --model 'dense(1)' --loss mse --optimizer 'sgd(0.01)' --log json "$@" >out 2>err </dev/null
    rc=$?
    [ "$rc" = "$status" ] || bad=1
    if [ "$want" ]; then tr '\n' ' ' <out | grep -qE -- "$want" || bad=1; else [ ! -s out ] || bad=1; fi
    if [ "$words" ]; then grep -qE -- "$words" err || bad=1; else [ ! -s err ] || bad=1; fi
    result "$name" $bad "  status $rc (want $status), stdout: $(head -c 300 out), stderr: $(head -c 400 err)"
}
data='range(8).map(i => ([cast(i, "float32") / 8.0], [1.0])).batch(4)'
two='^\{"step": 1, .*\} \{"step": 2, .*\} \{"epoch": 1, .*\} $'

train the_flag_of_keras_has_a_hint 2 '' "'--validation-data'; did you mean '--validation'\?" --data "$data" --validation-data "$data"
train an_epoch_is_two_steps 0 "$two" '' --data "$data"

# ---- what cannot be watched is said once
"$m" train --model 'dense(1)' --loss mse --optimizer 'sgd(0.01)' --log json --epochs 3 --data "$data" --callback 'early_stopping()' \
    --callback 'reduce_lr_on_plateau(monitor="val_mse")' >out 2>err
result what_needs_validation_data_is_said_once "$([ $? = 0 ] && [ "$(wc -l <err)" = 2 ] && grep -q 'early_stopping watches val_loss, but there are no validation data' err &&
    grep -q 'reduce_lr_on_plateau watches val_mse, .* monitor="mse"' err; echo $?)" "$(cat err)"

# ---- lines: each is one write, however fast they come, and says the learning rate at the end of an epoch
cat >packets.py <<'PYTHON'
import os, subprocess, sys
read, write = os.pipe2(os.O_DIRECT) # each write is a packet
child = subprocess.Popen(sys.argv[1:], stdout=write)
os.close(write)
n = 0
while packet := os.read(read, 1 << 16):
    n += 1
    assert packet.endswith(b"\n") and packet.count(b"\n") == 1, packet
assert child.wait() == 0 and n > 600, n
PYTHON
python3 packets.py "$m" train --model 'dense(1)' --loss mse --optimizer 'sgd(0.01)' --log json --data "$data" --epochs 300 --eval "$data" \
    --callback 'print_learning_rate()' >out 2>err
result each_line_of_json_is_one_write $? "$(head -c 500 err)"
train an_epoch_says_the_learning_rate 0 '"epoch": 1, .*"learning_rate": 0\.005\} .*"epoch": 2, .*"learning_rate": 0\.0025\}' '' --data "$data" --epochs 2 \
    --optimizer 'sgd(exponential_decay(0.01, decay_steps=2, decay_rate=0.5))'
"$m" train --model 'dense(1)' --loss mse --optimizer 'sgd(0.25)' --data "$data" --validation "$data" --epochs 2 >out 2>err
result so_does_a_line_of_text "$([ "$(grep -cE '^epoch [12]/2 .*val_loss [0-9.]+  lr 0\.25$' out)" = 2 ]; echo $?)" "$(cat out err)"

# ---- weights: the same as in the data
three='range(12).map(i => ([cast(i, "float32") / 8.0], i % 3)).batch(4)'
classes=(--model 'dense(3)' --loss sparse_categorical_crossentropy --seed 1)
weights() { # NAME WEIGHTS EXPRESSION
    "$m" train "${classes[@]}" --optimizer 'sgd(0.1)' --log json --metrics accuracy --data "$three" --class-weights "$2" --weighted-metrics accuracy >out 2>err &&
        "$m" train "${classes[@]}" --optimizer 'sgd(0.1)' --log json --metrics 'accuracy,weighted(accuracy)' \
            --data "${three/.batch/.map((x, y) => (x, y, $3)).batch}" >want 2>>err && cmp out want && grep -q '"weighted_accuracy"' out
    result "$1" $? "$(cat out err)"
}
weights class_weights_in_order '0.5,2.0,4' 'gather([0.5, 2.0, 4.0], y)'
weights class_weights_of_some '{1: 3.0}' 'gather([1.0, 3.0, 1.0], y)'
weights class_weights_by_name '2:0.25, 0:2' 'gather([2.0, 1.0, 0.25], y)'
for bad in '' 'a' '1:' '1.0,-2.0' '1:1,1:2' '1.0,nan' '1.0,1e39' '99999999:1' '1.0;2.0' '-1:2'; do
    train "class_weights_are_not_[$bad]" 2 '' '--class-weights: .* are not weights of classes' --data "$three" "${classes[@]}" --class-weights="$bad"
done
train class_weights_need_classes 1 '' 'class weights need labels that are class numbers' --data "$data" --class-weights 1.0,2.0

# ---- part of the validation data
"$m" train --model 'dense(1)' --loss mse --optimizer 'sgd(0.0)' --seed 1 --log json --data "$data" --validation "$data.take(1)" >want 2>err
"$m" train --model 'dense(1)' --loss mse --optimizer 'sgd(0.0)' --seed 1 --log json --data "$data" --validation "$data.repeat()" --validation-steps 1 >out 2>err
result validation_steps_are_batches "$(cmp out want && grep -q val_loss out; echo $?)" "$(cat out want err)"

# ---- a saturated output: what Keras gives for it
train a_saturated_output_learns 0 '"step": 1, "epoch": 1, "loss": 40\.0*\} .*"step": 2, .*"loss": 24\.0*\} .*"step": 3, .*"loss": 8\.00033.*"step": 4, .*"loss": 0\.0003' '' \
    --model 'dense(1, activation="sigmoid", use_bias=false, kernel_initializer=constant(40.0))' --loss binary_crossentropy --optimizer 'sgd(16.0)' \
    --data 'range(12).map(i => ([1.0], [0.0])).batch(1)'
train logits_that_are_none_are_warned_of 0 '"loss": 40' 'from_logits=true, but the model ends with sigmoid' \
    --model 'dense(1, activation="sigmoid", use_bias=false, kernel_initializer=constant(40.0))' --loss 'binary_crossentropy(from_logits=true)' \
    --data 'range(1).map(i => ([1.0], [0.0])).batch(1)'

# ---- an input function: each of two replicas takes an element, and they see the slices of one batch
rows='range(18).map(i => ([cast(i, "float32") / 8.0], [1.0]))'
"$m" train --model 'dense(1)' --loss mse --optimizer 'sgd(0.01)' --log json --replicas 2 --data "$rows.batch(6)" >want 2>err
"$m" train --model 'dense(1)' --loss mse --optimizer 'sgd(0.01)' --log json --replicas 2 --from-function \
    --data "$rows.batch(per_replica_batch_size(6))" >out 2>err
[ "$(wc -l <want)" = 4 ] && cmp want out
result an_input_function_makes_the_batch_of_a_replica $? "$(head -c 300 err)"
train its_batch_must_divide 1 '' '5 is not divisible by the 2 replicas' --replicas 2 --from-function \
    --data "$rows.batch(per_replica_batch_size(5))"
train its_text_is_checked_first 2 '' 'line 1, column' --from-function --data 'range(input_pipeline)'

# bfloat16 has 0.1015625 and 0.2001953125 where float32 has 0.1015 and 0.2: their product is the prediction.
for flags in '' --mixed-precision; do
    want=$([ "$flags" ] && echo '0\.02033' || echo '0\.020(29|30)')
    train "a_product$flags" 0 "\"eval_mean\": $want" '' --data 'from_tensors([0.1015], [0.0]).batch(1)' --metrics mean $flags \
        --model 'dense(1, use_bias=false, kernel_initializer=constant(0.2))' --optimizer 'sgd(0.0)' --eval 'from_tensors([0.1015], [0.0]).batch(1)'
done

# A processor that multiplies bfloat16 gives the losses of one that does not, but for rounding.
cnn=(--model 'conv2d(16, 3, activation="relu").conv2d(8, 3, strides=2, padding="same").flatten().dense(24, activation="tanh").dense(3)'
    --loss 'sparse_categorical_crossentropy(from_logits=true)' --optimizer 'adam(0.003)' --epochs 2 --seed 3 --log json --data
    'range(160).map(i => (reshape(sin(cumsum(ones([243])) * cast(i % 13 + 1, "float32") / 10.0), [9, 9, 3]), i * i % 17 % 3)).batch(16)')
"$m" train --mixed-precision "${cnn[@]}" >units 2>err &&
    ONEDNN_MAX_CPU_ISA=AVX512_CORE DNNL_MAX_CPU_ISA=AVX512_CORE "$m" train --mixed-precision "${cnn[@]}" >plain 2>err &&
    "$m" train "${cnn[@]}" >full 2>err && python3 - <<'PYTHON'
import json
units, plain, full = ([json.loads(l) for l in open(f)] for f in ("units", "plain", "full"))
assert len(units) == len(plain) == len(full) > 20
assert max(abs(a["loss"] - b["loss"]) for a, b in zip(units, plain)) < 2e-3
assert any(a["loss"] != b["loss"] for a, b in zip(plain, full))
PYTHON
result bfloat16_with_and_without_instructions_for_it $? "$(cat err)"
# Which of oneDNN's programs multiplied, forward and backward: those of the instructions, in mixed precision alone.
multiplied() { # FLAG...
    CUDA_VISIBLE_DEVICES='' ONEDNN_VERBOSE=1 DNNL_VERBOSE=1 "$m" train "$@" "${cnn[@]}" 2>err |
        sed -n 's/^[a-z]*_verbose,.*exec,cpu,convolution,\([^,]*\),\([^,]*\),.*/\2 \1/p' | sort -u
}
if grep -qw avx512_bf16 /proc/cpuinfo; then
    multiplied --mixed-precision >units && multiplied >full
    [ "$(cut -d ' ' -f 1 units | sort -u | xargs)" = 'backward_data backward_weights forward_training' ] &&
        ! grep -vq bf16 units && [ -s full ] && ! grep -q bf16 full
    result bfloat16_is_multiplied_by_its_instructions $? "$(cat units full err)"
else
    skip bfloat16_is_multiplied_by_its_instructions 'this processor multiplies no bfloat16 (avx512_bf16)'
fi

# ---- before the first step
train eval_files_are_looked_up_first 1 '' 'nowhere\.txt' --data "$data" \
    --eval 'text_line("nowhere.txt").map(x => ([1.0], [1.0])).batch(4)'
train eval_patterns_are_looked_up_first 1 '' 'nowhere-\*' --data "$data" \
    --eval 'tfrecord("nowhere-*").map(x => ([1.0], [1.0])).batch(4)'
train lists_of_files_are_looked_up_first 1 '' 'nowhere' --data "$data" \
    --eval 'list_files("nowhere/*").map(x => ([1.0], [1.0])).batch(4)'
: >there.txt
train files_in_functions_are_looked_up_first 1 '' '--data.*nowhere' \
    --data 'range(8).flat_map(i => text_line(["there.txt", "nowhere.txt"]).map(x => ([1.0], [1.0]))).batch(1)'
train patterns_in_functions_are_looked_up_first 1 '' '--eval.*nowhere-\*' --data "$data" \
    --eval 'range(2).interleave(i => range(2).flat_map(j => tfrecord("nowhere-*"))).map(x => ([1.0], [1.0])).batch(1)'
# Names of columns and members are not files, neither in the graph nor in a function.
"$m" write --out table --format parquet --expr 'range(8).map(i => {"x": cast(i, "float32"), "y": 1.0})' >out 2>err
train columns_are_no_files 0 "$two" '' --data 'parquet("table-*", columns=["x", "y"]).map(r => ([r["x"]], [r["y"]])).batch(4)'
train columns_in_functions_are_no_files 0 "$two" '' --data \
    'list_files("table-*").flat_map(f => parquet(f, columns=["x", "y"], schema={"x": float32, "y": float32})).map(r => ([r["x"]], [r["y"]])).batch(4)'
echo 1 >here.txt
train what_is_computed_is_not_looked_up 0 'eval_loss' '' --data "$data" \
    --eval 'from_tensor_slices(["here.txt"]).flat_map(f => text_line(f)).map(x => ([1.0], [1.0])).batch(4)'
train later_files_of_the_data_are_looked_up_first 1 '' 'nowhere\.txt' \
    --data 'text_line(["here.txt", "nowhere.txt"]).map(x => ([1.0], [1.0])).batch(1)'
train files_that_are_there_are_read 0 'eval_loss' '' --data "$data" \
    --eval 'text_line("here.txt").map(x => ([1.0], [1.0])).batch(4)'
train data_without_batches_of_scalars 1 '' 'component 1 is a scalar.*\.batch\(N\)' --data 'range(8).map(i => ([1.0, 2.0], 1.0))'
train data_without_batches_of_vectors 1 '' 'scalars \(batches of features have shape \[1\].*\.batch\(N\)' --data 'range(8).map(i => ([1.0], [1.0]))'
train data_without_batches_of_tensors 1 '' 'component 1 has 1 rows where component 0 has 3.*\.batch\(N\)' --data 'range(8).map(i => (ones([3, 1]), [1.0]))'
train an_eval_that_cannot_be_distributed_is_found_first 1 '' 'batch the dataset first' --replicas 2 \
    --data "$data" --eval 'range(8).map(i => (1.0, 1.0))'

# ---- what is printed
train empty_data_print_no_epoch 1 '' 'no batch' --data 'range(0).map(i => ([1.0], [1.0])).batch(4)'
train epochs_of_empty_batches_end 1 '"step": 1' 'only empty batches' --data 'from_tensors((zeros([0, 1]), zeros([0, 1])))' \
    --epochs 9223372036854775807
train an_empty_eval_is_found_first 1 '' '--eval.*empty' --data "$data" --eval 'range(0).map(i => ([1.0], [1.0])).batch(4)'
train an_eval_without_batches_is_named 1 '"epoch": 1' '--eval.*no batch' --data "$data" \
    --eval 'range(3).filter(x => x > 5).map(i => ([1.0], [1.0])).batch(4)'
train the_first_nan_is_warned_of 0 '"step": 2, "epoch": 1, "loss": "nan"' 'NaN from step 2 of epoch 1' \
    --data 'range(8).map(i => ([0.0 / cast(4 - i, "float32")], [1.0])).batch(3)' --epochs 2
result the_warning_comes_once $([ "$(grep -c NaN err)" = 1 ]; echo $?) "$(cat err)"

# ---- a run that continues says so
broken=(--model 'dense(1)' --loss mse --optimizer 'sgd(0.01)' --log json --data
    'range(8).map(i => ([0.0 / cast(4 - i, "float32")], [1.0])).batch(1)' --callback 'backup_and_restore("kept", save_freq=1)' --callback 'terminate_on_nan()')
"$m" train "${broken[@]}" >out 2>err
result a_new_run_goes_on_from_nothing $([ $? = 1 ] && ! grep -q 'resuming' err; echo $?) "$(cat err)"
"$m" train "${broken[@]}" >out 2>err
result a_run_that_goes_on_says_from_where $(grep -q '^millrace: resuming from the backup, after step [45], in epoch 1$' err && ! grep -q going out; echo $?) "$(cat out err)"

# ---- strategies
strategies='--seed 1 --epochs 2 --optimizer adam(0.05)'
train one_replica_is_one_device 0 "$two" '' --data "$data" --strategy one_device
for s in default one_device 'mirrored --replicas 3' 'central_storage --replicas 3' \
    'mirrored --replicas 2 --cross-device-ops reduction_to_one_device'; do
    # shellcheck disable=SC2086
    "$m" train --model 'dense(3).dense(1)' --loss mse $strategies --log json --data "$data" --check-replicas --strategy $s >>all 2>>all.err
done
result all_strategies_print_the_same_losses "$(sed 's/\(\.[0-9]\{5\}\)[0-9]*/\1/' all | sort | uniq -c | awk '$1 != 5 { bad = 1 } END { print NR != 6 || bad }')" "$(cat all all.err)"
# What is about processors is asked for without GPUs, which cuda_double/double.sh runs this with.
CUDA_VISIBLE_DEVICES='' train several_replicas_say_how_they_sum 0 '"epoch": 1' 'mirrored, 2 replicas on cpu:0, cpu:1, sums by hierarchical_copy' --data "$data" \
    --replicas 2
train what_was_chosen_is_named 0 '"epoch": 1' 'central_storage, 2 replicas on cpu:0, cpu:1, sums by reduction_to_one_device' --data "$data" \
    --devices cpu:0,cpu:1 --strategy central_storage --cross-device-ops reduction_to_one_device
# One that its module knows is refused for its devices.
CUDA_VISIBLE_DEVICES='' train nccl_needs_gpus "$([ -e "$MR_BUILD/millrace-cuda.so" ] && echo 2 || echo 1)" '' 'nccl' --data "$data" --replicas 2 --cross-device-ops nccl
train one_device_takes_one 2 '' 'found 2' --data "$data" --strategy one_device --replicas 2
train the_default_takes_no_devices 2 '' 'use one_device or mirrored to name devices' --data "$data" --strategy default --devices cpu:1
train a_tpu_is_refused 1 '' 'no TPU backend' --data "$data" --strategy tpu
train parameter_servers_need_a_cluster 2 '' 'at least one task of type ps' --data "$data" --strategy parameter_server

# ---- validation and the length of an epoch
train validation_after_every_epoch 0 '"epoch": 1, "loss": [^,]*, "mse": [^,]*, "val_loss": [^,]*, "val_mse": [^,}]*, "learning_rate": 0\.01\} .*"epoch": 2,.*"val_mse"' '' \
    --data "$data" --validation "$data" --metrics mse --epochs 2
result validation_is_what_evaluation_gives "$(python3 -c '
import json
lines = [json.loads(x) for x in open("out")]
assert abs(lines[-1]["val_loss"] - lines[-1]["val_mse"]) < 1e-6 * lines[-1]["val_loss"], lines[-1]'; echo $?)" "$(cat out)"
train metrics_with_a_comma_between 0 '"mse": [^,]*, "mae": ' '' --data "$data" --metrics mse,mae
train validation_of_another_kind_is_refused_before_training 1 '' 'validation: the data have 1 component;' \
    --data "$data" --validation 'range(3)'
train validation_of_another_shape_too 1 '' 'validation: axis 1 of component 0 is 3' \
    --data 'range(4).map(i => ([1.0], [2.0])).batch(2)' --validation 'range(4).map(i => ([1.0, 2.0, 3.0], [2.0])).batch(2)'
train validation_files_are_looked_up_first 1 '' '--validation.*nowhere\.txt' --data "$data" \
    --validation 'text_line("nowhere.txt").map(x => ([1.0], [1.0])).batch(4)'
train an_endless_validation_is_refused 1 '' 'validation data never end' --data "$data" --validation "$data.repeat()"
others='range(4).map(i => '
for case in '([1.0, 2.0], [2.0])|an example has shape \[2\]' '([i], [2.0])|features are int64' '([1.0], [2.0, 3.0])|label of an example has shape \[2\]' \
    '([1.0], "x")|labels are string' '[1.0]|found 1 component' '([1.0], [1.0], 1.0, 1.0)|found 4 component' '([1.0], [1.0], "w")|sample weights are string'; do
    train "evaluation_is_refused_before_training: ${case%|*}" 1 '' "evaluation: .*${case#*|}" --data "$data" --eval "$others${case%|*}).batch(2)"
done
record='range(4).map(i => {"label": [1.0], "pixels": [cast(i, "float32")]}).batch(2)'
train a_record_has_no_labels 1 '' 'expected \(features, labels\): .map\(r => \(r\["pixels"\], r\["label"\]\)\)' --data "$record"
train a_record_for_an_evaluation_has_none 1 '' 'evaluation: .*expected \(features, labels\): .map\(r => \(r\["pixels"\], r\["label"\]\)\)' --data "$data" --eval "$record"
train a_record_of_an_input_function_has_none 1 '' 'r\["pixels"\], r\["label"\]' --from-function --data "$record"
train a_record_of_other_names_ends_with_the_labels 1 '' 'r\["a"\], r\["z"\]' --data 'range(4).map(i => {"z": [1.0], "a": [1.0]}).batch(2)'
train a_record_of_one_component 1 '' 'expected \(features, labels\): .map\(r => r\["a"\]\)' --data 'range(4).map(i => {"a": ([1.0], [1.0])}).batch(2)'
"$m" train --model 'dense(1)' --loss mse --optimizer 'sgd(0.01)' --data "$data" --save plain_model >out 2>err
"$m" predict --saved plain_model --data "$record" >out 2>err
result a_record_is_no_features $([ $? = 1 ] && grep -qF 'expected features: .map(r => r["pixels"])' err && [ ! -s out ]; echo $?) "$(cat out err)"
train an_endless_evaluation_is_refused 1 '' 'evaluation data never end' --data "$data" --eval "$data.repeat()"
train validation_of_another_dtype_is_refused_before_training 1 '' 'validation: features are int64' --data "$data" --validation "$others([i], [2.0])).batch(2)"
train an_evaluation_may_have_labels_without_an_axis 0 '"eval_loss"' '' --data "$data" --eval "$others([1.0], 2)).batch(2)"
train an_error_of_a_metric_names_it 1 '' 'categorical_accuracy: 2 labels do not match 6 predictions' --data "$others([1.0], i % 3)).batch(2)" \
    --model 'dense(3)' --loss sparse_categorical_crossentropy --metrics categorical_accuracy
data_of_classes='from_tensor_slices([[0.1], [0.2]], [[0.0], [1.0]]).batch(2)'
"$m" train --model 'dense(1, activation="sigmoid")' --loss binary_crossentropy --optimizer sgd --log json --data "$data_of_classes" --validation "$data_of_classes" \
    --eval "$data_of_classes" --metrics 'precision,precision(thresholds=0.4),auc(curve="PR"),mean_squared_error' --callback 'csv_logger("names.csv")' >out 2>err
result metrics_have_one_name_each_everywhere "$(python3 -c '
import json
names = ["precision", "precision_1", "auc", "mean_squared_error"]
step, epoch, evaluation = [json.loads(x) for x in open("out")]
assert list(epoch) == ["epoch", "loss"] + names + ["val_loss"] + ["val_" + x for x in names] + ["learning_rate"], epoch
assert list(evaluation) == ["eval_loss"] + ["eval_" + x for x in names], evaluation
head = open("names.csv").readline().strip().split(",")
assert set(names) < set(head) and "val_auc" in head, head'; echo $?)" "$(cat out err)"
train steps_without_cuda_graphs 0 "$two" '' --data "$data" --no-cuda-graph
train a_wrong_partitioner_is_refused_by_all_strategies 2 '' 'partitioner.*nonsense' --data "$data" --variable-partitioner 'nonsense(3)'
train endless_data_need_steps 1 '' '--steps-per-epoch' --data "$data.repeat()"
train steps_per_epoch_make_an_epoch 0 '^\{"step": 1, .*\} \{"step": 2, .*\} \{"step": 3, .*\} \{"epoch": 1, .*\} \{"step": 4, .*\} \{"step": 5, .*\} \{"step": 6, .*\} \{"epoch": 2, .*\} $' '' \
    --data "$data.repeat()" --steps-per-epoch 3 --epochs 2
train data_that_run_out_end_training 0 '"step": 2, .*"epoch": 1.* $' 'ran out at step 2 of epoch 1' --data "$data" --steps-per-epoch 3 --epochs 2
"$m" train --model 'dense(1)' --loss mse --optimizer 'sgd(0.01)' --data "$data" --validation "$data" --epochs 2 >out 2>err
result a_line_an_epoch_and_a_summary $([ "$(grep -c 'val_loss' out)" = 2 ] && grep -qE 'trained on [0-9]+ examples/s; the devices waited for data [0-9.]+ % of the time' out; echo $?) "$(cat out err)"
ran='sums ran for [0-9.]+ ms per step, of which replicas waited for [0-9.]+ ms: [0-9]+ % overlapped with other work$'
for n in 1 2; do
    "$m" train -v --model 'dense(64).dense(1)' --loss mse --optimizer 'sgd(0.01)' --data "$data" --replicas $n >out 2>err
    result "sums_of_$n" "$([ $? = 0 ] && [ "$(grep -cE "$ran" err)" = $((n - 1)) ] && ! grep -q sums out; echo $?)" "$(cat out err)"
done

# One worker rewrites the graph as several do, and as show --replicas does: of two shuffles of names the first stays.
for i in 0 1 2 3 4 5; do echo $i >of-$i; done
# squares COMMAND...: of the numbers that a command prints, or of a step's loss
squares() {
    "$@" 2>err | python3 -c '
import json
rows = [json.loads(l) for l in open(0)]
print([x["loss"] if "loss" in x else (x["replicas"][0] if "replicas" in x else x)["0"][0][0] ** 2 for x in rows if "epoch" not in x or "step" in x])'
}
one_replica() { # GRAPH [OPTION...]
    local data=$1
    shift
    shown=$(squares "$m" show "$@" --replicas 1 "$data")
    trained=$(squares "$m" train "$@" --data "$data" --model 'dense(1, kernel_initializer="ones", use_bias=false)' --loss mse \
        --optimizer 'sgd(0.0)' --log json)
}
numbers='.interleave(f => text_line(f), cycle_length=1).map(x => ([to_number(x, "float32")], [0.0])).batch(1)'
one_replica "list_files(\"of-*\").shuffle(6, seed=4).shuffle(3, seed=5)$numbers"
same one_worker_shuffles_as_show_replicas "$trained" "$shown"
result it_is_not_the_order_of_the_text "$([ "$shown" != "$(squares "$m" show "list_files(\"of-*\").shuffle(6, seed=4).shuffle(3, seed=5)$numbers")" ]; echo $?)"
one_replica "list_files(\"of-*\").shuffle(6)$numbers" --seed 7
same one_worker_seeds_as_show_replicas "$trained" "$shown"

if { (ulimit -v 800000; "$m" train --help >/dev/null 2>&1); } 2>/dev/null; then
    (ulimit -v 800000; CUDA_VISIBLE_DEVICES='' "$m" train --model 'dense(1)' --loss mse --optimizer 'sgd(0.01)' --data "$data" >out 2>err)
    result a_small_address_space_is_warned_of $(grep -q 'limited to 781 MiB (ulimit -v)' err; echo $?) "$(cat out err)"
    # Too small: an error, whichever of its libraries finds no memory. How small that is depends on the machine.
    said=1
    for kib in 100000 130000 200000 300000 400000 500000; do
        (ulimit -v $kib; CUDA_VISIBLE_DEVICES='' "$m" train --model 'conv2d(4, 3).flatten().dense(1)' --loss mse --optimizer 'sgd(0.01)' --replicas 2 \
            --data 'range(64).map(i => (ones([8, 8, 1]), [1.0])).batch(16)' >out 2>err)
        rc=$?
        [ $rc = 0 ] || [ $rc = 1 ] || break
        grep -q 'resource exhausted' err && said=0
    done
    result training_ends_with_an_error_without_address_space $([ $rc -lt 2 ] && [ $said = 0 ]; echo $?) "$kib KiB: status $rc $(cat out err)"
else
    skip a_small_address_space_is_warned_of 'sanitizers take more'
fi
train an_error_names_its_flag 2 '' '--loss: line 1, column 1' --data "$data" --loss ''
"$m" train --data "$data" --model 'dense(' --loss mse --optimizer sgd 2>err
result its_caret_is_below_the_place "$([ "$(cat err)" = 'millrace: invalid argument: --model: line 1, column 7: expected a value, found the end of the text
  dense(
        ^' ]; echo $?)" "$(cat err)"
train an_error_names_its_callback 2 '' '--callback: line 1, column 1: there is no callback' --data "$data" --callback 'nonsense()'

# ---- TF_CONFIG
export TF_CONFIG='{"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 0}}'
train an_address_that_cannot_be_looked_up_is_named 1 '' 'cannot look up the host "a"' --data "$data"
export TF_CONFIG='{"cluster": {"worker": ["a:1"], "ps": ["b:1"]}, "task": {"type": "ps", "index": 0}}'
train a_parameter_server_is_refused 1 '' 'ps' --data "$data"
export TF_CONFIG='{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}}'
train a_cluster_of_one_trains 0 "$two" '' --data "$data"
export TF_CONFIG='{"cluster": '
train a_malformed_cluster_is_refused 2 '' 'TF_CONFIG' --data "$data"
export TF_CONFIG='{"cluster": {"chief": ["127.0.0.1:9"], "worker": ["127.0.0.1:9"]}, "task": {"type": "worker", "index": 0}}'
train two_tasks_of_one_address_are_refused 2 '' 'cluster.chief\[0\] and cluster.worker\[0\]' --data "$data"
unset TF_CONFIG
"$m" train --model 'dense(1)' --loss mse --optimizer 'sgd(0.01)' --data "$data.map((x, y) => (x, y * (0.0 / 0.0)))" >out 2>err
result nan_has_no_sign_in_the_log $(grep -q 'loss nan' out; echo $?) "$(cat out err)"
train a_bound_is_printed_in_full 2 '' 'at most 0.9999999, not 1' --data "$data" --optimizer 'adam(beta_1=1)'

# ---- a trace
train a_trace_is_written 0 '"epoch": 2' '' --data "$data" --epochs 2 --validation "$data" --trace trace.json
result a_trace_has_the_operations "$(python3 -c '
import json
events = json.load(open("trace.json"))["traceEvents"]
spans = [e for e in events if e["ph"] == "X"]
assert {"batch", "map", "range"} <= {e["name"] for e in spans} and all(e["dur"] >= 0 for e in spans), events' 2>&1; echo $?)" "$(head -c 500 trace.json)"
result a_trace_leaves_nothing_else $([ ! -e trace.json.partial ]; echo $?)
# Finds in the trace of `train`, from the beginning of a step's submission to that of the next one in the same
# epoch, calls that synchronise with a device, and waits for the results of the step just submitted.
cat >between.py <<'PY'
import json, sys
events = json.load(open(sys.argv[1]))["traceEvents"]
rows = {(e["pid"], e["tid"]): e["args"]["name"] for e in events if e["name"] == "thread_name"}
spans = [e for e in events if e["ph"] == "X" and e["cat"] in ("work", "wait", "sync")]
for e in spans:
    e["row"] = rows[e["pid"], e["tid"]]
    e["end"] = e["ts"] + e["dur"]
of = lambda name, row: {e["args"]["step"]: e for e in spans if e["name"] == name and e["row"] == row}
for r in range(2):
    for name, row in ("enqueue", "host"), ("step", "stream"), ("results", "stream"):
        assert sorted(of(name, f"replica {r}: {row}")) == list(range(1, 41)), (r, name, row)
sums = {**of("all-reduce", "replica 0: sums"), **of("all-reduce", "replica 1: sums")} # a small one is made by either
assert sorted(sums) == list(range(1, 41)) and all(e["args"]["bytes"] > 0 for e in spans if e["name"] == "all-reduce")
assert {"input", "batch_result", "epoch_end", "validation"} <= {e["name"] for e in spans if e["row"] == "loop"}
queued = of("enqueue", "replica 0: host")
collected = of("results", "loop")
syncs = waits = 0
for step in set(range(6, 40)) - {20}: # the first ones make things, the 20th ends an epoch
    begin, end = queued[step]["ts"], queued[step + 1]["ts"]
    between = [e for e in spans if begin <= e["ts"] < end]
    syncs += sum(e["cat"] == "sync" for e in between)
    waits += any(e["cat"] == "wait" and e["name"] == "results" and e["args"]["step"] == step for e in between)
print("in order" if all(collected[k]["end"] <= queued[k + 1]["ts"] for k in range(1, 40)) else "ahead",
      syncs > 0, waits)
PY
steps='range(80).map(i => ([cast(i, "float32") / 80.0], [1.0])).batch(4)'
train a_trace_of_two_replicas_is_written 0 '"epoch": 2' 'mirrored' --data "$steps" --epochs 2 --replicas 2 --validation "$data" --trace trace.json
result nothing_waits_between_steps "$(python3 between.py trace.json 2>&1 | grep -q ' False 0$'; echo $?)" "$(python3 between.py trace.json 2>&1)"
train a_trace_with_checkpoints_is_written 0 '"epoch": 2' 'mirrored' --data "$steps" --epochs 2 --replicas 2 --validation "$data" --trace trace.json \
    --callback 'checkpoint("saved", save_freq=1)'
result a_checkpoint_of_each_step_waits_for_it "$(python3 between.py trace.json 2>&1 | grep -q '^in order True'; echo $?)" "$(python3 between.py trace.json 2>&1)"
result a_trace_shows_checkpoints "$([ "$(grep -c '"name":"checkpoint"' trace.json)" -ge 40 ] && grep -q '"callback":"checkpoint"' trace.json; echo $?)" "$(head -c 500 trace.json)"
train a_trace_that_cannot_be_written_is_found_first 1 '' '--trace' --data "$data" --trace nowhere/trace.json

# ---- the bar
unknown='range(8).filter(x => true).map(i => ([1.0], [1.0])).batch(2)'
on_terminal() { # FLAG...
    script -qec "$m train --model 'dense(1)' --loss mse --optimizer 'sgd(0.01)' $*" /dev/null </dev/null |
        tr '\r' '\n' >out 2>&1
}
if command -v script >/dev/null; then
    on_terminal --data "'$unknown'" --epochs 2
    result the_first_epoch_tells_the_length_of_the_second $(grep -q 'epoch 2/2 \[=*\] 4/4' out &&
        ! grep -q 'epoch 1/2 \[' out; echo $?) "$(cat -v out | head -20)"
    seq 400000 >lines.txt
    on_terminal --data "'text_line(\"lines.txt\").filter(x => true).map(i => ([1.0], [1.0])).batch(1000)'"
    result bytes_read_tell_how_far_the_first_epoch_is $(grep -qE 'epoch 1 \[=+\.+\]  step 1  [0-9]+ s left' out; echo $?) "$(cat -v out | head -20)"
    on_terminal --data "'text_line(\"here.txt\").repeat(9).filter(x => true).map(i => ([1.0], [1.0])).batch(4)'"
    result bytes_tell_nothing_of_files_read_twice $(grep -qE 'epoch 1  step' out; echo $?) "$(cat -v out | head -20)"
    on_terminal --data "'$unknown'" --steps 3
    result steps_tell_how_far_training_is $(grep -q '\[=*\] 3/3' out; echo $?) "$(cat -v out | head -20)"
    on_terminal --data "'$data'"
    result the_bar_shows_rate_and_waiting $(grep -qE 'lr 0.01  waiting [0-9]+ %' out; echo $?) "$(cat -v out | head -20)"
    result a_known_length_shows_from_the_start $(grep -q 'epoch 1 \[=*\.*\] 1/2' out; echo $?) "$(cat -v out | head -20)"
fi
finish
