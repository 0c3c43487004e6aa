#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tier: plain=full
# millrace devices: what is printed with and without the module for GPUs.
. "$(dirname "${BASH_SOURCE[0]}")/../../expect.sh"
"$m" devices --help >/dev/null 2>&1 || exit 77 # built without the trainer

# A line for the processors, and for each kind its devices or the reason why it has none.
"$m" devices >out 2>err
rc=$?
[ $rc = 0 ] && [ ! -s err ] && grep -q '^cpu:0  ' out && grep -qE '^cuda(:0  |: )' out
result processors_and_reasons_are_listed $? "status $rc: $(cat out err)"

"$m" devices --json >out 2>err
python3 - <<'PY' >why 2>&1
import json, re
d = json.load(open("out"))
assert set(d) == {"devices", "missing", "libraries"}, d
assert any(x["name"] == "cpu:0" and x["kind"] == "cpu" for x in d["devices"]), d
gpus = [x for x in d["devices"] if x["kind"] == "cuda"]
assert all(re.fullmatch(r"cuda:\d+", x["name"]) and x["memory_bytes"] > 0 and x["model"]
           and re.fullmatch(r"\d+\.\d+", x["compute_capability"]) for x in gpus), gpus
missing = {x["kind"]: x["reason"] for x in d["missing"]}
assert bool(gpus) != ("cuda" in missing), d
assert "cuda" not in missing or re.match(
    r"no NVIDIA driver \(libcuda\.so\.1 not found\)$|driver \d+ is older than CUDA \d+\.\d+ needs \(\d+\)$"
    r"|module not built$|no GPU is visible|lib\w+\.so\.\d+ not found", missing["cuda"]), missing
assert re.fullmatch(r"\d+\.\d+.*", d["libraries"]["onednn"]), d
PY
result json_has_devices_reasons_and_libraries $? "$(cat out err why)"

MILLRACE_CUDA_MODULE=$dir/none.so "$m" devices >out 2>err
rc=$?
[ $rc = 0 ] && grep -q "^cuda: the module cannot be opened: $dir/none.so" out
result a_module_that_is_not_there_is_named $? "status $rc: $(cat out err)"

MILLRACE_CUDA_MODULE=$dir/none.so expect training_on_a_device_that_is_not_there_says_why 1 '' 'cuda:0' none.so -- \
    "$m" train --data 'range(8).map(i => ([1.0], [1.0])).batch(4)' --model 'dense(1)' --loss mse --optimizer 'sgd(0.01)' \
    --devices cuda:0
if [ -e "$MR_BUILD/millrace-cuda.so" ] && [ -x "$MR_BUILD/bench/gpu_math" ]; then
    "$MR_SOURCE/tests/gpu.sh" --bundle "$dir/bundle" "$MR_BUILD" >out 2>err
    result a_bundle_for_machines_with_gpus_is_small_enough $? "$(cat out err)"
    (unset MILLRACE_CUDA_MODULE; "$dir/bundle/gpu.sh") >out 2>err
    [ $? = 77 ] && grep -q '^cpu:0  ' out && grep -q '^SKIPPED: there is no GPU here' out
    result its_programs_find_their_libraries $? "$(cat out err)"
else
    skip a_bundle_for_machines_with_gpus_is_small_enough 'built without the CUDA module or the benches'
fi
expect words_are_refused 2 '' "unexpected 'now'" -- "$m" devices now
finish
