#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tier: plain=full
# check.sh CC CXX LIBRARY... : each public header compiles alone as C11 (but *.hpp) and as C++17
# without a warning; the libraries export what symbols.txt lists and nothing else. MR_TEST_UPDATE=1 rewrites it.
here=$(cd "$(dirname "$0")" && pwd)
cc=$1 cxx=$2
shift 2
tmp=$(mktemp -d) || exit 2
trap 'rm -rf "$tmp"' EXIT
failed=0
warnings="-Wall -Wextra -Wpedantic -Werror -fsyntax-only -I$MR_BUILD/include -I$MR_BUILD/generated"

for header in $(sed -n 's|^#include <millrace/\(.*\)>$|\1|p' "$MR_SOURCE"/cmake/millrace*.h.in) \
    $(sed -n 's/^  \([a-z_/0-9]*\.h\)=.*/\1/p' "$MR_SOURCE/cmake/public_headers.cmake") \
    $(sed -n 's|^#include <millrace/\(.*\.hpp\)>$|\1|p' "$MR_SOURCE/cmake/millrace.hpp.in") \
    millrace.h millrace.hpp millrace-transport.h millrace-trainer.h; do
    echo "#include <millrace/$header>" >"$tmp/one.c"
    cp "$tmp/one.c" "$tmp/one.cpp"
    # shellcheck disable=SC2086
    if { [ "${header%.hpp}" != "$header" ] || "$cc" -std=c11 $warnings "$tmp/one.c" 2>"$tmp/err"; } &&
        "$cxx" -std=c++17 $warnings "$tmp/one.cpp" 2>>"$tmp/err"; then
        echo "ok - api::$header compiles alone"
    else
        cat "$tmp/err"
        echo "not ok - api::$header compiles alone"
        failed=1
    fi
done >"$tmp/headers"
grep -v '^ok' "$tmp/headers"
grep -E '^(not )?ok' "$tmp/headers" >"$TAP_FILE"
grep -q '^not ok' "$TAP_FILE" && failed=1

for library in "$@"; do
    name=$(basename "$library" .so)
    nm -D --defined-only "$library" | awk -v l="$name" '{ print l, $3 }'
done | sort >"$tmp/symbols"
if [ "$MR_TEST_UPDATE" = 1 ]; then
    # A symbol keeps the version that brought it; new ones get the current one.
    version=$(sed -n 's/^project(millrace VERSION \([0-9]*\.[0-9]*\).*/\1/p' "$MR_SOURCE/CMakeLists.txt")
    awk -v now="$version" 'FILENAME == ARGV[1] { since[$1 " " $2] = $3; next }
        { print $0, since[$0] ? since[$0] : now }' "$here/symbols.txt" "$tmp/symbols" >"$tmp/new"
    cp "$tmp/new" "$here/symbols.txt"
fi
cut -d' ' -f1,2 "$here/symbols.txt" | diff - "$tmp/symbols" >"$tmp/diff" && rc=0 || rc=1
if [ $rc = 0 ]; then
    echo "ok - api::exported symbols" >>"$TAP_FILE"
else
    echo "symbols.txt (<) and what is exported (>) differ; tests/run.sh --update if that is meant"
    cat "$tmp/diff"
    echo "not ok - api::exported symbols" >>"$TAP_FILE"
    failed=1
fi
# Only symbols with the public prefix are exported.
if grep -vE ' (mr_|MR_)' "$tmp/symbols"; then
    echo "not ok - api::exported names begin with mr_" >>"$TAP_FILE"
    failed=1
fi
exit $failed
