#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds and tests Millrace, says what was skipped and why, and ends with one line:
# N passed, N failed, N skipped.
#   tests/run.sh             the quick tier, under 10 minutes on two cores: the plain build, every test
#                            program without its slow tests, the known answers, the laws of the tree
#   tests/run.sh --full      what CI runs besides: slow tests and scripts, AddressSanitizer and UBSan
#                            (by clang), ThreadSanitizer, fuzzing corpora; 40 minutes on two cores
#   tests/run.sh --long      everything in every build and unsampled, aarch64 (emulated), Debian
#                            packages and the image in clean roots, planted mutants; many hours
#   tests/run.sh --deps      installs the packages that builds and tests need, and does nothing else
#   tests/run.sh --update    rewrites the stored results of the plain build; review the diff
# Options of all tiers:
#   --only plain|asan|tsan   this build alone (may be repeated)
#   --filter REGEX           only tests of such names (ctest's)
#   --seed N                 samples other cases: those of seed N, or of a new one if N is "new", as in --long. Without it
#                            quick and full sample the same cases in every run, so that what fails is the change's fault
#   --jobs N                 for building and testing (default: the number of processors)
set -uo pipefail
cd "$(dirname "$0")/.." || exit 2
export LC_ALL=C.UTF-8

packages=(gcc g++ clang libclang-rt-14-dev clang-format cmake make ninja-build ccache pkg-config python3
    python3-dev python3-cffi python3-cloudpickle python3-numpy python3-venv
    liburing-dev libzstd-dev zlib1g-dev libprotobuf-c-dev protobuf-c-compiler
    libcurl4-openssl-dev libjansson-dev libturbojpeg0-dev libjpeg62-turbo-dev libspng-dev libarchive-dev libpcre2-dev
    libxxhash-dev libssl-dev libsqlite3-dev libmicrohttpd-dev liblz4-dev libsnappy-dev libbrotli-dev libdnnl-dev
    libopenmpi-dev openmpi-bin libcriterion-dev dataset-fashion-mnist)

# For --long: the cross compiler, what runs its programs, and what makes a clean root; and the stores of tests/remote,
# which are left out without them.
packages_long=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user debootstrap mandoc fish zsh chromium prometheus
    nginx-light openssl radosgw ceph-mon ceph-osd ceph-common
    {liburing-dev,libzstd-dev,zlib1g-dev,libprotobuf-c-dev,libjansson-dev}:arm64
    {libturbojpeg0-dev,libjpeg62-turbo-dev,libspng-dev,libarchive-dev,libpcre2-dev,libxxhash-dev}:arm64
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

tier=quick update=0 seed='' jobs=$(nproc) filter='' builds=()
while [ $# -gt 0 ]; do
    case $1 in
    --deps) install_packages "${packages[@]}"; exit ;;
    --full | --long) tier=${1#--} ;;
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
    --help) sed -n '3,21s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) echo "run.sh: unknown option '$1'; see --help" >&2; exit 2 ;;
    esac
    shift
done
[ -n "$seed" ] || [ $tier != long ] || seed=new
[ "$seed" != new ] || seed=$(date +%s)
seed=${seed:-1}
whole=0 # is this a whole tier?
if [ $update = 1 ]; then
    tier=full builds=(plain) filter=${filter:-'^api$'}
elif [ ${#builds[@]} = 0 ]; then
    whole=1 builds=(plain)
    [ $tier = quick ] || builds+=(asan tsan)
fi

passed=0 failed=0 skipped=0 skips=() fails=() matched=0
one() { # name, exit status, [log]: counts a step that is one test
    if [ "$2" = 0 ]; then
        passed=$((passed + 1))
    elif [ "$2" = 77 ]; then
        skipped=$((skipped + 1)) skips+=("$1: $(tail -n 1 "${3:-/dev/null}")")
    else
        failed=$((failed + 1)) fails+=("$1")
        echo "FAILED $1"
        [ -z "${3:-}" ] || tail -n 60 "$3"
    fi
}
section() { printf '\n== %s (after %d s)\n' "$1" $SECONDS; }
finish() {
    section summary
    if [ -n "$filter" ] && [ $matched = 0 ]; then
        echo "FAILED --filter: no test of the $tier tier has a name like '$filter'"
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
    # Again, where a long log has them in the middle.
    [ ${#fails[@]} = 0 ] || printf 'FAILED %s\n' "${fails[@]}" | head -n 50
    echo "seed $seed: tests/run.sh${option:+ $option} --seed $seed repeats this run"
    echo "$passed passed, $failed failed, $skipped skipped"
    [ $failed = 0 ]
    exit
}

install_packages "${packages[@]}" || { failed=1; finish; }
export MR_TEST_SEED=$seed MR_TEST_TIER=$tier MR_TEST_UPDATE=$update
option=--$tier
[ $tier != quick ] || option=''
echo "$tier tier, seed $seed"
out=build-test
mkdir -p $out

if [ $tier != full ]; then
    section "the tree"
    tests/check_tree.sh >$out/tree.log 2>&1; one "the laws of the tree" $? $out/tree.log
    tests/check_tree.sh --format >$out/format.log 2>&1; one "clang-format" $? $out/format.log
    { tests/mutants.sh --stale && tests/mutants.sh --tiers; } >$out/mutants.log 2>&1
    one "planted faults apply, and CI runs their tests" $? $out/mutants.log
fi

launcher=()
! command -v ccache >/dev/null || launcher=(-DCMAKE_C_COMPILER_LAUNCHER=ccache)
progress() { # a line for each fifth of a build
    local line tenths=0
    while IFS= read -r line; do
        [[ $line =~ ^\[([0-9]+)/([0-9]+)\] ]] || continue
        [ $((10 * BASH_REMATCH[1] / BASH_REMATCH[2])) -ge $((tenths + 2)) ] || continue
        tenths=$((10 * BASH_REMATCH[1] / BASH_REMATCH[2]))
        echo "  ${BASH_REMATCH[1]} of ${BASH_REMATCH[2]} steps (after $SECONDS s)"
    done
}
build() { # folder, target, compiler, options...
    local dir=$out/$1 target=$2 cc=$3
    shift 3
    section "building $dir, see $dir/build.log"
    mkdir -p "$dir"
    { cmake -S . -B "$dir" -G Ninja -DCMAKE_C_COMPILER="$cc" "${launcher[@]}" "$@" &&
        cmake --build "$dir" --parallel "$jobs" --target "$target" -- -k 0; } 2>&1 | tee "$dir/build.log" | progress
    local rc=${PIPESTATUS[0]}
    grep -vE '^\[[0-9]+/[0-9]+\] (Building|Linking|Creating|Running)' "$dir/build.log" >"$dir/errors.log"
    one "build of $dir" "$rc" "$dir/errors.log"
    return "$rc"
}

count() { # build: adds up the results of its tests
    local dir=$out/$1 tap p f s
    for tap in "$dir"/tap/*.tap; do
        [ -e "$tap" ] || continue
        s=$(grep -c '^ok .*# SKIP' "$tap") p=$(grep -c '^ok ' "$tap") f=$(grep -c '^not ok ' "$tap")
        passed=$((passed + p - s)) failed=$((failed + f)) skipped=$((skipped + s))
        while IFS= read -r line; do skips+=("[$1] $line"); done < <(sed -n 's/^ok [0-9]* *- \(.*\) # SKIP *\(.*\)/\1: \2/p' "$tap")
        if [ "$f" != 0 ]; then
            while IFS= read -r line; do
                fails+=("[$1] $line")
                echo "FAILED [$1] $line"
            done < <(sed -nE "s/^not ok [0-9]* *- (.*)/$(basename "$tap" .tap): \1/p" "$tap")
            echo "--- ${tap%.tap}.log, its first failure and its end:"
            grep -m 1 -A 12 '^FAILED ' "${tap%.tap}.log"
            tail -n 40 "${tap%.tap}.log"
        fi
    done
}

# ctest starts the longest tests first, by the times that it measured in this folder. For those that it has
# not run yet: the times of the plain build, else a guess from the lengths of their sources.
order() { # build
    local costs=Testing/Temporary/CTestCostData.txt folder f name
    mkdir -p "$out/$1/Testing/Temporary"
    {
        sed -n '/^---/q;p' "$out/$1/$costs"
        sed -n '/^---/q;s/ [0-9]* / 0 /p' "$out/plain/$costs"
        for folder in $(find tests -name '*.c' -printf '%h\n' | sort -u); do
            name=${folder#tests/}
            echo "${name//\//_} 0 $(($(cat "$folder"/*.c | wc -l) / 200))"
        done
        for f in tests/*/*.sh tests/*/*.py; do
            name=${f#tests/} name=${name%.py}
            echo "${name//[\/.]/_} 0 $(($(wc -l <"$f") / 10))"
        done
    } 2>/dev/null | awk '!seen[$1]++' >"$out/costs"
    mv "$out/costs" "$out/$1/$costs"
}

# slowest BUILD: the tests that took longest, seconds that passed and seconds of processor time
slowest() {
    local f
    for f in "$out/$1"/tap/*.seconds; do
        [ ! -e "$f" ] || echo "$(basename "$f" .seconds) $(cat "$f")"
    done | sort -k 2nr | head -n 8 | awk '{ printf "%s%s %.0f s (%.0f)", (NR > 1 ? ", " : "longest: "), $1, $2, $3 }
        END { if (NR) print "" }'
}

run_tests() { # build
    local dir=$out/$1 personality=() label
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
    # The full tier leaves out what the quick one has run, which is in the plain build.
    unset MR_TEST_AFTER
    case $tier-$1 in
    full-plain) label='^full$'; export MR_TEST_AFTER=quick ;;
    full-*) label='^(quick|full)$' ;;
    quick-*) label='^quick$' ;;
    *) label=. ;;
    esac
    section "testing $dir"
    order "$1"
    # What hangs is found, and leaves the other tests their time; what is only slow passes on a busy machine.
    # Results are printed as they come: a run that is cut off has said how far it was.
    "${personality[@]}" ctest --test-dir "$dir" -j "$jobs" --timeout $([ $tier = long ] && echo 36000 || echo 1800) \
        -L "$label" -E '^planted$' ${filter:+-R "$filter"} 2>&1 |
        tee "$dir/ctest.log" | grep --line-buffered -E '^ *[0-9]+/[0-9]+ Test'
    local status=("${PIPESTATUS[@]}")
    [ "${status[2]}" != 0 ] || matched=1
    # 8: a test failed, which is counted below
    [ "${status[0]}" = 0 ] || [ "${status[0]}" = 8 ] || one "ctest in $dir ended with status ${status[0]}" 1
    # ctest kills what runs too long: then there is no TAP file.
    while read -r name; do
        [ -e "$dir/tap/$name.tap" ] || echo "not ok - $name: killed by ctest" >"$dir/tap/$name.tap"
    done < <(sed -n 's/.*Test *#[0-9]*: \([^ ]*\) .*\*\*\*.*/\1/p' "$dir/ctest.log")
    slowest "$1"
    count "$1"
}

# Warnings are errors in the plain build (gcc) and in that with AddressSanitizer (clang);
# ThreadSanitizer makes gcc warn of correct code. Below the long tier GPUs are tested in the plain
# build alone: their double watches memory and races itself.
debug=(-DCMAKE_BUILD_TYPE=Debug '-DCMAKE_C_FLAGS_DEBUG=-O1 -g' -DMR_BUILD_BENCH=OFF
    -DMR_CUDA_ARCHITECTURES=90) # one is enough: they look at the module, on the double of GPUs
all=all gpus=OFF examples=OFF
[ $tier != quick ] || all=quick
[ $tier != long ] || gpus=AUTO examples=ON
for b in "${builds[@]}"; do
    case $b in
    plain) build plain $all gcc -DMR_WERROR=ON -DCMAKE_BUILD_TYPE=RelWithDebInfo ;;
    asan) build asan $all clang "${debug[@]}" -DMR_SANITIZE=address,undefined -DMR_WERROR=ON -DMR_WITH_CUDA=$gpus ;;
    tsan) build tsan $all gcc "${debug[@]}" -DMR_SANITIZE=thread -DMR_WERROR=OFF -DMR_WITH_CUDA=$gpus \
        -DMR_BUILD_EXAMPLES=$examples ;;
    esac && run_tests "$b"
done

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

if [ $tier-$whole = long-1 ]; then
    build fuzz all clang "${debug[@]}" -DMR_WITH_CUDA=OFF -DMR_SANITIZE=address,undefined -DMR_FUZZERS=ON
    install_packages "${packages_long[@]}"
    one_long "known answers on aarch64" on_aarch64
    one_long "Debian packages in a clean root" in_a_clean_root
    one_long "the image's steps in clean roots" tests/install/image.sh "$jobs"
    one_long "mutants" tests/mutants.sh
fi
finish
