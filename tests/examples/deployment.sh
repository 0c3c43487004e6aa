#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tier: plain=full
# The files of examples/deployment/ as their own tools see them, as far as these need no cluster.
set -u
cd "$MR_SOURCE/examples/deployment" || exit 1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
: >"$TAP_FILE"
failed=0
result() { # NAME GOOD [WHY]
    if [ "$2" = 0 ]; then
        echo "ok - deployment::$1" >>"$TAP_FILE"
    else
        echo "not ok - deployment::$1" >>"$TAP_FILE"
        printf 'FAILED %s\n%s\n' "$1" "${3:-}"
        failed=1
    fi
}
skip() { echo "ok - deployment::$1 # SKIP $2" >>"$TAP_FILE"; }

# The options of every command that is started exist: the program itself says so.
for word in dispatcher worker train; do
    "$MR_BUILD/millrace" "$word" --help=options >"$dir/$word" 2>/dev/null ||
        { skip "options of $word" "this version has no $word"; continue; }
    # A command ends with the line that no backslash ends.
    cat ./*.service ./*.sbatch | sed -e ':a' -e '/\\$/{N;s/\\\n//;ba}' |
        grep -hoE -- "millrace $word .*|program\" $word .*" | grep -oE -- '--[a-z-]+' >"$dir/used"
    awk -v w="$word" '$0 ~ "^ *- " w "$" { on = 1; next } on && /^ *- --/ { sub(/^ *- /, ""); sub(/=.*/, ""); print; next }
        { on = 0 }' kubernetes-training.yaml kubernetes/base/*.yaml >>"$dir/used"
    [ "$word" = train ] || sed -n 's/^ *value: \(--.*\)/\1/p' kubernetes/*/*.yaml >>"$dir/used"
    wrong=$(sort -u "$dir/used" | while read -r o; do cut -f 1 "$dir/$word" | grep -qxe "$o" || echo "$o"; done)
    result "options of $word" "$([ -s "$dir/used" ] && [ -z "$wrong" ]; echo $?)" "unknown: $wrong"
done

if command -v systemd-analyze >/dev/null; then
    for unit in *.service; do
        # The program is where it was built, and its manual is not installed.
        sed "s|/usr/bin/millrace|$MR_BUILD/millrace|; /^Documentation=man/d" "$unit" >"$dir/$unit"
        systemd-analyze verify "$dir/$unit" >"$dir/out" 2>&1
        result "$unit" "$([ $? = 0 ] && [ ! -s "$dir/out" ]; echo $?)" "$(cat "$dir/out")"
    done
else
    skip units "systemd-analyze is not installed"
fi

for job in *.sbatch; do
    bash -n "$job" 2>"$dir/out"
    result "$job is a script" $? "$(cat "$dir/out")"
    if command -v sbatch >/dev/null && sinfo >/dev/null 2>&1; then
        sbatch --test-only "$job" >"$dir/out" 2>&1
        result "$job could run" $? "$(cat "$dir/out")"
    else
        skip "$job could run" "sbatch reaches no cluster"
    fi
done

# The trainings, each task started here as srun or the kubelet would start it.
if "$MR_BUILD/millrace" train --help >/dev/null 2>&1; then
    "$MR_BUILD/millrace" write --out "$dir/train" --shards 4 \
        --expr 'range(400).map(i => {"features": [1.0, 2.0, 3.0, cast(i % 7, "float32")], "label": [cast(i % 7, "float32")]})' >/dev/null
    mkdir "$dir/bin"
    cat >"$dir/bin/srun" <<'END'
#!/usr/bin/env bash
while [[ $1 == --* ]]; do shift; done
export SLURM_STEP_NUM_TASKS=2 SLURM_STEP_NODELIST=localhost SLURM_JOB_ID=1
SLURM_PROCID=1 "$@" & other=$!
SLURM_PROCID=0 "$@" && wait "$other"
END
    chmod +x "$dir/bin/srun"
    MILLRACE_PORT=$("$MR_SOURCE/tests/ports.py") PATH=$dir/bin:$PATH MILLRACE=$MR_BUILD/millrace DATA="$dir/train-*.tfrecord" timeout 600 bash training.sbatch >"$dir/out" 2>&1
    result "training.sbatch trains" "$([ $? = 0 ] && grep -q '2 workers by Slurm' "$dir/out" && grep -q 'epoch 1/1' "$dir/out"; echo $?)" "$(cat "$dir/out")"
    # command_of FILE: the arguments of its first container, one a line
    awk '/^ *command:/ { on = 1; next } on && /^ *- / { sub(/^ *- /, ""); print; next } { on = 0 }' kubernetes-training.yaml |
        sed -e "s|/data/|$dir/|" -e "s|^millrace$|$MR_BUILD/millrace|" >"$dir/command"
    mapfile -t command <"$dir/command"
    port=$("$MR_SOURCE/tests/ports.py")
    pids=()
    for rank in 0 1 2 3; do
        RANK=$rank WORLD_SIZE=4 MASTER_ADDR=localhost MASTER_PORT=$port timeout 600 "${command[@]}" >"$dir/out.$rank" 2>&1 &
        pids+=($!)
    done
    bad=0
    for p in "${pids[@]}"; do wait "$p" || bad=1; done
    result "kubernetes-training.yaml trains" "$([ $bad = 0 ] && grep -q '"epoch": 10' "$dir/out.0"; echo $?)" "$(tail -n 3 "$dir"/out.*)"
else
    skip trainings "built without the trainer"
fi

# kubectl reads every object with the types it knows, and drops fields that they do not have: all that
# is in the file must still be there.
read_by_kubectl() { # FILE OBJECTS OF-THEM-WITH-CONTAINERS
    kubectl label --local -f "$1" read=raw -o json >"$dir/raw.json" 2>"$dir/out" &&
        kubectl set env --local -f "$1" READ=typed -o json >"$dir/typed.json" 2>>"$dir/out"
    python3 - "$dir" "$2" "$3" <<'END' >>"$dir/out" 2>&1
import json, sys
def objects(name):
    text, at, found = open(f"{sys.argv[1]}/{name}.json").read(), 0, {}
    while text[at:].strip():
        while text[at].isspace(): at += 1
        x, at = json.JSONDecoder().raw_decode(text, at)
        for y in x.get("items", [x]): found[y["kind"] + " " + y["metadata"]["name"]] = y
    return found
def missing(a, b, where=""):
    if isinstance(a, dict):
        return [m for k in a for m in (missing(a[k], b[k], f"{where}.{k}") if isinstance(b, dict) and k in b else [f"{where}.{k}"])]
    if isinstance(a, list):
        return [m for i, (x, y) in enumerate(zip(a, b)) for m in missing(x, y, f"{where}[{i}]")] + ([where] if len(a) > len(b) else [])
    return [] if str(a) == str(b) else [where]
raw, typed = objects("raw"), objects("typed")
for x in raw.values(): x["metadata"].pop("labels", None)
wrong = [f"{k}{m}" for k in typed for m in missing(raw[k], typed[k])]
print(wrong)
sys.exit(len(raw) != int(sys.argv[2]) or len(typed) != int(sys.argv[3]) or wrong != [])
END
    result "$1" $? "$(cat "$dir/out")"
}
if command -v kubectl >/dev/null && command -v python3 >/dev/null; then
    read_by_kubectl kubernetes/base/dispatcher.yaml 2 1
    read_by_kubectl kubernetes/base/worker.yaml 3 1
    read_by_kubectl kubernetes-training.yaml 2 1
    for overlay in plain tls; do
        kubectl kustomize kubernetes/$overlay >"$dir/$overlay.yaml" 2>"$dir/out"
        result "kustomization $overlay" $? "$(cat "$dir/out")"
    done
else
    skip kubernetes "kubectl is not installed"
fi
exit $failed
