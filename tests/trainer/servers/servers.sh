#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tier: plain=full tsan=full
# Training by parameter servers, in processes: what it computes, workers that are killed, a parameter
# server that is lost, and what is refused. Nothing here depends on how long anything takes.
. "$(dirname "${BASH_SOURCE[0]}")/../../expect.sh"
"$m" train --help >/dev/null 2>&1 || exit 77 # built without the trainer

declare -A pids
# cluster N_PS N_WORKERS: chooses the addresses
cluster() {
    local ports
    read -ra ports < <("$MR_SOURCE/tests/ports.py" $(($1 + $2)))
    n_ps=$1 n_workers=$2
    described=$(python3 - "$1" "${ports[@]}" <<'PYTHON'
import json, sys
n, at = int(sys.argv[1]), ["127.0.0.1:" + p for p in sys.argv[2:]]
print(json.dumps({"ps": at[:n], "worker": at[n:]}))
PYTHON
    )
    coordinator="{\"cluster\": $described}"
}
# server TYPE INDEX: starts it
server() {
    : >"out.$1$2"
    TF_CONFIG="{\"cluster\": $described, \"task\": {\"type\": \"$1\", \"index\": $2}}" \
        "$m" server --gone 3600 ${any_user:+--any-user} >"out.$1$2" 2>>"err.$1$2" </dev/null &
    pids[$1$2]=$!
}
# ready TYPE INDEX: waits until it serves
ready() { while_runs "${pids[$1$2]}" grep -q ^ready "out.$1$2"; }
servers() {
    local i
    rm -f err.*
    for ((i = 0; i < n_ps; i++)); do server ps "$i"; done
    for ((i = 0; i < n_workers; i++)); do server worker "$i"; done
}
# all_ended: true if each ended with status 0
all_ended() {
    local k bad=0
    until_true are_over || kill -9 "${pids[@]}" 2>/dev/null
    for k in "${!pids[@]}"; do wait "${pids[$k]}" || bad=1; done
    pids=()
    return $bad
}
are_over() {
    local k
    for k in "${!pids[@]}"; do is_over "${pids[$k]}" || return 1; done
}
kill_all() {
    local k
    for k in "${!pids[@]}"; do kill -9 "${pids[$k]}" 2>/dev/null; wait "${pids[$k]}" 2>/dev/null; done
    pids=()
}
train() { TF_CONFIG=$coordinator "$m" train "$@" </dev/null; }
said() { tail -qn 3 err err.* out | head -c 1500; }

data='range(96).map(i => ([cast(i % 3, "float32") / 3.0, cast(i % 7, "float32") / 7.0], i % 3)).repeat().batch(16)'
# What it ends with shows the loss of the whole set.
check='range(96).map(i => ([cast(i % 3, "float32") / 3.0, cast(i % 7, "float32") / 7.0], i % 3)).batch(96)'
model='input(2).dense(16, activation="relu", kernel_regularizer=l2(0.001)).batch_norm().dropout(0.2).dense(3)'
how=(--data "$data" --validation "$check" --loss 'sparse_categorical_crossentropy(from_logits=true)'
    --metrics accuracy --seed 1 --log json)
plain='input(2).dense(16, activation="relu").dense(3)'

# agree LINES TOLERANCE: want and out have as many, with the same numbers but for rounding, which a server's
# processor does otherwise than a GPU
agree() {
    python3 - "$1" "$2" <<'PYTHON'
import json, sys
a, b = ([json.loads(line) for line in open(f)] for f in ("want", "out"))
assert len(a) == len(b) == int(sys.argv[1]), (len(a), len(b))
for x, y in zip(a, b):
    assert x.keys() == y.keys(), (x, y)
    for k in x:
        assert abs(x[k] - y[k]) <= float(sys.argv[2]) * abs(x[k]), (x, y)
PYTHON
}

# ---- a worker alone makes the steps of one_device
for optimizer in 'adam(0.01)' 'sgd(exponential_decay(0.1, decay_steps=7, decay_rate=0.9), momentum=0.9)'; do
    args=(--model "$model" --optimizer "$optimizer" "${how[@]}" --epochs 3 --steps-per-epoch 9)
    "$m" train --strategy one_device "${args[@]}" >want 2>err
    cluster 3 1
    servers
    train --strategy parameter_server "${args[@]}" >out 2>err
    rc=$?
    agree 30 1e-4
    result "a_worker_alone_makes_the_steps_of_one_device_${optimizer%%(*}" $((rc + $?)) "$(said)"
    all_ended
    result "the_servers_end_with_training_${optimizer%%(*}" $? "$(said)"
done

# ---- the data of a worker have six batches
cluster 1 1
servers
train --strategy parameter_server --model "$plain" --optimizer 'adam(0.01)' "${how[@]}" --data "${data/.repeat()/}" --steps 15 >out 2>err
rc=$?
[ $rc = 0 ] && [ "$(grep -c '"step"' out)" = 15 ]
result a_worker_goes_over_its_data_again_and_again $? "status $rc $(said)"
# After a failure they wait for the next coordinator.
if [ $rc = 0 ]; then all_ended; else kill_all; fi

# ---- pieces of variables on several servers; gradients of few rows
words='range(160).map(i => ([i * 7 % 50, i % 50], i % 3)).repeat().batch(8)'
table='input(2).embedding(50, 6).flatten().dense(7, activation="relu").dense(3)'
for cut in 'fixed_shards(3)' 'min_size(64, 5)' 'max_size(100)'; do
    args=(--model "$table" --optimizer 'adam(0.01)' --data "$words" --seed 1 --log json --steps 40
        --loss 'sparse_categorical_crossentropy(from_logits=true)')
    "$m" train --strategy one_device "${args[@]}" >want 2>err
    cluster 3 1
    servers
    train --strategy parameter_server --variable-partitioner "$cut" "${args[@]}" --callback 'checkpoint("cut")' >out 2>err
    rc=$?
    agree 41 1e-5 2>>err
    result "variables_cut_by_${cut%%(*}_train_the_same" $((rc + $?)) "$(said)"
    all_ended
    result "the_servers_of_${cut%%(*}_end" $? "$(said)"
done

# ---- of a large embedding the rows that a step reads are pulled, and no others
cat >counts.py <<'PYTHON'
import os, socket, sys, threading
at, to = (("127.0.0.1", int(a)) for a in sys.argv[1:])
door, total, lock = socket.create_server(at), 0, threading.Lock()
def carry(a, b):
    global total
    while data := a.recv(65536):
        with lock:
            total += len(data)
            with open("carried.new", "w") as f:
                f.write(str(total))
            os.replace("carried.new", "carried")
        b.sendall(data)
    b.shutdown(socket.SHUT_WR)
while True:
    a, b = door.accept()[0], socket.create_connection(to)
    for pair in (a, b), (b, a):
        threading.Thread(target=carry, args=pair, daemon=True).start()
PYTHON
words='range(4000).map(i => ([i * 7 % 20000, 19999 - i % 20000], i % 3)).repeat().batch(8)'
args=(--model 'input(2).embedding(20000, 8).flatten().dense(3)' --optimizer 'sgd(0.1)' --data "$words" --seed 1 --log json
    --steps 40 --loss 'sparse_categorical_crossentropy(from_logits=true)')
"$m" train --strategy one_device "${args[@]}" >want 2>err
cluster 1 1
servers
ready ps 0
real=$(sed -n 's/^ready .*://p' out.ps0) door=$("$MR_SOURCE/tests/ports.py")
python3 counts.py "$door" "$real" &
between=$!
TF_CONFIG="{\"cluster\": ${described/":$real\""/":$door\""}}" timeout $patience "$m" train --strategy parameter_server "${args[@]}" \
    >out 2>err </dev/null
rc=$?
all_ended
kill -9 $between
wait $between 2>/dev/null
# The table has 640000 bytes, and travels whole to the server and back.
cmp want out >>err && [ $rc = 0 ] && [ "$(cat carried)" -lt 3000000 ]
result the_rows_that_a_step_reads_are_pulled $? "status $rc, $(cat carried) bytes $(said)"

# ---- losses of two outputs, in mixed precision
args=(--data 'range(160).map(i => ([cast(i % 9, "float32") / 9.0, 1.0], {"b": [cast(i % 4, "float32")], "a": i % 3})).repeat().batch(8)'
    --model 'x = input(2); h = x.dense(6, activation="tanh"); a = h.dense(3); b = h.dense(1)' --optimizer 'adam(0.01)' --seed 1
    --loss '{"a": sparse_categorical_crossentropy, "b": mse}' --loss-weights '{"b": 0.25}' --metrics b.mae,a.accuracy
    --mixed-precision --log json --epochs 2 --steps-per-epoch 20)
"$m" train --strategy one_device "${args[@]}" >want 2>err
cluster 2 1
servers
train --strategy parameter_server "${args[@]}" >out 2>err
rc=$?
cmp want out >>err && grep -q '"a_loss": .*"b_loss": .*"b_mae": .*"a_accuracy"' out
result two_outputs_in_mixed_precision_train_the_same $((rc + $?)) "$(said)"
all_ended
result the_servers_of_two_outputs_end $? "$(said)"

# ---- two servers, three workers, which are killed and started again while they train
cluster 2 3
servers
args=(--strategy parameter_server --model "$plain" --optimizer 'adam(0.01)' "${how[@]}" --epochs 3
    --steps-per-epoch 150)
train "${args[@]}" --callback 'checkpoint("kept")' --keep-servers >calm 2>err
rc=$?
result "three_workers_train" $rc "$(said)"
: >out # not that of the run before
mkfifo lines
exec 7<>lines 8<lines 9>lines 7>&-
python3 -c 'import fcntl; fcntl.fcntl(8, 1031, 4096)' # F_SETPIPE_SZ: training cannot run far ahead of what is read
train "${args[@]}" --callback 'checkpoint("stormy")' >&9 2>err 8<&- 9>&- &
training=$!
exec 9>&- # whose end is now training's
killed=0 lines=0
while IFS= read -r line <&8; do
    echo "$line" >>out
    [ $((++lines % 30)) = 0 ] || continue
    i=$((RANDOM % n_workers))
    kill -9 "${pids[worker$i]}"
    wait "${pids[worker$i]}" 2>/dev/null
    killed=$((killed + 1))
    server worker $i 8<&-
    [ $((RANDOM % 2)) = 0 ] || ready worker $i
done
exec 8<&-
end_of $training
rc=$?
python3 - calm out stormy $killed <<'PYTHON'
import json, os, sys
runs = [[json.loads(line) for line in open(f)] for f in sys.argv[1:3]]
for lines in runs:
    assert [x["step"] for x in lines if "step" in x] == list(range(1, 451)), "steps are missing"
    epochs = [x for x in lines if "step" not in x]
    assert len(epochs) == 3 and epochs[-1]["val_accuracy"] > 0.9, epochs
    assert epochs[-1]["loss"] < 0.5 * epochs[0]["loss"], epochs
assert int(sys.argv[4]) >= 1, "nothing was killed"
# Every step's gradients were applied: once, or again where a worker died with it.
last = sorted(os.listdir(sys.argv[3]))
states = [json.load(open(os.path.join(d, f))) for d, _, fs in os.walk(sys.argv[3]) for f in fs if f == "state.json"]
made = max(s["iterations"] for s in states)
assert 450 <= made <= 450 + int(sys.argv[4]), made
PYTHON
result workers_may_be_killed_and_come_back $((rc + $?)) "killed $killed; $(said)"
grep -q 'is lost' err
result a_lost_worker_is_logged $? "$(said)"
kill_all

# ---- a parameter server that is lost, and a restart from the backup
cluster 2 2
servers
args=(--strategy parameter_server --model "$plain" --optimizer 'adam(0.01)' "${how[@]}" --epochs 2
    --steps-per-epoch 20000 --callback 'backup_and_restore("backup", save_freq=50)')
: >out
train "${args[@]}" >out 2>err &
training=$!
while_runs $training grep -q '"step": 120,' out
kill -9 "${pids[ps1]}"
wait "${pids[ps1]}" 2>/dev/null
end_of $training
rc=$?
[ $rc = 75 ] && grep -qE 'parameter server 1 \(127\.0\.0\.1:[0-9]+\)' err
result a_lost_parameter_server_ends_training $? "status $rc $(said)"
server ps 1
reached=$(tail -n 1 out | sed 's/.*"step": \([0-9]*\).*/\1/')
train "${args[@]}" --steps $((reached + 100)) >out 2>err
rc=$?
first=$(sed -n 's/.*"step": \([0-9]*\).*/\1/p' out | head -n 1)
[ $rc = 0 ] && [ "$first" -gt 100 ] && [ "$first" -le $((reached + 1)) ] && grep -q '"epoch": 1, "loss"' out
result a_restart_goes_on_from_the_backup $? "status $rc, first $first of $reached $(said)"
all_ended
result servers_outlive_training_that_failed $? "$(said)"

# ---- training that is stopped continues with the same servers
cluster 1 1
servers
args=(--strategy parameter_server --model "$plain" --optimizer 'adam(0.01)' "${how[@]}" --epochs 1
    --steps-per-epoch 20000 --callback 'backup_and_restore("stopped")')
: >out
train "${args[@]}" >out 2>err &
training=$!
while_runs $training grep -q '"step": 20,' out
kill -TERM "$(pgrep -P $training || echo $training)"
end_of $training
rc=$?
reached=$(sed -n 's/.*"step": \([0-9]*\).*/\1/p' out | tail -n 1)
train "${args[@]}" --steps $((reached + 5)) >out 2>err
rc=$rc$?
[ $rc = 1430 ] && [ "$(grep -c '"step"' out)" = 5 ]
result stopped_training_goes_on $? "status $rc, reached $reached $(said)"
all_ended
result its_servers_end_then $? "$(said)"

# ---- a worker that training did without hears of its end, or that it did not is said
cluster 1 2
servers
ready worker 0 && ready worker 1
kill -STOP "${pids[worker1]}"
: >out
train --strategy parameter_server --model "$plain" --optimizer sgd "${how[@]}" --epochs 1 --steps-per-epoch 3 >out 2>err &
training=$!
while_runs $training grep -q '"epoch"' out
kill -CONT "${pids[worker1]}"
end_of $training
rc=$?
grep -q 'worker 1 (127.0.0.1:[0-9]*) could not be informed that training has ended' err && kill -9 "${pids[worker1]}" && unset 'pids[worker1]'
all_ended
result a_worker_that_is_late_ends_too $((rc + $?)) "$(said)"
cluster 1 2
server ps 0
server worker 1
expect a_worker_that_never_came_is_named 0 ANY 'worker 0' 'could not be informed' -- env TF_CONFIG="$coordinator" \
    "$m" train --strategy parameter_server --model "$plain" --optimizer sgd "${how[@]}" --epochs 1 --steps-per-epoch 3
all_ended
result the_others_end_then $? "$(said)"

# ---- a worker that alone cannot reach a parameter server: its steps are made by others
# The first connection is the coordinator's. The second is cut in the midst of the steps, the third stays, others are refused.
cat >between.py <<'PYTHON'
import socket, sys, threading
at, to = (("127.0.0.1", int(a)) for a in sys.argv[1:3])
door, most = socket.create_server(at), int(sys.argv[3])
def carry(a, b, limit):
    try:
        while limit > 0 and (data := a.recv(65536)):
            b.sendall(data)
            limit -= len(data)
    except OSError:
        pass
    for s in a, b:
        try:
            s.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
n = 0
while True:
    a, n = door.accept()[0], n + 1
    if n > most:
        a.close()
        continue
    b = socket.create_connection(to)
    for pair in (a, b), (b, a):
        threading.Thread(target=carry, args=(*pair, 4000 if n == 2 else 1 << 60), daemon=True).start()
PYTHON
cluster 1 2
any_user=1 # otherwise the local socket would bypass the proxy
servers
any_user=
ready ps 0
real=$(sed -n 's/^ready .*://p' out.ps0) door=$("$MR_SOURCE/tests/ports.py")
python3 between.py "$door" "$real" 3 &
between=$!
: >out
described=${described/":$real\""/":$door\""}
TF_CONFIG="{\"cluster\": $described}" "$m" train --strategy parameter_server --model "$plain" --optimizer sgd --data "$data" \
    --loss 'sparse_categorical_crossentropy(from_logits=true)' --log json --epochs 1 --steps-per-epoch 1000000 >out 2>err </dev/null &
training=$!
is_cut() { grep -q 'worker [01] (.*) is cut off: .*parameter server 0' err; }
while_runs $training is_cut
reached=$(grep -c '"step"' out)
goes_on() { [ "$(grep -c '"step"' out)" -gt $((reached + 50)) ]; }
while_runs $training goes_on
kill -TERM $training
end_of $training
rc=$?
kill -9 $between
wait $between 2>/dev/null
is_cut && goes_on && [ $rc = 143 ]
result a_worker_that_is_cut_off_ends_nothing $? "status $rc $(said)"
kill_all
# Where it is the only one, training ends in the end.
cluster 1 1
servers
ready ps 0
real=$(sed -n 's/^ready .*://p' out.ps0) door=$("$MR_SOURCE/tests/ports.py")
python3 between.py "$door" "$real" 1 &
between=$!
described=${described/":$real\""/":$door\""}
expect training_ends_where_all_workers_are_cut_off 75 '' 'no worker can run a step; worker 0' 'is cut off' 'parameter server 0' -- \
    env TF_CONFIG="{\"cluster\": $described}" "$m" train --strategy parameter_server --model "$plain" --optimizer sgd \
    --data "$data" --loss 'sparse_categorical_crossentropy(from_logits=true)' --epochs 1 --steps-per-epoch 10
kill -9 $between
wait $between 2>/dev/null
kill_all

# ---- an input function
# Only worker 1 has invalid labels: each has what the function makes of its number.
cluster 1 2
servers
train --strategy parameter_server --model "$plain" --optimizer sgd --from-function --steps 1000000 \
    --data 'range(8).map(i => ([1.0, 2.0], input_pipeline_id * (num_input_pipelines + 5))).repeat().batch(per_replica_batch_size(8))' \
    --loss 'sparse_categorical_crossentropy(from_logits=true)' >out 2>err
rc=$?
[ $rc = 1 ] && grep -qE 'worker 1 \(127.*label 7' err
result a_worker_has_the_input_of_its_number $? "status $rc $(said)"
kill_all

# ---- errors
cluster 1 1
servers
train --strategy parameter_server --model "$plain" --optimizer sgd --data 'range(8).map(i => ([1.0, 2.0], i)).repeat().batch(8)' \
    --loss 'sparse_categorical_crossentropy(from_logits=true)' --steps 5 >out 2>err
rc=$?
[ $rc = 1 ] && grep -qE 'worker 0 \(127.*label [3-7]' err
result a_bad_label_is_reported_with_its_worker $? "status $rc $(said)"
expect training_needs_its_steps 1 '' 'steps-per-epoch' -- env TF_CONFIG="$coordinator" "$m" train --strategy parameter_server \
    --model "$plain" --optimizer sgd --loss mse --data "$data"
kill_all
expect a_server_that_does_not_come_is_named 1 '' 'still waiting for parameter server 0' -- env TF_CONFIG="$coordinator" "$m" train \
    --strategy parameter_server --model "$plain" --optimizer sgd --loss mse --data "$data" --steps 1 --connect-timeout 1
expect a_task_that_serves_does_not_train 2 '' 'millrace server' -- env \
    TF_CONFIG="{\"cluster\": $described, \"task\": {\"type\": \"worker\", \"index\": 0}}" "$m" train \
    --strategy parameter_server --model "$plain" --optimizer sgd --loss mse --data "$data" --steps 1
expect an_unknown_partitioner_is_named 2 '' 'fixed_shards, min_size, max_size' -- env TF_CONFIG="$coordinator" "$m" train \
    --strategy parameter_server --variable-partitioner 'halves()' --model "$plain" --optimizer sgd --loss mse --data "$data" --steps 1
expect a_cluster_is_needed 2 '' 'type ps' -- "$m" train --strategy parameter_server --model "$plain" --optimizer sgd --loss mse \
    --data "$data" --steps 1
expect a_server_is_a_task 2 '' 'worker or ps' -- "$m" server
expect other_hosts_need_a_token 1 '' 'token' -- env \
    TF_CONFIG="{\"cluster\": $described, \"task\": {\"type\": \"ps\", \"index\": 0}}" "$m" server --listen 0.0.0.0:0
echo right >right; echo wrong >wrong
MILLRACE_CLUSTER_TOKEN_FILE=$dir/right MILLRACE_TOKEN_FILE=$dir/wrong servers
ready ps 0; ready worker 0
expect another_token_is_refused 1 '' 'parameter server 0' 'token' -- env TF_CONFIG="$coordinator" MILLRACE_TOKEN_FILE=wrong "$m" \
    train --strategy parameter_server --model "$plain" --optimizer sgd --loss mse --data "$data" --steps 1
coordinator="{\"cluster\": {\"chief\": [\"127.0.0.1:1\"], ${described#?}, \"task\": {\"type\": \"chief\", \"index\": 0}}"
MILLRACE_TOKEN_FILE=wrong train --strategy parameter_server --model "$plain" --optimizer sgd "${how[@]}" --steps 3 \
    --cluster-token-file right >out 2>err
result the_chief_trains_with_the_same_token $? "$(said)"
all_ended
result servers_with_a_token_end_too $? "$(said)"

# ---- TLS: servers and chief verify each other
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=test \
    -addext subjectAltName=IP:127.0.0.1 -keyout key.pem -out cert.pem 2>/dev/null
tls=(MILLRACE_TLS_CERT="$dir/cert.pem" MILLRACE_TLS_KEY="$dir/key.pem" MILLRACE_TLS_CA="$dir/cert.pem")
export "${tls[@]}" MILLRACE_TLS_CLIENT_CA="$dir/cert.pem"
servers
unset "${!MILLRACE_TLS@}"
ready ps 0; ready worker 0
job=(train --strategy parameter_server --model "$plain" --optimizer sgd "${how[@]}" --steps 3)
expect a_chief_without_tls_is_refused 1 '' 'parameter server 0' 'requires TLS' -- env TF_CONFIG="$coordinator" "$m" "${job[@]}"
expect a_chief_without_a_certificate_is_refused 1 '' 'parameter server 0' 'requires a certificate' -- env \
    TF_CONFIG="$coordinator" "$m" "${job[@]}" --tls-ca cert.pem
env "${tls[@]}" TF_CONFIG="$coordinator" "$m" "${job[@]}" >out 2>err
result the_chief_trains_by_tls $? "$(said)"
all_ended
result servers_with_tls_end_too $? "$(said)"
finish
