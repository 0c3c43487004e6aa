#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tier cpp: plain=full
# check.sh CC CXX: the C++ headers, the examples in C++ and the tests of this folder compile without a
# warning with CXX and with clang++, as C++17 and as C++20; the tests and examples run, the tests with
# AddressSanitizer too (where leaks of the library's objects are errors).
set -u
here=$(cd "$(dirname "$0")" && pwd)
cc=$1 cxx=$2
tmp=$(mktemp -d) || exit 2
trap 'rm -rf "$tmp"' EXIT
: >"$TAP_FILE"
failed=0
result() { # NAME STATUS [REASON]
    [ "$2" = 0 ] && echo "ok - cpp::$1${3:+ # SKIP $3}" >>"$TAP_FILE" && return
    echo "FAILED $1"
    echo "not ok - cpp::$1" >>"$TAP_FILE"
    failed=1
}
includes=(-I"$MR_BUILD/include" -I"$MR_BUILD/generated")
strict=(-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Werror "${includes[@]}")
library=(-L"$MR_BUILD" -Wl,-rpath,"$MR_BUILD" -lmillrace -pthread)
examples=$MR_SOURCE/examples/cpp

"$cc" -std=c11 "${strict[@]}" -c "$here/rows.c" -o "$tmp/rows.o" || exit 1
for compiler in "$cxx" clang++; do
    for standard in 17 20; do
        name="$(basename "$compiler") compiles C++$standard"
        command -v "$compiler" >/dev/null || { result "$name" 0 "$compiler is not installed"; continue; }
        rc=0
        for source in "$here"/*.cpp "$examples"/*.cpp; do
            "$compiler" -std=c++$standard "${strict[@]}" -fsyntax-only "$source" || rc=1
        done
        result "$name" $rc
    done
done

# run NAME SUITE OPTION...: builds a program of this folder and adds its results, with NAME
run() {
    local name=$1 suite=$2 status
    shift 2
    "$cxx" "$@" "${strict[@]}" "$here/$suite.cpp" "$tmp/rows.o" -o "$tmp/$suite" "${library[@]}" ||
        { result "$suite compiles, $name" 1; return; }
    timeout 300 "$tmp/$suite" >"$tmp/out" && status=0 || status=$?
    sed "s/\$/, $name/" "$tmp/out" >>"$TAP_FILE"
    result "$suite ends well, $name" $status
}
for suite in objects descriptors; do
    run C++17 $suite -std=c++17 -O2
    run C++20 $suite -std=c++20
    run sanitized $suite -std=c++17 -g -fsanitize=address,undefined -fno-sanitize-recover=all
done

# expect NAME OUTPUT COMMAND...
expect() {
    local name=$1 want=$2 status=0
    shift 2
    "$@" >"$tmp/out" 2>"$tmp/err" || status=1
    [ "$(cat "$tmp/out")" = "$want" ] || status=1
    [ $status = 0 ] || cat "$tmp/out" "$tmp/err"
    result "$name" $status
}
m=$MR_BUILD/millrace
"$cxx" -std=c++17 -shared -fPIC "${strict[@]}" "$examples/own_op.cpp" -o "$tmp/own_op.so" || failed=1
"$cxx" -std=c++17 "${strict[@]}" "$examples/resume.cpp" -o "$tmp/resume" "${library[@]}" || failed=1
expect "an op of a plugin in C++" $'[0]\n[0, 1]\n[0, 1, 2]\n[1, 2, 3]' "$m" show --load "$tmp/own_op.so" 'range(4).recent(3)'
expect "a function of a plugin in C++" $'0.0\n2.5\n5.0' "$m" show --load "$tmp/own_op.so" 'range(3).map(x => scaled(x / 1, by=2.5))'
"$m" show --load "$tmp/own_op.so" --save-after 3 --state "$tmp/state" 'range(5).recent(2)' >"$tmp/out" || failed=1
expect "it is resumed" $'[2, 3]\n[3, 4]' "$m" show --load "$tmp/own_op.so" --restore "$tmp/state" 'range(5).recent(2)'
expect "it is in the reference" 'recent(n)' sh -c "'$m' ops --load '$tmp/own_op.so' recent | grep -om1 'recent(n)'"
expect "its arguments are checked" '1' sh -c "'$m' show --load '$tmp/own_op.so' 'range(3).recent(0)' 2>&1 | grep -c 'recent: n must be at least 1, not 0'"
expect "the program in C++ resumes" "$("$m" show 'range(20).shuffle(20, seed=7).batch(4)' | tr -d '[],' | sed 's/$/ /')" "$tmp/resume"
exit $failed
