#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tier: plain=full
# Libraries that are opened when something needs them. An empty file stands for one that is missing;
# another library under its name for one of another version.
. "$(dirname "${BASH_SOURCE[0]}")/../expect.sh"

mkdir missing other
another=$(ldd "$m" | awk '/libjansson/ { print $3 }')
printf 'a\nb\n' >two.txt
gzip -c two.txt >two.gz
tar -cf two.tar two.txt
"$m" write --out frames --compress zstd-record --text two.txt >/dev/null
"$m" write --out whole --compress ZSTD --text two.txt >/dev/null

# package, file, then the same pipeline with all libraries and without this one
needs() {
    local package=$1 file=$2
    shift 2
    : >"missing/$file"
    cp "$another" "other/$file"
    "$m" "$@" >out 2>err
    result "$*: with $package" $? "$(cat err)"
    local without
    for without in missing other; do
        LD_LIBRARY_PATH=$PWD/$without "$m" "$@" >out 2>err
        result "$*: $without $file" $([ $? != 0 ] && [ ! -s out ] &&
            grep -q "by $file, which cannot be loaded (.*$file.*); install $package\$" err; echo $?) "$(cat err)"
    done
    rm -f "missing/$file" "other/$file"
}
# A missing library is not an element's error: ignore_errors does not hide it.
needs libturbojpeg0 libturbojpeg.so.0 show 'range(1).map(x => encode_jpeg(zeros([2, 3, 3], "uint8")))'
needs libjpeg62-turbo libjpeg.so.62 show 'from_tensors("\xff\xd8\xff").map(decode_jpeg).ignore_errors()'
needs libjpeg62-turbo libjpeg.so.62 show 'from_tensors("\xff\xd8\xff").map(decode_image).ignore_errors()'
needs libspng0 libspng.so.0 show 'from_tensors("\x89PNG\x0d\x0a\x1a\x0a").map(decode_png).ignore_errors()'
needs libpcre2-8-0 libpcre2-8.so.0 show 'from_tensors("a").map(x => regex_match(x, "a"))'
needs libarchive13 libarchive.so.13 show 'tar("two.tar", members=["txt"])'
needs libzstd1 libzstd.so.1 show 'tfrecord("frames-00000-of-00001.tfrecord", record_compression="ZSTD")'
needs libzstd1 libzstd.so.1 show 'tfrecord("whole-00000-of-00001.tfrecord", compression="ZSTD")'
needs libzstd1 libzstd.so.1 write --overwrite --out packed --compress ZSTD --text two.txt
needs libzstd1 libzstd.so.1 write --overwrite --out packed --compress zstd-record --text two.txt
needs libzstd1 libzstd.so.1 show --ledger ledger 'range(2)'
needs libzstd1 libzstd.so.1 why ledger --step 0
"$m" write --out table --format arrow --compress ZSTD --expr 'range(99).map(x => 7)' >/dev/null
needs libzstd1 libzstd.so.1 show 'arrow("table-*").ignore_errors()'
needs libzstd1 libzstd.so.1 write --overwrite --out packed --format arrow --compress ZSTD --text two.txt
needs zlib1g libz.so.1 write --overwrite --out packed --format parquet --text two.txt
known=$MR_SOURCE/tests/fuzz/corpus
needs liblz4-1 liblz4.so.1 show "arrow(\"$known/arrow_ipc/lz4\").ignore_errors()"
needs liblz4-1 liblz4.so.1 show "parquet(\"$known/parquet/delta\").ignore_errors()"
needs libbrotli1 libbrotlidec.so.1 show "parquet(\"$known/parquet/delta_v2\").skip(2).ignore_errors()"
needs libsnappy1v5 libsnappy.so.1 show "parquet(\"$known/parquet/dictionary\").ignore_errors()"
needs libzstd1 libzstd.so.1 show "parquet(\"$known/parquet/groups\").ignore_errors()"
needs zlib1g libz.so.1 show "parquet(\"$known/parquet/plain\").ignore_errors()"
needs zlib1g libz.so.1 show 'text_line("two.gz", compression="GZIP")'
needs zlib1g libz.so.1 write --overwrite --out packed --compress GZIP --text two.txt
needs zlib1g libz.so.1 show --save-after 0 --state position 'range(2)'
needs libprotobuf-c1 libprotobuf-c.so.1 show --limit 2 'range(4).snapshot("taken")'

openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN=test \
    -addext subjectAltName=IP:127.0.0.1 -keyout key.pem -out cert.pem 2>/dev/null
. "$tests/daemons.sh"
start d "$m" dispatcher --listen 127.0.0.1:0 --tls-cert cert.pem --tls-key key.pem
needs libssl3 libssl.so.3 service workers --dispatcher "$at" --tls-ca cert.pem
# Without liburing files are read by threads.
: >missing/liburing.so.2
expect reads_without_liburing 0 $'"a"\n"b"' -- env LD_LIBRARY_PATH="$PWD/missing" "$m" show 'text_line("two.txt")'

finish
