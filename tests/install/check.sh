#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# check.sh CC CXX: installs into an empty prefix and builds the outside project against it, in C and
# in C++, with find_package and with pkg-config, shared and static; runs what came out.
set -e
here=$(cd "$(dirname "$0")" && pwd)
cc=$1 cxx=$2
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
prefix=$tmp/prefix
: >"$TAP_FILE"
pass() { echo "ok - install::$1" | tee -a "$TAP_FILE"; }
cmake --install "$MR_BUILD" --prefix "$prefix" >"$tmp/install.log" || { cat "$tmp/install.log"; exit 1; }
"$prefix/bin/millrace" --version
[ "$("$prefix/bin/millrace" show 'range(2)')" = "0
1" ]
pass "the installed program runs"

cmake -S "$here/outside" -B "$tmp/outside" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="$cc" \
    -DCMAKE_CXX_COMPILER="$cxx" >"$tmp/log" 2>&1 && cmake --build "$tmp/outside" >>"$tmp/log" 2>&1 ||
    { cat "$tmp/log"; exit 1; }
for program in c c-static cpp trainer; do
    [ -x "$tmp/outside/$program" ] || continue
    "$tmp/outside/$program"
    pass "find_package, $program"
done

PKG_CONFIG_PATH=$(dirname "$(find "$prefix" -name millrace.pc)")
export PKG_CONFIG_PATH
libdir=$(pkg-config --variable=libdir millrace)
for language in c cpp; do
    compiler=$cc standard=c11
    [ $language = c ] || { compiler=$cxx standard=c++17; }
    # shellcheck disable=SC2046
    "$compiler" -std=$standard -Wall -Wextra -Wpedantic -Werror $(pkg-config --cflags millrace) \
        "$here/outside/main.$language" -o "$tmp/pc-$language" $(pkg-config --libs millrace)
    LD_LIBRARY_PATH=$libdir "$tmp/pc-$language"
    pass "pkg-config, $language"
done
# shellcheck disable=SC2046
"$cc" -std=c11 $(pkg-config --cflags millrace) "$here/outside/main.c" -o "$tmp/pc-static" \
    "$libdir/libmillrace.a" $(pkg-config --static --libs millrace | sed 's/-lmillrace //')
"$tmp/pc-static"
pass "pkg-config, static"
if [ -e "$PKG_CONFIG_PATH/millrace-trainer.pc" ]; then
    # shellcheck disable=SC2046
    "$cc" -std=c11 $(pkg-config --cflags millrace-trainer) "$here/outside/trainer.c" \
        -o "$tmp/pc-trainer" $(pkg-config --libs millrace-trainer)
    LD_LIBRARY_PATH=$libdir "$tmp/pc-trainer"
    pass "pkg-config, trainer"
fi
