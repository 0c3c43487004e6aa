#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Every example runs and prints what it should.
set -u
b=$MR_BUILD
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir" || exit 1
n=0 failed=0
: >"$TAP_FILE"
expect() { # NAME OUTPUT COMMAND...
    local name=$1 want=$2 got rc
    shift 2
    got=$("$@" 2>err)
    rc=$?
    n=$((n + 1))
    if [ $rc = 0 ] && [ "$got" = "$want" ]; then
        echo "ok $n - $name" >>"$TAP_FILE"
    else
        echo "not ok $n - $name" >>"$TAP_FILE"
        printf 'FAILED %s: status %s\n%s\n%s\n' "$name" $rc "$got" "$(cat err)"
        failed=1
    fi
}
"$b/millrace" write --out digits --expr 'range(40).map(x => {"image": "x", "label": x})' >/dev/null
expect first_pipeline "$(seq -s ' ' 0 31; seq -s ' ' 32 39)" "$b/examples/first_pipeline" digits-00000-of-00001.tfrecord
expect map_callback "$(for i in $(seq 0 9); do echo $((i * i)); done)" "$b/examples/map_callback"
whole=$("$b/millrace" show 'range(20).shuffle(20, seed=7).batch(4)' | tr -d '[],' | sed 's/$/ /')
expect resume "$whole" sh -c "'$b/examples/resume' | grep -v '^--'"
if [ -x "$b/examples/input_function" ]; then
    cluster='"cluster": {"worker": ["localhost:1", "localhost:2"]}'
    for i in 0 1; do
        TF_CONFIG="{$cluster, \"task\": {\"type\": \"worker\", \"index\": $i}}" \
            "$b/examples/input_function" >"out$i" 2>&1 || failed=1
        expect "input_function_on_worker_$i" ok sh -c "[ -s out$i ] && echo ok"
    done
    expect workers_print_different_batches differ sh -c 'cmp -s out0 out1 || echo differ'
fi
if [ -x "$b/examples/custom_loop" ]; then
    expect custom_loop ok sh -c "'$b/examples/custom_loop' >loop && [ -s loop ] && echo ok"
fi
for f in "$MR_SOURCE"/examples/*.c "$MR_SOURCE"/examples/*.sh; do
    [ -e "$f" ] || continue
    expect "at_most_100_lines: ${f##*/}" ok sh -c "[ \$(wc -l <'$f') -le 100 ] && echo ok"
done
echo "1..$n" >>"$TAP_FILE"
exit $failed
