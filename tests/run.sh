#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds Millrace plain, with AddressSanitizer + UBSan and with ThreadSanitizer, runs every test in
# each, says what was skipped and why, and ends with one line: N passed, N failed, N skipped.
#   tests/run.sh [--long] [--seed N] [--jobs N] [--only plain|asan|tsan]... [--filter REGEX]
#   tests/run.sh --deps      installs the packages that builds and tests need, and does nothing else
#   tests/run.sh --update    rewrites the stored results of the plain build; review the diff
# --long runs everything instead of a sample drawn from the seed; --filter takes names of ctest.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2
export LC_ALL=C.UTF-8

packages=(gcc g++ clang libclang-rt-14-dev clang-format cmake make ninja-build ccache pkg-config python3
    liburing-dev libzstd-dev zlib1g-dev libprotobuf-c-dev protobuf-c-compiler
    libjansson-dev libdnnl-dev libcriterion-dev dataset-fashion-mnist)

install_packages() {
    local missing=() p as_root=()
    for p in "${packages[@]}"; do
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || missing+=("$p")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    echo "installing: ${missing[*]}"
    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null || { echo "these need root or sudo: ${missing[*]}" >&2; return 1; }
        as_root=(sudo)
    fi
    "${as_root[@]}" apt-get update -q &&
        "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
            apt-get install -q -y --no-install-recommends "${missing[@]}"
}

long=0 update=0 seed=$(date +%s) jobs=$(nproc) filter='' builds=()
while [ $# -gt 0 ]; do
    case $1 in
    --deps) install_packages; exit ;;
    --long) long=1 ;;
    --update) update=1 ;;
    --seed | --jobs | --only | --filter)
        [ $# -gt 1 ] || { echo "run.sh: $1 wants a value" >&2; exit 2; }
        case $1 in
        --seed) seed=$2 ;;
        --jobs) jobs=$2 ;;
        --filter) filter=$2 ;;
        --only)
            case $2 in
            plain | asan | tsan) builds+=("$2") ;;
            *) echo "run.sh: --only plain, asan or tsan, not '$2'" >&2; exit 2 ;;
            esac ;;
        esac
        shift ;;
    --help) sed -n '3,8s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "run.sh: unknown option '$1'; see --help" >&2; exit 2 ;;
    esac
    shift
done
[ ${#builds[@]} -gt 0 ] || builds=(plain asan tsan)
[ $update = 0 ] || builds=(plain)

passed=0 failed=0 skipped=0 skips=()
one() { # name, exit status, [log]: counts a step that is one test
    if [ "$2" = 0 ]; then
        passed=$((passed + 1))
    elif [ "$2" = 77 ]; then
        skipped=$((skipped + 1)) skips+=("$1: $(tail -n 1 "${3:-/dev/null}")")
    else
        failed=$((failed + 1))
        echo "FAILED $1"
        [ -z "${3:-}" ] || tail -n 60 "$3"
    fi
}
section() { printf '\n== %s (%d s)\n' "$1" $SECONDS; }
finish() {
    section summary
    # One line a reason: how many, and the first of them.
    [ ${#skips[@]} = 0 ] || printf '%s\n' "${skips[@]}" | awk '{
            at = index($0, ": "); why = substr($0, at + 2)
            if (!(why in n)) { first[why] = substr($0, 1, at - 1); order[++k] = why }
            n[why]++
        } END {
            for (i = 1; i <= k; i++)
                printf "skipped %s%s: %s\n", first[order[i]],
                    (n[order[i]] > 1 ? " and " (n[order[i]] - 1) " more" : ""), order[i]
        }'
    echo "seed $seed: tests/run.sh --seed $seed repeats this run"
    echo "$passed passed, $failed failed, $skipped skipped"
    [ $failed = 0 ]
    exit
}

install_packages || { failed=1; finish; }
export MR_TEST_SEED=$seed MR_TEST_LONG=$long MR_TEST_UPDATE=$update
echo "seed $seed"
out=build-test
mkdir -p $out

section "the tree"
tests/check_tree.sh >$out/tree.log 2>&1; one "the laws of the tree" $? $out/tree.log
tests/check_tree.sh --format >$out/format.log 2>&1; one "clang-format" $? $out/format.log

launcher=()
! command -v ccache >/dev/null || launcher=(-DCMAKE_C_COMPILER_LAUNCHER=ccache)
build() { # folder, compiler, options...
    local dir=$out/$1 cc=$2
    shift 2
    section "building $dir"
    mkdir -p "$dir"
    { cmake -S . -B "$dir" -G Ninja -DCMAKE_C_COMPILER="$cc" "${launcher[@]}" "$@" &&
        cmake --build "$dir" --parallel "$jobs" -- -k 0; } >"$dir/build.log" 2>&1
    local rc=$?
    grep -vE '^\[[0-9]+/[0-9]+\] (Building|Linking|Creating|Running)' "$dir/build.log" >"$dir/errors.log"
    one "build of $dir" $rc "$dir/errors.log"
    return $rc
}

count() { # build: adds up what its tests left behind
    local dir=$out/$1 tap p f s
    for tap in "$dir"/tap/*.tap; do
        [ -e "$tap" ] || continue
        s=$(grep -c '^ok .*# SKIP' "$tap") p=$(grep -c '^ok ' "$tap") f=$(grep -c '^not ok ' "$tap")
        passed=$((passed + p - s)) failed=$((failed + f)) skipped=$((skipped + s))
        while IFS= read -r line; do skips+=("[$1] $line"); done < <(sed -n 's/^ok - \(.*\) # SKIP *\(.*\)/\1: \2/p' "$tap")
        if [ "$f" != 0 ]; then
            sed -n "s/^not ok - /FAILED [$1] /p" "$tap"
            echo "--- ${tap%.tap}.log, its end:"
            tail -n 40 "${tap%.tap}.log"
        fi
    done
}

run_tests() { # build
    local dir=$out/$1 personality=()
    # ThreadSanitizer of gcc 12 needs its old address layout where the kernel randomises more bits.
    if [ "$1" = tsan ] && "$dir/tests/test_planted" --filter=::nothing 2>&1 | grep -q 'unexpected memory mapping'; then
        personality=(setarch "$(uname -m)" -R)
    fi
    rm -rf "$dir/tap"
    if [ "$1" != plain ]; then
        section "planted bugs in $dir"
        "${personality[@]}" ctest --test-dir "$dir" -R '^planted$' >"$dir/planted.log" 2>&1 || {
            count "$1"
            echo "the sanitizers of $dir do not see planted bugs: its other tests would say nothing"
            return
        }
    fi
    section "testing $dir"
    "${personality[@]}" ctest --test-dir "$dir" -j "$jobs" -E '^planted$' ${filter:+-R "$filter"} >"$dir/ctest.log" 2>&1
    grep -E '^ *[0-9]+/[0-9]+ Test' "$dir/ctest.log"
    # ctest kills what runs too long: then there is no TAP file.
    while read -r name; do
        [ -e "$dir/tap/$name.tap" ] || echo "not ok - $name: killed by ctest" >"$dir/tap/$name.tap"
    done < <(sed -n 's/.*Test *#[0-9]*: \([^ ]*\) .*\*\*\*.*/\1/p' "$dir/ctest.log")
    count "$1"
}

# Warnings are errors in the plain builds of both compilers; sanitizers make gcc warn of what is not.
debug=(-DMR_WERROR=OFF -DCMAKE_BUILD_TYPE=Debug '-DCMAKE_C_FLAGS_DEBUG=-O1 -g' -DMR_BUILD_BENCH=OFF)
for b in "${builds[@]}"; do
    case $b in
    plain) build plain gcc -DMR_WERROR=ON -DCMAKE_BUILD_TYPE=RelWithDebInfo && run_tests plain ;;
    asan) build asan gcc "${debug[@]}" -DMR_SANITIZE=address,undefined && run_tests asan ;;
    tsan) build tsan gcc "${debug[@]}" -DMR_SANITIZE=thread && run_tests tsan ;;
    esac
done
if [ ${#builds[@]} = 3 ]; then
    build clang clang -DMR_WERROR=ON -DCMAKE_BUILD_TYPE=Debug -DMR_BUILD_BENCH=OFF -DMR_WITH_CRITERION=OFF
    build fuzz clang "${debug[@]}" -DMR_SANITIZE=address,undefined -DMR_FUZZERS=ON
fi
finish
