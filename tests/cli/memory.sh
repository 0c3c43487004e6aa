#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tier: plain=full
# The memory limit of whole processes: what explain says is the least is enough, what comes out is the
# same at every limit, and the process stays below it.
. "$(dirname "${BASH_SOURCE[0]}")/../expect.sh"
. "$tests/daemons.sh"

measured=1 many=24000 several=4000 few=200
# A sanitizer uses memory itself, so limits are not measured there, and the data are smaller.
grep -qs '^MR_SANITIZE:[^=]*=.' "${MR_BUILD:-}/CMakeCache.txt" && measured=0 many=3000 several=500 few=40
# least GRAPH THREADS [FIELD]: bytes, as explain says
least() {
    "$m" explain --json --threads "$2" "$1" 2>err | sed -n 's/.*"memory worker 0": {[^}]*"'"${3:-bytes}"'": \([0-9]*\).*/\1/p'
}
# run COMMAND...: output in got, the most that was resident in used, in bytes
run() {
    timeout $patience python3 -c 'import resource, subprocess, sys
rc = subprocess.run(sys.argv[1:], stdout=open("got", "w")).returncode
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024, file=open("used", "w"))
sys.exit(rc)' "$@" 2>err </dev/null
}
# below NAME LIMIT: that of the run before
below() {
    if [ $measured = 0 ]; then
        skip "$1: below its limit" "a sanitizer takes memory of its own"
    else
        result "$1: below its limit" "$([ "$(cat used)" -le "$2" ]; echo $?)" "$(cat used) of $2"
    fi
}
# limited GRAPH: the same at the least limit with 1 and 4 threads, for some also just above it and well above it
limited() {
    local graph=$1 threads at bytes above=0 extra=$((measured ? 0 : 600 << 20))
    [ $measured = 0 ] || ! takes 3 || above=1
    "$m" show --threads 0 "$graph" >want 2>err
    [ -s want ] || result "something to compare: $graph" 1 "$(cat err)"
    for threads in $([ $measured = 1 ] && echo 1) 4; do
        at=$(least "$graph" $threads)
        [ "$at" ] || result "explain says what it needs: $graph" 1 "$(cat err)"
        for bytes in "$at" $([ $above = 1 ] && [ $threads = 4 ] && echo $((at + (3 << 20))) $((at * 4))); do
            run "$m" show --threads $threads --memory-limit $((bytes + extra)) "$graph"
            result "the same with $threads threads in $bytes bytes: $graph" "$(cmp want got >&2 2>>err; echo $?)" "$(cat err)"
            below "$threads threads: $graph" "$bytes"
        done
    done
}

# ---- files of every format: 1,500 records of 10 KB
python3 - <<'PYTHON'
import json, os, random, tarfile, io
random.seed(1)
digits = [("%.15f" % random.random())[2:] * 800 for _ in range(16)]
records = [{"n": n, "s": digits[n % 16][n % 50:][:10000]} for n in range(1500)]
with open("rows.jsonl", "w") as f, open("rows.csv", "w") as c, open("rows.txt", "w") as t, tarfile.open("rows.tar", "w") as tar:
    c.write("n,s\n")
    for r in records:
        f.write(json.dumps(r) + "\n")
        c.write(f'{r["n"]},{r["s"]}\n')
        t.write(r["s"] + "\n")
        member = tarfile.TarInfo("%04d.txt" % r["n"])
        member.size = len(r["s"])
        tar.addfile(member, io.BytesIO(r["s"].encode()))
PYTHON
# written PREFIX OPTION...
written() {
    local name=$1
    shift
    "$m" write --out "$name" --shards 4 "$@" --expr 'jsonl("rows.jsonl", {"n": int64, "s": bytes})' >out 2>err
    result "written: $name" $? "$(cat err)"
}
written plain
"$m" index plain-* >out 2>err || result indexed 1 "$(cat err)"
written gz --compress GZIP
written zst --compress ZSTD
written each --compress zstd-record
written columns --format parquet
written table --format arrow
written packed --format parquet --compress ZSTD
examples='map(x => parse_example(x, n=int64, s=bytes))'
for graph in \
    "tfrecord(\"plain-*\").$examples.prefetch(1000)" \
    "tfrecord(\"plain-*\", num_parallel_reads=4).$examples.prefetch(1000)" \
    "tfrecord(\"gz-*\", compression=\"GZIP\", num_parallel_reads=4).prefetch(1000)" \
    "tfrecord(\"zst-*\", compression=\"ZSTD\").prefetch(1000)" \
    "tfrecord(\"each-*\", record_compression=\"ZSTD\").prefetch(1000)" \
    "tfrecord(\"plain-*\").global_shuffle(seed=1).prefetch(1000)" \
    'parquet("columns-*").prefetch(1000)' \
    'parquet("packed-*").prefetch(1000)' \
    'arrow("table-*").prefetch(1000)' \
    'jsonl("rows.jsonl", {"n": int64, "s": bytes}).prefetch(1000)' \
    'csv("rows.csv", {"n": int64, "s": bytes}).prefetch(1000)' \
    'text_line("rows.txt").prefetch(1000)' \
    'fixed_length_record("rows.txt", 10001).prefetch(1000)' \
    'tar("rows.tar").prefetch(1000)' \
    'from_tensor_slices(["plain-00000-of-00004.tfrecord", "plain-00001-of-00004.tfrecord"]).interleave(f => tfrecord(f), num_parallel_calls=auto).prefetch(1000)'; do
    limited "$graph"
done

# ---- damage: a good header that claims most of the file, whose data it does not fit
python3 - <<'PYTHON'
import struct
def crc(data):
    c = 0xFFFFFFFF
    for byte in data:
        c ^= byte
        for _ in range(8):
            c = c >> 1 ^ (0x82F63B78 if c & 1 else 0)
    return c ^ 0xFFFFFFFF
def masked(data):
    c = crc(data)
    return struct.pack("<I", ((c >> 15 | c << 17) + 0xA282EAD8) & 0xFFFFFFFF)
def head(n):
    return struct.pack("<Q", n) + masked(struct.pack("<Q", n))
def record(data):
    return head(len(data)) + data + masked(data)
with open("crafted.tfrecord", "wb") as f:
    f.write(record(b"first") + b"\1" * 20 + head(30 << 20) + b"\2" * (10 << 20) + record(b"second"))
    f.write(head(24 << 20) + bytes(24 << 20) + b"\0\0\0\0" + record(b"third"))
PYTHON
limited 'tfrecord("crafted.tfrecord", on_corrupt="skip")'
result all_records_around_damage "$([ "$(cat got)" = $'"first"\n"second"\n"third"' ]; echo $?)" "$(cat got)"

# ---- what the types do not say: the first call tells it, and no other is begun before
if "$m" write --out photo --expr 'range(12).map(x => {"jpg": encode_jpeg(zeros([2000, 3000, 3], "uint8"))})' >out 2>err; then
    photos='tfrecord("photo-*").map(x => parse_example(x, jpg=bytes)["jpg"])'
    for graph in "$photos.map(x => size(decode_jpeg(x)), num_parallel_calls=16)" \
        "$photos.map(x => decode_jpeg(x), num_parallel_calls=16).prefetch(100).map(x => size(x))"; do
        "$m" show "$graph" >want 2>err
        run "$m" show --threads 4 --memory-limit $((measured ? 64 << 20 : 900 << 20)) "$graph"
        result "the same of photos: $graph" "$(cmp want got >&2 2>>err; echo $?)" "$(cat err)"
        below "$graph" $((64 << 20))
    done
    # An image that is far more than the limit is an error in its place, before there is memory for it.
    "$m" show 'range(1).map(x => encode_jpeg(zeros([64, 64, 3], "uint8")))' >small.json 2>err
    python3 - <<'PYTHON'
import base64, json, struct, zlib
jpeg = bytearray(base64.b64decode(json.load(open("small.json"))["b64"]))
at = jpeg.index(b"\xff\xc0")
open("b-small.jpg", "wb").write(jpeg)
jpeg[at + 5:at + 9] = struct.pack(">HH", 13000, 13000)
open("a-claims.jpg", "wb").write(jpeg)
def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
packer = zlib.compressobj(9)
pixels = b"".join(packer.compress(bytes(12001) * 100) for _ in range(120)) + packer.flush()
open("a-bomb.png", "wb").write(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 12000, 12000, 8, 0, 0, 0, 0)) +
                               chunk(b"IDAT", pixels) + chunk(b"IEND", b""))
PYTHON
    for graph in 'files("a-claims.jpg", "b-small.jpg")' 'files("a-bomb.png", "b-small.jpg")'; do
        graph="$graph.map(f => size(decode_image(f[\"contents\"])))"
        run "$m" show --threads 2 --memory-limit 32M "$graph"
        result "refused in its place: $graph" "$(grep -Eq 'cannot be 13000 x 13000 pixels|takes 144000000 bytes, but this memory limit allows at most 134217728' err; echo $?)" "$(cat err)"
        below "$graph" $((32 << 20))
        expect "others_follow: $graph" 0 12288 -- "$m" show --threads 2 --memory-limit 32M "$graph.ignore_errors()"
    done
else
    skip photos "no JPEG library: $(cat err)"
fi

# ---- writing: the writer's buffers count too, and it writes the same
data="range($many).map(x => {\"n\": x, \"v\": random_uniform([1000], seed=1)})"
for options in '' '--shards 4' '--compress ZSTD --shards 8' '--compress GZIP --shards 8' '--compress zstd-record' '--format jsonl --shards 2' \
    '--format npy' '--format arrow --shards 4' '--format arrow --compress ZSTD --shards 2' '--format parquet' '--format parquet --row-group 1M' '--format parquet --compress GZIP --shards 3'; do
    takes 2 || continue # 300 MB each
    to=(write --threads 2 --overwrite --expr "$data" $options)
    "$m" "${to[@]}" --out free >out 2>err || result "written: $options" 1 "$(cat err)"
    "$m" "${to[@]}" --out bound --memory-limit 1M >out 2>err
    bytes=$(sed -n 's/.* but the graph and its consumer need at least \([0-9]*\) bytes .*/\1/p' err)
    result "writing says what it needs: $options" "$([ "$bytes" ] && [ ! -e bound-00000-of-00001.tfrecord ]; echo $?)" "$(cat err)"
    run "$m" "${to[@]}" --out bound --memory-limit $((bytes + (measured ? 0 : 600 << 20)))
    result "written the same in $bytes bytes: $options" "$(for f in free*; do cmp "$f" "bound${f#free}" || exit 1; done >&2 2>>err; echo $?)" "$(cat err)"
    below "writing: $options" "$bytes"
    rm -f free* bound*
done

# ---- what an op keeps in a file
for graph in 'text_line("rows.txt").cache("kept-N").repeat(2).prefetch(1000)' 'text_line("rows.txt").snapshot("taken-N").prefetch(1000)'; do
    limited "$graph"
done

# ---- batches larger than a block, and streams
limited "range($((3 * few))).map(x => zeros([100000]) + cast(x, \"float32\")).batch(16).map(x => sum(x)).prefetch(100)"
limited "range($((3 * few))).map(x => zeros([26214]) + cast(x, \"float32\")).shuffle(20, seed=1).prefetch(10000).distribute(\"local\", streams=4).map(x => sum(x))"

# ---- a service: of the client, and of the worker
# of_process NAME: in KiB, of $worker
of_process() { sed -n "s/^$1:[^0-9]*\([0-9]*\).*/\1/p" "/proc/$worker/status"; }
# memory_of_worker [EXTRA]: its most is below its limit and as many MiB, which the C library may keep on a busy machine
memory_of_worker() {
    echo $(($(of_process VmHWM) * 1024)) >used
    below the_worker $((100 + ${1:-0} << 20))
}
is_filled() { [ "$(of_process VmRSS)" -ge $((80 << 10)) ]; }
start dispatcher "$m" dispatcher --listen 127.0.0.1:0
service=$at
start worker "$m" worker --dispatcher "$service" --any-user --threads 2 --memory-limit $((measured ? 100 << 20 : 900 << 20))
worker=$pid worker_at=$at
for options in '' ', transfer="tcp"' ', transfer="tcp", compression="ZSTD"' ', processing_mode="dynamic", deterministic=true'; do
    graph="range($several).map(x => random_uniform([13107], seed=1)).prefetch(10000).distribute(\"$service\", seed=1$options).map(x => sum(x))"
    [ "${options/dynamic/}" = "$options" ] || graph="$graph.map(x => 1)" # in no order
    limited "$graph"
done
for options in '' ', transfer="tcp"'; do
    limited "range($few).map(x => zeros([1048576]) + cast(x, \"float32\")).distribute(\"$service\", seed=1, streams=2$options).map(x => sum(x))"
done
[ $measured = 0 ] || memory_of_worker
# What a stream has read ahead while its client does not read is taken back for another stream, and read again.
taken=$((measured ? 6000 : 600))
rows='map(x => {"n": x, "v": zeros([2500]) + cast(x, "float32")})'
mkfifo pipe
for options in '' ', transfer="tcp"' ', processing_mode="dynamic"'; do
    slow="range($((2 * taken))).$rows.prefetch(100000)"
    second="range($taken).$rows.shuffle($((taken * 2 / 3)), seed=1)"
    of_slow='map(x => (x["n"], x["v"][:100]))'
    "$m" show "$slow.$of_slow" >want 2>err
    "$m" show "$slow.distribute(\"$service\", streams=1, client_timeout=600.0, max_outstanding_bytes=1000000$options).$of_slow" >pipe 2>slow.err &
    pid=$!
    exec 8<pipe
    read -r first <&8
    [ $measured = 0 ] || until_true is_filled
    "$m" show "$second.map(x => x[\"n\"])" >want_second 2>err
    "$m" show "$second.distribute(\"$service\", streams=1$options).map(x => x[\"n\"])" 2>err >got
    result "another_stream_begins$options" $? "$(cat err)"
    result "its_elements$options" "$(sort -n got | cmp - <(sort -n want_second) >&2 2>>err; echo $?)" "$(cat err)"
    { echo "$first" && cat <&8; } >got
    exec 8<&-
    wait $pid
    result "the_first_one_goes_on$options" $? "$(cat slow.err)"
    result "nothing_is_lost_of_it$options" "$(sort got | cmp - <(sort want) >&2 2>>err; echo $?)" "$(wc -l got want)"
    [ $measured = 0 ] || memory_of_worker 6
done
# endless, so that none makes room for the next by its end
graph="counter().map(x => zeros([26214])).shuffle($((measured ? 300 : 2500)), seed=1).distribute(\"$service\", streams=4).map(x => sum(x))"
expect streams_that_do_not_fit_together 1 ANY 'memory limit' "(at worker $worker_at)" 'raise the limit' -- "$m" show "$graph"
expect the_worker_goes_on 0 '4950' -- "$m" show "range(100).distribute(\"$service\").batch(100).map(x => sum(x)).take(0).concatenate(from_tensors(4950))"
pid=$worker at=$worker_at
stop the_worker_ends 0

# ---- training: the batches on their way count, and their number does not change what is learnt
if "$m" train --help >/dev/null 2>&1; then
    data='range(400).map(i => (zeros([60000]) + sin(cast(i, "float32")), [1.0])).batch(16).prefetch(100)'
    model=(--model 'dense(1)' --loss mse --optimizer 'sgd(0.01)' --log json --data "$data")
    "$m" train "${model[@]}" --threads 2 >want 2>err
    bytes=$(least "$data" 2)
    adds=$(least "$data" 2 'training adds')
    result training_needs_its_batches "$([ "$adds" = $((3 * 16 * 60001 * 4)) ]; echo $?)" "$adds"
    result each_process_has_its_part_of_them "$("$m" explain --json --workers 3 --worker 0 "$data" 2>err |
        grep -q '"memory worker 0": {[^}]*"training adds": '$((16 * 60001 * 4))','; echo $?)" "$(cat err)"
    expect training_below_that_is_refused 1 '' 'memory_limit is' 'needs at least' -- "$m" train "${model[@]}" --threads 2 --memory-limit $((bytes + adds / 2))
    for limit in $((bytes + adds + (40 << 20))) $((bytes + adds + (100 << 20))); do
        run "$m" train "${model[@]}" --threads 2 --memory-limit $((limit + (measured ? 0 : 900 << 20)))
        result "trained the same in $limit bytes" "$(cmp want got >&2 2>>err; echo $?)" "$(cat err)"
        below training $limit
    done
    # What came after training counts for it as it did for the training; what does not fit says so before it.
    deep=(--model 'dense(100).dense(1)' --loss mse --optimizer 'sgd(0.0)' --log json --steps 3 --data "$data" --threads 2)
    "$m" train "${deep[@]}" --eval "$data" >want 2>err
    run "$m" train "${deep[@]}" --eval "$data" --memory-limit $((bytes + adds + (measured ? 4 << 20 : 900 << 20)))
    result evaluated_the_same "$([ -s want ] && cmp want got >&2 2>>err; echo $?)" "$(cat err)"
    expect an_evaluation_that_does_not_fit_is_refused_first 1 '' '--eval: ' 'memory_limit is' 'needs at least' -- \
        "$m" train "${deep[@]}" --eval "${data/.batch(16)/.repeat(20).shuffle(8000, seed=1).batch(16)}" --memory-limit $((bytes + adds + (measured ? 4 << 20 : 400 << 20)))
fi
finish
