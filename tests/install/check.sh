#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tier: plain=full
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

doc=$prefix/share/doc/millrace
for f in LICENSE README.md docs/cli.md docs/CHANGELOG.md examples/first_pipeline.c; do
    cmp "$MR_SOURCE/$f" "$doc/$f"
done
pass "licence, documentation and examples are installed"
gzip -dc "$prefix/share/man/man1/millrace.1.gz" >"$tmp/millrace.1"
commands=$("$prefix/bin/millrace" --help=options | cut -f 1 | grep -v '^-')
for command in $commands; do
    grep -q "^\.B $command\$" "$tmp/millrace.1"
    "$prefix/bin/millrace" "$command" --help=options >"$tmp/options" 2>/dev/null || [ "$command" = train ]
    [ -s "$tmp/options" ] || continue
    gzip -dc "$prefix/share/man/man1/millrace-$command.1.gz" | tr -d '\\' >"$tmp/page"
    # Every option of --help is on the page, with its words.
    while IFS="$(printf '\t')" read -r option rest; do
        grep -q "^\.B $option" "$tmp/page" || { echo "$option $rest is not on the page of $command"; exit 1; }
    done <"$tmp/options"
done
pass "a manual page for each command has its options"
if command -v mandoc >/dev/null; then
    for page in "$prefix"/share/man/man1/*; do
        gzip -dc "$page" | mandoc -Tlint -W warning | grep -v 'missing date' && exit 1
    done
    pass "manual pages are well formed"
else
    echo "ok - install::manual pages are well formed # SKIP mandoc is not installed" >>"$TAP_FILE"
fi

# complete NAME SHELL WANTED TEXT: what the shell offers after TEXT
complete() {
    command -v "$2" >/dev/null ||
        { echo "ok - install::$1 # SKIP $2 is not installed" >>"$TAP_FILE"; return; }
    PATH=$prefix/bin:$PATH $2 -c "$4" >"$tmp/offered"
    for word in $3; do
        grep -q -- "^$word" "$tmp/offered" || { cat "$tmp/offered"; echo "$1: no $word"; exit 1; }
    done
    pass "$1"
}
bash_words() { # WORD...: a script that completes the last one
    echo "source '$prefix/share/bash-completion/completions/millrace'; COMP_WORDS=($*); COMP_CWORD=$(($# - 1))
        _millrace millrace; printf '%s\n' \"\${COMPREPLY[@]}\""
}
complete "bash completes commands" bash "show" "$(bash_words millrace sh)"
complete "bash completes help" bash "help" "$(bash_words millrace he)"
complete "bash completes commands after help" bash "show" "$(bash_words millrace help sh)"
complete "bash completes requests of service" bash "status streams" "$(bash_words millrace service st)"
complete "bash completes names of ops" bash "padded_batch" "$(bash_words millrace ops batch padded_)"
complete "bash completes names of components" bash "conv2d" "$(bash_words millrace components con)"
complete "bash completes options" bash "--save-after --seed" "$(bash_words millrace show --s)"
complete "bash completes words of options" bash "file" "$(bash_words millrace show --auto-shard f)"
fish="source '$prefix/share/fish/vendor_completions.d/millrace.fish'; complete -C"
complete "fish completes commands" fish "show explain help" "$fish 'millrace '"
complete "fish completes commands after help" fish "show" "$fish 'millrace help sh'"
complete "fish completes requests of service" fish "status streams" "$fish 'millrace service st'"
complete "fish completes names of ops" fish "padded_batch" "$fish 'millrace ops batch padded_'"
complete "fish completes names of components" fish "conv2d" "$fish 'millrace components con'"
complete "fish completes options" fish "--save-after --seed" "$fish 'millrace show --s'"
complete "fish completes words of options" fish "GZIP ZSTD" "$fish 'millrace write --compress '"
# Completion in zsh needs its line editor: an interactive shell in a pseudo terminal.
zsh_words() { # WORD TEXT: a script that prints WORD when it is shown after TEXT and a tab
    echo "zmodload zsh/zpty; zpty z zsh -f -i
        zpty -w z 'fpath=($prefix/share/zsh/site-functions \$fpath); autoload -U compinit; compinit -u -d $tmp/dump'
        zpty -w -n z \$'$2\\t'
        for i in {1..6000}; do
            sleep 0.1
            while zpty -r -t z part; do all+=\$part; done
            [[ \$all != *$1* ]] || { print -- $1; break; }
        done"
}
complete "zsh completes commands" zsh "help" "$(zsh_words help 'millrace he')"
complete "zsh completes commands after help" zsh "show" "$(zsh_words show 'millrace help sh')"
complete "zsh completes requests of service" zsh "streams" "$(zsh_words streams 'millrace service st')"
complete "zsh completes names of ops" zsh "padded_batch" "$(zsh_words padded_batch 'millrace ops batch padded_')"
complete "zsh completes names of components" zsh "conv2d" "$(zsh_words conv2d 'millrace components con')"
complete "zsh completes options" zsh "--save-after" "$(zsh_words --save-after 'millrace show --save')"
complete "zsh completes words of options" zsh "ZSTD" "$(zsh_words ZSTD 'millrace write --compress Z')"

cmake -S "$here/outside" -B "$tmp/outside" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="$cc" \
    -DCMAKE_CXX_COMPILER="$cxx" >"$tmp/log" 2>&1 && cmake --build "$tmp/outside" >>"$tmp/log" 2>&1 ||
    { cat "$tmp/log"; exit 1; }
for program in c c-static cpp service service-cpp service-static trainer; do
    [ -x "$tmp/outside/$program" ] || continue
    "$tmp/outside/$program"
    pass "find_package, $program"
done

cmake -S "$MR_SOURCE/examples/own_op" -B "$tmp/own_op" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_C_COMPILER="$cc" \
    >"$tmp/log" 2>&1 && cmake --build "$tmp/own_op" >>"$tmp/log" 2>&1 || { cat "$tmp/log"; exit 1; }
[ "$("$prefix/bin/millrace" show --load "$tmp/own_op/own_op.so" 'range(5).every(2)' | tr '\n' ' ')" = "0 2 4 " ]
pass "find_package, an op of one's own"
cmake -S "$MR_SOURCE/examples/cpp" -B "$tmp/cpp" -DCMAKE_PREFIX_PATH="$prefix" -DCMAKE_CXX_COMPILER="$cxx" \
    >"$tmp/log" 2>&1 && cmake --build "$tmp/cpp" >>"$tmp/log" 2>&1 || { cat "$tmp/log"; exit 1; }
[ "$("$prefix/bin/millrace" show --load "$tmp/cpp/own_op.so" 'range(4).recent(2)' | tr '\n' ' ')" = "[0] [0, 1] [1, 2] [2, 3] " ]
[ "$("$tmp/cpp/resume" | tr -d ' \n' | wc -c)" = 30 ]
pass "find_package, an op and a program in C++"

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
# shellcheck disable=SC2046
"$cc" -std=c11 -Wall -Wextra -Wpedantic -Werror -shared -fPIC $(pkg-config --cflags millrace) \
    "$MR_SOURCE/examples/own_op/own_op.c" -o "$tmp/own_op.so" $(pkg-config --libs millrace)
[ "$(LD_LIBRARY_PATH=$libdir "$prefix/bin/millrace" show --load "$tmp/own_op.so" 'range(5).every(2)' | tr '\n' ' ')" = "0 2 4 " ]
pass "pkg-config, an op of one's own"
# shellcheck disable=SC2046
"$cxx" -std=c++17 -Wall -Wextra -Wpedantic -Werror -shared -fPIC $(pkg-config --cflags millrace) \
    "$MR_SOURCE/examples/cpp/own_op.cpp" -o "$tmp/own_op_cpp.so" $(pkg-config --libs millrace)
[ "$(LD_LIBRARY_PATH=$libdir "$prefix/bin/millrace" show --load "$tmp/own_op_cpp.so" 'range(3).recent(1)' | tr '\n' ' ')" = "[0] [1] [2] " ]
pass "pkg-config, an op in C++"
# shellcheck disable=SC2046
"$cc" -std=c11 -Wall -Wextra -Wpedantic -Werror $(pkg-config --cflags millrace-transport) "$here/outside/service.c" \
    -o "$tmp/pc-service" $(pkg-config --libs millrace-transport)
LD_LIBRARY_PATH=$libdir "$tmp/pc-service"
pass "pkg-config, transport"
if [ -e "$PKG_CONFIG_PATH/millrace-trainer.pc" ]; then
    # shellcheck disable=SC2046
    "$cc" -std=c11 $(pkg-config --cflags millrace-trainer) "$here/outside/trainer.c" \
        -o "$tmp/pc-trainer" $(pkg-config --libs millrace-trainer)
    LD_LIBRARY_PATH=$libdir "$tmp/pc-trainer"
    pass "pkg-config, trainer"
fi
