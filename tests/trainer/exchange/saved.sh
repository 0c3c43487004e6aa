#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tier: plain=full
# Saved models from the command line: train --save and --init, evaluate, predict, summary.
. "$(dirname "${BASH_SOURCE[0]}")/../../expect.sh"
"$m" train --help >/dev/null 2>&1 || exit 77 # built without the trainer
data='range(10).map(i => ([cast(i, "float32") / 8.0, 1.0], [cast(i, "float32")])).batch(4)'
model='dense(3, activation="relu").dense(1)'
train() { "$m" train --data "$data" --model "$model" --loss mse --optimizer 'sgd(0.01)' --seed 5 --log json "$@"; }

train --metrics mse --epochs 2 --save out/model --eval "$data" >log 2>err
result train_saves $? "$(cat err)"
result files_of_a_saved_model $([ "$(ls -A out out/model | tr '\n' ' ')" = 'out: model  out/model: model.txt training.json weights.safetensors ' ]; echo $?) "$(ls -A out out/model)"
result the_model_is_its_text $([ "$(cat out/model/model.txt)" = "$model" ]; echo $?)
evaluation=$(tail -n 1 log)
for r in 1 2 3; do
    expect "evaluate_gives_what_train_gave_on_$r" 0 "$([ $r = 1 ] && echo "$evaluation" || echo ANY)" -- "$m" evaluate --saved out/model --data "$data" --replicas $r
    "$m" predict --saved out/model --data "$data" --replicas $r >predicted.$r
done
result predict_prints_a_line_an_example $([ "$(wc -l <predicted.1)" = 10 ]; echo $?)
result predict_keeps_the_order_on_replicas "$(python3 -c '
import json
one, two, three = ([json.loads(x)[0] for x in open(f"predicted.{r}")] for r in (1, 2, 3))
assert all(abs(a - b) + abs(a - c) < 1e-5 for a, b, c in zip(one, two, three))'; echo $?)" "$(paste predicted.1 predicted.2 predicted.3)"
result predictions_are_json "$(python3 -c '
import json
for line in open("predicted.1"):
    v = json.loads(line)
    assert isinstance(v, list) and len(v) == 1 and isinstance(v[0], float), v' >err 2>&1; echo $?)" "$(cat err)"
expect evaluate_with_another_loss 0 ANY -- "$m" evaluate --saved out/model --data "$data" --metrics mean mse
result metrics_that_are_asked_for $(echo "$evaluation" | grep -q eval_mse; echo $?)
expect evaluate_needs_labels 1 '' 'labels' -- "$m" evaluate --saved out/model --data 'range(4).map(i => [1.0, 2.0]).batch(2)'
expect predict_names_the_flag 1 '' '--data' 'shape' -- "$m" predict --saved out/model --data 'range(4).map(i => [1.0]).batch(2)'
expect predict_of_float64 1 '' 'float64, this model takes float32; convert them in a map of the pipeline, cast(x, "float32"), or' -- "$m" predict --saved out/model --data 'range(4).map(i => cast([1.0, 2.0], "float64")).batch(2)'
expect evaluate_with_no_loss 2 '' '--loss: line 1, column 1: there is no loss' -- "$m" evaluate --saved out/model --data "$data" --loss nonsense
expect evaluate_with_no_metric 2 '' '--metrics: line 1, column 1: there is no metric' -- "$m" evaluate --saved out/model --data "$data" --metrics mse nonsense
expect saved_is_needed 2 '' '--saved DIR is missing' -- "$m" predict --data "$data"
expect data_are_needed 2 '' '--data EXPR is missing' -- "$m" evaluate --saved out/model
expect a_model_that_is_not_there 1 '' 'nowhere' 'no such saved model' -- "$m" evaluate --saved nowhere --data "$data"
expect export_names_the_file 1 '' 'millrace: nowhere/m.onnx: not found: --onnx: cannot create the file' -- "$m" export --saved out/model --onnx nowhere/m.onnx

# ---- init
train --init out/model --epochs 1 >again 2>err
result init_goes_on_where_the_weights_are $([ "$(tail -n 1 log | tr -dc '0-9.')" ] && python3 -c '
import json
log = [json.loads(x) for x in open("log")]
again = [json.loads(x) for x in open("again")]
assert again[0]["loss"] < log[0]["loss"], (again[0], log[0])'; echo $?) "$(cat err again)"
expect init_of_another_model 1 '' '--init' 'dense/kernel' -- "$m" train --data "$data" --model 'dense(4).dense(1)' --loss mse --optimizer 'sgd(0.01)' --init out/model
mkdir -p other; : >other/letter
expect save_is_looked_at_first 1 '' '--save' 'letter' -- "$m" train --data "$data" --model "$model" --loss mse --optimizer 'sgd(0.01)' --save other
result what_was_there_stays $([ -e other/letter ]; echo $?)
if [ "$(id -u)" != 0 ]; then
    mkdir fixed; chmod a-w fixed
    expect save_into_a_read_only_directory 1 '' 'permission' -- "$m" train --data "$data" --model "$model" --loss mse --optimizer 'sgd(0.01)' --save fixed/model
else
    skip save_into_a_read_only_directory 'root may write anywhere'
fi
# damage FILE: another last byte
damage() { python3 -c 'import sys; b = bytearray(open(sys.argv[1], "rb").read()); b[-1] ^= 1; open(sys.argv[1], "wb").write(b)' "$1"; }
train --epochs 2 --callback 'checkpoint("points/c_{epoch}")' >log 2>err
expect checkpoints_that_are_whole 0 ANY -- "$m" checkpoints points
damage out/model/weights.safetensors
train --optimizer 'adam(0.01)' --callback 'checkpoint("points/d_{epoch}")' >log 2>err
damage points/d_1/optimizer.safetensors
"$m" checkpoints points --json >list 2>err
rc=$?
result a_damaged_checkpoint_is_listed_and_status_1 $([ $rc = 1 ] && [ "$(wc -l <list)" = 3 ] && grep '"d_1".*"whole": false' list | grep -q 'CRC-32C'; echo $?) "$rc $(cat list err)"
expect a_flipped_bit_in_the_weights_is_found 1 '' 'weights.safetensors' 'CRC-32C' -- "$m" evaluate --saved out/model --data "$data"
rm out/model/training.json; mkfifo out/model/training.json
expect a_pipe_is_no_file_of_a_model 1 '' 'pipe' -- timeout -s KILL $patience "$m" evaluate --saved out/model --data "$data"
rm out/model/training.json
printf '{"format": 99, "millrace": "7.0"}' >out/model/training.json
expect a_newer_model_is_refused 1 '' '7.0' 'format 99' -- "$m" evaluate --saved out/model --data "$data"

# ---- adapt, and models that take text
letters='from_tensor_slices(["d", "a", "d", "c", "d", "c"]).map(x => ([x], [cast(length(x), "float32")])).batch(4)'
expect adapt_is_silent 0 '' -- "$m" adapt --data "$letters" --layer 'lookup(max_tokens=3)' --out words
result adapt_writes_a_vocabulary $([ "$(cat words/vocabulary.txt | xargs)" = 'd c' ]; echo $?) "$(cat words/vocabulary.txt)"
"$m" train --data "$letters" --model 'lookup("words").embedding(3, 2).flatten().dense(1)' --loss mse --optimizer adam --seed 1 --save text --eval "$letters" --log json 2>err | tail -n 1 >trained
rm -r words
expect what_was_learned_is_in_the_saved_model 0 "$(cat trained)" -- "$m" evaluate --saved text --data "$letters" --replicas 2
expect adapt_needs_a_layer 2 '' '--layer LAYER is missing' -- "$m" adapt --data "$letters" --out words
expect adapt_names_the_layers 2 '' '--layer: line 1, column 1: expected a layer that learns' -- "$m" adapt --data "$letters" --layer 'dense(2)' --out words
: >plain
expect adapt_names_the_file 1 '' 'millrace: plain/normalization.json: not found' -- "$m" adapt --data 'range(4)' --layer 'normalization()' --out plain
expect adapt_needs_a_graph 2 '' 'nothing' -- "$m" adapt --data 'nothing()' --layer 'lookup()' --out words

# ---- summary
expect summary_of_a_text 0 'input (28, 28, 1)
flatten                      (784)                               0
dense                        (10)                             7850
parameters: 7850 (30.7 KiB)' -- "$m" summary 'flatten().dense(10)' --input 28,28,1
expect summary_as_json 0 '{"layers": [{"name": "dense", "type": "dense", "shape": [2], "parameters": 8}, {"name": "dense_1", "type": "dense", "shape": [1], "parameters": 3}], "parameters": 11}' -- "$m" summary 'input(3).dense(2).dense(1)' --json
expect summary_of_residuals 0 'input (8, 8, 3)
conv2d                       (8, 8, 4)                         112
conv2d_1                     (8, 8, 4)                         148
residual_1                   (8, 8, 4)                           0
conv2d_2                     (8, 8, 2)                          74
residual_2                   (8, 8, 2)                          10
residual                     (8, 8, 2)                           8
parameters: 352 (1.4 KiB)' -- "$m" summary 'input(8, 8, 3).residual(conv2d(4, 3, padding="same").residual(conv2d(4, 3, padding="same")).residual(conv2d(2, 3, padding="same"), projection=true), projection=true)'
expect summary_of_a_residual_as_json 0 '{"layers": [{"name": "dense", "type": "dense", "shape": [2], "parameters": 8}, {"name": "residual", "type": "residual", "shape": [2], "parameters": 8}], "parameters": 16}' -- \
    "$m" summary 'input(3).residual(dense(2), projection=true)' --json
expect summary_needs_a_shape 2 '' '--input' -- "$m" summary 'dense(2)'
expect summary_of_no_shape 2 '' 'not a shape' -- "$m" summary 'dense(2)' --input 28x28
expect summary_of_nothing 2 '' 'give a model' -- "$m" summary
# ---- components
result components_of_every_group "$("$m" components --names | tr '\n' ' ' | grep -q '^dense conv2d .* mse mae .* sgd adam .* exponential_decay .* accuracy .* checkpoint .* terminate_on_nan '; echo $?)"
expect one_name_for_two_components 0 $'{"loss": "mse", "alias": "mean_squared_error", "doc": "Mean of the squared differences.", "params": [], "example": "mse"}\n{"metric": "mse", "alias": "mean_squared_error", "doc": "Mean squared difference of labels and predictions.", "params": [], "example": "mse"}' -- "$m" components --json mean_squared_error
result parameters_of_a_component "$("$m" components sgd | grep -q '^sgd(learning_rate=.*momentum=0.0.*)$'; echo $?)"
expect a_component_nearby 2 '' "'dens'; did you mean 'dense'?" -- "$m" components dens
mkdir no_points
for flag in '' --json; do
    # shellcheck disable=SC2086
    expect "a_directory_without_checkpoints $flag" 0 '' 'no checkpoints in no_points' -- "$m" checkpoints no_points $flag
done
expect no_such_component 2 '' "'nothing'" -- "$m" components dense nothing
expect a_page_of_components_alone 2 '' 'excludes names and other options' -- "$m" components --page dense
expect summary_of_a_bad_model 2 '' 'denso' -- "$m" summary 'denso(2)' --input 3
finish
