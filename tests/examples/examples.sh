#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tier: plain=full
# Every example, quickstart.sh too, runs and prints what it should.
. "$(dirname "${BASH_SOURCE[0]}")/../expect.sh"
b=$MR_BUILD
runs() { # NAME OUTPUT COMMAND...
    local name=$1 want=$2
    shift 2
    expect "$name" 0 "$want" -- "$@"
}
for script in "$MR_SOURCE"/examples/*.sh "$MR_SOURCE"/examples/guides/*.sh; do
    what=$(sed -n '3s/^# //p' "$script")
    expect "help_of_${script##*/}" 0 ANY -- sh -c 'bash "$1" --help | grep -qF "$2"' sh "$script" "$what"
    expect "unknown_option_of_${script##*/}" 2 '' "unknown option '--what'" -- bash "$script" --what
done
expect example_without_its_program 2 '' "no program '/none'" -- bash "$MR_SOURCE/examples/siamese.sh" /none
expect help_of_free_ports.py 0 ANY -- sh -c 'python3 "$1" --help | grep -q "free_ports.py \[N\]"' sh "$MR_SOURCE/examples/free_ports.py"
"$b/millrace" write --out digits --expr 'range(40).map(x => {"image": "x", "label": x})' >/dev/null
runs first_pipeline "$(seq -s ' ' 0 31; seq -s ' ' 32 39)" "$b/examples/first_pipeline" digits-00000-of-00001.tfrecord
expect first_pipeline_without_files 2 '' usage 'label' -- "$b/examples/first_pipeline"
runs map_callback "$(for i in $(seq 0 9); do echo $((i * i)); done)" "$b/examples/map_callback"
cc -shared -fPIC -Wall -Wextra -Werror -I"$b/include" -I"$b/generated" "$MR_SOURCE/examples/own_op/own_op.c" -o own_op.so ||
    result own_op_compiles 1
runs own_op $'0\n3\n6\n9' "$m" show --load ./own_op.so 'range(10).every(3)'
runs own_op_by_the_environment $'-3\n0' env MILLRACE_PLUGINS=./own_op.so "$m" show 'range(3, -1, -3).map(negated)'
runs own_function 100.0 "$m" show --load=./own_op.so 'from_tensors(212.0).map(x => celsius(x))'
"$m" show --load ./own_op.so --save-after 2 --state own.state 'range(10).every(3)' >/dev/null
runs own_op_goes_on $'6\n9' "$m" show 'range(10).every(3)' --restore own.state --load ./own_op.so
runs own_op_in_the_reference 'every(n)' sh -c "'$m' ops --load ./own_op.so | grep -om1 'every(n)'"
runs own_op_beside_the_service $'0\n2' "$m" show --load ./own_op.so 'range(4).every(2).distribute("local", streams=1)'
expect own_op_with_a_wrong_argument 2 '' 'n must be at least 1' -- "$m" show --load ./own_op.so 'range(3).every(0)'
expect no_plugin_there 1 '' 'gone.so' 'cannot open the shared object' -- "$m" show --load ./gone.so 'range(3)'
expect a_plugin_of_this_directory_without_a_slash 1 '' 'own_op.so' 'write ./own_op.so' -- "$m" show --load own_op.so 'range(3)'
cp own_op.so twice.so
expect a_plugin_twice 1 '' 'twice.so' 'every' -- "$m" show --load ./own_op.so --load ./twice.so 'range(3)'
printf 'int x;\n' >none.c && cc -shared -fPIC none.c -o none.so
expect no_plugin_at_all 1 '' 'none.so' 'mr_plugin_register' -- "$m" show --load ./none.so 'range(3)'
expect load_needs_a_file 2 '' '--load needs FILE' -- "$m" show --load
whole=$("$b/millrace" show 'range(20).shuffle(20, seed=7).batch(4)' | tr -d '[],' | sed 's/$/ /')
runs resume "$whole" sh -c "'$b/examples/resume' | grep -v '^--'"
worker0='worker 0 step 0: [0 2] [4 6]
worker 0 step 1: [8 10] [12 14]
worker 0 step 2: [16 18] []'
worker1='worker 1 step 0: [1 3] [5 7]
worker 1 step 1: [9 11] [13 15]
worker 1 step 2: [17 19] []'
cluster='"cluster": {"worker": ["localhost:1", "localhost:2"]}'
for i in 0 1; do
    want=worker$i
    runs "input_function_on_worker_$i" "${!want}" env \
        TF_CONFIG="{$cluster, \"task\": {\"type\": \"worker\", \"index\": $i}}" "$b/examples/input_function"
done
runs input_function_starts_its_workers "$worker0
$worker1" "$b/examples/input_function"
result service_in_process "$(timeout $patience "$b/examples/service_in_process" >out 2>err && [ "$(head -n 1 out)" = 'sum 499500' ] &&
    grep -q '"job": "sum".*"elements": 100, "finished": true' out; echo $?)" "$(cat out err)"
if command -v python3 >/dev/null; then # also to three processes at once, and to a test
    { for i in 1 2 3; do python3 "$MR_SOURCE/examples/free_ports.py" 300 & done; "$MR_SOURCE/tests/ports.py" 300; wait; } >got
    end=$(cut -f 1 /proc/sys/net/ipv4/ip_local_port_range)
    result no_port_is_given_twice "$(tr ' ' '\n' <got | awk -v end="$end" 'seen[$1]++ || $1 < 1024 || $1 >= end { exit 1 } END { exit NR != 1200 }'; echo $?)"
fi
if [ -x "$b/examples/custom_loop" ]; then
    for n in 1 2; do # the numbers are to have mean 3 and deviation 0.5
        "$b/examples/guides/gan" $n >gan.$n
        result "gan_on_$n" "$(awk '{ exit !($2 > 2.7 && $2 < 3.3 && $4 > 0.25 && $4 < 0.75) }' gan.$n; echo $?)" "$(cat gan.$n)"
    done
    runs custom_loop 'loss of the last step: 0.0000
y = 3.00 a + -2.00 b + 1.00' "$b/examples/custom_loop"
    runs custom_kernel "$(for i in 0 1 2 3; do echo "replica $i: 9.4868"; done)" "$b/examples/custom_kernel"
    if [ -x "$b/examples/custom_kernel_cuda" ] && "$m" devices | grep -q '^cuda:0'; then
        MILLRACE_CUDA_MODULE=$b/millrace-cuda.so runs custom_kernel_on_a_gpu 'replica 0: 3.8730
replica 1: 3.8730' "$b/examples/custom_kernel_cuda"
    fi

    runs callbacks "$(echo 'epoch 1: the loss is the first, the learning rate was 0.02
epoch 2: the loss fell, the learning rate was 0.02'
        for i in 3 4 5; do echo "epoch $i: the loss fell, the learning rate was 0.01"; done)" "$b/examples/callbacks"
    runs saved_model "$(printf '%s\n' 30.00 33.00 36.00 39.00)" "$b/examples/saved_model" line
    result multi_worker "$(timeout $patience bash "$MR_SOURCE/examples/multi_worker.sh" "$m" >out 2>err && grep -q '3 workers by TF_CONFIG, 6 replicas in sync' err &&
        if command -v "${MPIRUN:-mpirun}" >/dev/null; then [ "$(grep -c 'epoch [123]/3  ' out)" = 6 ] && grep -q '3 workers by MPI' err
        else [ "$(grep -c '^epoch' out)" = 3 ]; fi; echo $?)" "$(cat out err)"

    runs coordinator 'y = 2.00 x + -1.00, the loss is less than at first' "$b/examples/guides/coordinator"
    result parameter_servers "$(timeout $patience bash "$MR_SOURCE/examples/parameter_servers.sh" "$m" >out 2>err && grep -q '2 servers, 3 workers' err &&
        [ "$(grep -c '^epoch' out)" = 3 ]; echo $?)" "$(cat out err)"

    runs elastic '1200 records were trained on 2 times in 2 epochs' sh -c "bash '$MR_SOURCE/examples/elastic.sh' '$m' 2>/dev/null"
    if MILLRACE_REMOTE_RETRIES=1 "$m" show 'text_line("http://127.0.0.1:1/a")' 2>&1 | grep -q libcurl; then
        skip s3 "built without libcurl"
    else
        status=0
        BUCKET= timeout $patience bash "$MR_SOURCE/examples/s3.sh" "$m" >out 2>err || status=$?
        if [ $status = 77 ]; then
            skip s3 "$(tail -n 1 err)"
        else
            result s3 "$(grep -qx '400 examples without credentials' out && grep -qx epoch_3 out && ! grep -qx epoch_1 out &&
                grep -q '^eval_loss' out && grep -qx '0 unfinished uploads' out; echo $?)" "status $status $(cat out err)"
        fi
    fi
    runs resnet 'accuracy 1.0000  top_k 1.0000  (80 examples)' \
        sh -c "bash '$MR_SOURCE/examples/resnet.sh' '$m' 2>&1 | sed -n 's/^test: loss [0-9.]*  //p'"

    runs siamese '2 inputs, 69 parameters, learned' sh -c "bash '$MR_SOURCE/examples/siamese.sh' '$m' 2>/dev/null | awk '
        / 0\$/ && (\$1 == \"left\" || \$1 == \"right\") { n++ }
        /^parameters/ { p = \$2 }
        /binary_accuracy/ { sub(/.*binary_accuracy.: /, \"\"); good = \$0 + 0 > 0.9 }
        END { print n \" inputs, \" p \" parameters, \" (good ? \"learned\" : \"not learned\") }'"

    bash "$MR_SOURCE/examples/two_outputs.sh" "$m" >out 2>err
    result two_outputs "$(grep -qx 'output quarter (4)' out && grep -qx 'output distance (1)' out && tail -n 3 out | python3 -c '
import json, sys
epoch, first, second = map(json.loads, sys.stdin)
total = epoch["quarter_loss"] + 2 * epoch["distance_loss"]
assert abs(epoch["loss"] - total) < 1e-5 and epoch["quarter_accuracy"] > 0.9 and epoch["distance_mae"] < 0.1, epoch
assert [list(p) for p in (first, second)] == [["quarter", "distance"]] * 2
assert [max(range(4), key=p["quarter"].__getitem__) for p in (first, second)] == [3, 2]
assert abs(first["distance"][0] - 0.5 ** 0.5) < 0.2 and abs(second["distance"][0] - 0.5) < 0.2
'; echo $?)" "$(cat out err)"

    # quickstart.sh on a small data set: images whose only bright row tells their label.
    mkdir idx
    python3 - <<'PYTHON'
import gzip, struct
for part, n in (("train", 600), ("t10k", 100)):
    labels = [i * 7 % 10 for i in range(n)]
    pixels = bytes(200 if y == label else (x * y + i) % 50 for i, label in enumerate(labels)
                   for y in range(10) for x in range(8))
    with gzip.open(f"idx/{part}-images-idx3-ubyte.gz", "wb") as out:
        out.write(struct.pack(">IIII", 0x803, n, 10, 8) + pixels)
    with gzip.open(f"idx/{part}-labels-idx1-ubyte.gz", "wb") as out:
        out.write(struct.pack(">II", 0x801, n) + bytes(labels))
PYTHON
    quickstart() { # what depends on the machine, and the commands, taken out
        "$MR_SOURCE/examples/quickstart.sh" --program "$b/millrace" --data "$dir/idx" --out "$dir/shards" --epochs 6 2>&1 |
            sed -E -e '/^\$ /d; /^$/d' -e 's/[0-9.]+ s  [0-9]+ examples\/s/T s  N examples\/s/' \
                -e 's/loss [0-9.]+/loss L/g; s/trained on [0-9]+/trained on N/; s/ [0-9.]+ % of the time/ W of the time/; s|[^ ]*/shards|shards|' \
                -e '/^millrace: mirrored, 2 replicas/d' -e '/^epoch [1-5]/s/accuracy [0-9.]+/accuracy A/g' -e 's/[0-9]+ bytes/N bytes/'
    }
    quickstart >trained 2>&1
    runs quickstart "600 records in 4 files: shards/train-*-of-00004.tfrecord
100 records in 4 files: shards/t10k-*-of-00004.tfrecord
$(for i in 1 2 3 4 5; do echo "epoch $i/6  T s  N examples/s  loss L  accuracy A  val_loss L  val_accuracy A  lr 0.001"; done)
epoch 6/6  T s  N examples/s  loss L  accuracy 1.0000  val_loss L  val_accuracy 1.0000  lr 0.001
trained on N examples/s; the devices waited for data W of the time
test: loss L  accuracy 1.0000  (100 examples)
ckpt_5                   epoch 5  step 25  loss L  N bytes
ckpt_6                   epoch 6  step 30  loss L  N bytes  (latest)
input (80)
flatten                      (80)                                0
dense                        (128)                           10368
dense_1                      (10)                             1290
parameters: 11658 (45.5 KiB)
TensorBoard (pip install tensorboard) shows how it went: tensorboard --logdir shards/logs" cat trained
    result quickstart_leaves_logs_for_tensorboard $(ls shards/logs/train/events* shards/logs/validation/events* >/dev/null 2>&1; echo $?)
    "$MR_SOURCE/examples/service.sh" --program "$b/millrace" --data "$dir/idx" --out "$dir/service" --epochs 20 >served 2>&1
    runs service "the losses of all 160 steps are equal" sh -c 'grep -o "the losses of all [0-9]* steps are equal" served || cat served'
fi
for f in "$MR_SOURCE"/examples/*.c "$MR_SOURCE"/examples/*.sh; do
    [ -e "$f" ] || continue
    runs "at_most_100_lines: ${f##*/}" ok sh -c "[ \$(wc -l <'$f') -le 100 ] && echo ok"
done
finish
