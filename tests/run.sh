#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds Millrace plain, with AddressSanitizer + UBSan and with ThreadSanitizer, runs every test in
# each, says what was skipped and why, and ends with one line: N passed, N failed, N skipped.
#   tests/run.sh [--long] [--seed N] [--jobs N] [--only plain|asan|tsan]... [--filter REGEX]
#   tests/run.sh --deps      installs the packages that builds and tests need, and does nothing else
#   tests/run.sh --update    rewrites the stored results of the plain build; review the diff
# --long runs everything instead of a sample drawn from the seed, and adds the known answers on aarch64
# (emulated), the Debian packages in a clean root, and planted mutants; --filter takes names of ctest.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2
export LC_ALL=C.UTF-8

packages=(gcc g++ clang libclang-rt-14-dev clang-format cmake make ninja-build ccache pkg-config python3
    liburing-dev libzstd-dev zlib1g-dev libprotobuf-c-dev protobuf-c-compiler
    libjansson-dev libturbojpeg0-dev libspng-dev libarchive-dev libpcre2-dev libxxhash-dev libssl-dev
    libsqlite3-dev libmicrohttpd-dev liblz4-dev libsnappy-dev libbrotli-dev libdnnl-dev libopenmpi-dev openmpi-bin
    libcriterion-dev dataset-fashion-mnist)

# For --long: the cross compiler, what runs its programs, and what makes a clean root.
packages_long=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user debootstrap mandoc fish zsh chromium prometheus
    {liburing-dev,libzstd-dev,zlib1g-dev,libprotobuf-c-dev,libjansson-dev}:arm64
    {libturbojpeg0-dev,libspng-dev,libarchive-dev,libpcre2-dev,libxxhash-dev}:arm64
    {libssl-dev,libsqlite3-dev,libmicrohttpd-dev,liblz4-dev,libsnappy-dev,libbrotli-dev}:arm64)

install_packages() { # PACKAGE...
    local missing=() p as_root=()
    for p in "$@"; do
        [ "$(dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null)" = installed ] || missing+=("$p")
    done
    [ ${#missing[@]} -gt 0 ] || return 0
    echo "installing: ${missing[*]}"
    if [ "$(id -u)" != 0 ]; then
        command -v sudo >/dev/null || { echo "these need root or sudo: ${missing[*]}" >&2; return 1; }
        as_root=(sudo)
    fi
    [[ "${missing[*]}" != *:arm64* ]] || "${as_root[@]}" dpkg --add-architecture arm64
    "${as_root[@]}" apt-get update -q &&
        "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
            apt-get install -q -y --no-install-recommends "${missing[@]}"
}

long=0 update=0 seed=$(date +%s) jobs=$(nproc) filter='' builds=()
while [ $# -gt 0 ]; do
    case $1 in
    --deps) install_packages "${packages[@]}"; exit ;;
    --long) long=1 ;;
    --update) update=1 ;;
    --seed | --jobs | --only | --filter)
        [ $# -gt 1 ] || { echo "run.sh: $1 needs a value" >&2; exit 2; }
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
    --help) sed -n '3,9s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "run.sh: unknown option '$1'; see --help" >&2; exit 2 ;;
    esac
    shift
done
[ ${#builds[@]} -gt 0 ] || builds=(plain asan tsan)
[ $update = 0 ] || builds=(plain)

passed=0 failed=0 skipped=0 skips=() matched=0
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
section() { printf '\n== %s (after %d s)\n' "$1" $SECONDS; }
finish() {
    section summary
    if [ -n "$filter" ] && [ $matched = 0 ]; then
        echo "FAILED --filter: no test that was built has a name like '$filter'"
        failed=$((failed + 1))
    fi
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

install_packages "${packages[@]}" || { failed=1; finish; }
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
    section "building $dir, see $dir/build.log"
    mkdir -p "$dir"
    { cmake -S . -B "$dir" -G Ninja -DCMAKE_C_COMPILER="$cc" "${launcher[@]}" "$@" &&
        cmake --build "$dir" --parallel "$jobs" -- -k 0; } >"$dir/build.log" 2>&1
    local rc=$?
    grep -vE '^\[[0-9]+/[0-9]+\] (Building|Linking|Creating|Running)' "$dir/build.log" >"$dir/errors.log"
    one "build of $dir" $rc "$dir/errors.log"
    return $rc
}

count() { # build: adds up the results of its tests
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
        export MR_TEST_TIMEOUT=${MR_TEST_TIMEOUT:-1800} # sanitizers are slow, more so on a busy machine
        section "planted bugs in $dir"
        "${personality[@]}" ctest --test-dir "$dir" -R '^planted$' >"$dir/planted.log" 2>&1 || {
            count "$1"
            echo "the sanitizers of $dir do not see planted bugs: its other tests would say nothing"
            return
        }
    fi
    section "testing $dir"
    # What hangs is found, and leaves the other tests their time; what is only slow passes on a busy machine.
    # Results are printed as they come: a run that is cut off has said how far it was.
    "${personality[@]}" ctest --test-dir "$dir" -j "$jobs" --timeout $((long ? 36000 : 1800)) -E '^planted$' ${filter:+-R "$filter"} 2>&1 |
        tee "$dir/ctest.log" | grep --line-buffered -E '^ *[0-9]+/[0-9]+ Test' && matched=1
    # ctest kills what runs too long: then there is no TAP file.
    while read -r name; do
        [ -e "$dir/tap/$name.tap" ] || echo "not ok - $name: killed by ctest" >"$dir/tap/$name.tap"
    done < <(sed -n 's/.*Test *#[0-9]*: \([^ ]*\) .*\*\*\*.*/\1/p' "$dir/ctest.log")
    count "$1"
}

# Warnings are errors in the plain builds of both compilers; sanitizers make gcc warn of what is not.
debug=(-DMR_WERROR=OFF -DCMAKE_BUILD_TYPE=Debug '-DCMAKE_C_FLAGS_DEBUG=-O1 -g' -DMR_BUILD_BENCH=OFF
    -DMR_CUDA_ARCHITECTURES=90) # one is enough: they look at the module, on the double of GPUs
for b in "${builds[@]}"; do
    case $b in
    plain) build plain gcc -DMR_WERROR=ON -DCMAKE_BUILD_TYPE=RelWithDebInfo && run_tests plain ;;
    asan) build asan gcc "${debug[@]}" -DMR_SANITIZE=address,undefined && run_tests asan ;;
    tsan) build tsan gcc "${debug[@]}" -DMR_SANITIZE=thread && run_tests tsan ;;
    esac
done
if [ ${#builds[@]} = 3 ]; then
    build clang clang -DMR_WERROR=ON -DCMAKE_BUILD_TYPE=Debug -DMR_BUILD_BENCH=OFF -DMR_WITH_CRITERION=OFF -DMR_WITH_CUDA=OFF
    build fuzz clang "${debug[@]}" -DMR_WITH_CUDA=OFF -DMR_SANITIZE=address,undefined -DMR_FUZZERS=ON
fi

one_long() { # NAME COMMAND...: a step that is one test
    local name=$1
    shift
    section "$name"
    "$@" >"$out/long.log" 2>&1
    one "$name" $? "$out/long.log"
}

on_aarch64() { # the core cross-built with warnings as errors, every known answer under qemu
    dpkg-query -W gcc-aarch64-linux-gnu qemu-user liburing-dev:arm64 >/dev/null 2>&1 ||
        { echo "the cross compiler or the packages of arm64 could not be installed"; return 77; }
    cmake --preset aarch64 -B "$out/aarch64" -G Ninja -DMR_BUILD_TESTS=OFF "${launcher[@]}" &&
        cmake --build "$out/aarch64" --parallel "$jobs" &&
        python3 tests/known/run.py --emulator qemu-aarch64 --jobs "$jobs" "$out/aarch64/millrace"
}

in_a_clean_root() { # the Debian packages
    cmake --preset deb -B "$out/deb" -G Ninja "${launcher[@]}" && cmake --build "$out/deb" --parallel "$jobs" &&
        cpack --config "$out/deb/CPackConfig.cmake" -B "$out/packages" && tests/install/packages.sh "$out/packages"
}

if [ $long = 1 ] && [ ${#builds[@]} = 3 ]; then
    install_packages "${packages_long[@]}"
    one_long "known answers on aarch64" on_aarch64
    one_long "Debian packages in a clean root" in_a_clean_root
    one_long "mutants" tests/mutants.sh
fi
finish
