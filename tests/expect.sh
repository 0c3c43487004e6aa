# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What tests of the built program share. A script sources it first:
#   . "$(dirname "${BASH_SOURCE[0]}")/../expect.sh"
# and ends with `finish`. It then stands in an empty directory of its own ($dir), the program is $m,
# and results go to a TAP file. By hand: SCRIPT MILLRACE [TAP_FILE].
set -u
tests=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck disable=SC2034
m=$(readlink -f "${1:-$MR_BUILD/millrace}")
tap=$(readlink -m "${2:-${TAP_FILE:-/dev/null}}")
dir=$(mktemp -d)
clean_up() {
    kill "$guard"
    jobs -p | xargs -r kill -9 # what still runs of ours, and nothing else
    chmod -R u+rwx "$dir" 2>/dev/null
    rm -rf "$dir"
}
trap clean_up EXIT
cd "$dir" || exit 1
unset TF_CONFIG MILLRACE_TOKEN_FILE NOTIFY_SOCKET
n=0 failed=0
# Seconds that one command may take: what hangs is found, and what is only slow passes on the busiest machine.
patience=600
# And all of them together, less than tests/run.sh gives a test: then it says what it awaits, and ends.
most=$([ "${MR_TEST_LONG:-0}" = 1 ] && echo 30000 || echo 1500)
give_up() {
    printf 'FAILED to end within %s s; it awaits: %s\n' "$most" "$1"
    ps -o pid,etime,stat,args --ppid $$
    tail -v -n 20 "$dir"/*.err "$dir"/err
    echo "not ok $((n + 1)) - ends within $most s" >>"$tap"
    exit 1
} 2>/dev/null
trap 'give_up "$BASH_COMMAND"' USR1
(exec 3<> <(:); read -rt "$most" -u 3; kill -USR1 $$) &
guard=$!
disown
: >"$tap"

# result NAME STATUS [WHY]: status 0 is good
result() {
    n=$((n + 1))
    if [ "$2" = 0 ]; then
        echo "ok $n - $1" >>"$tap"
    else
        echo "not ok $n - $1" >>"$tap"
        printf 'FAILED %s\n%s\n' "$1" "${3:-}"
        failed=$((failed + 1))
    fi
}
# same NAME A B
same() {
    result "$1" $([ "$2" = "$3" ]; echo $?) "  $(echo "$2" | head -c 300)
  $(echo "$3" | head -c 300)
  $(head -c 600 err 2>/dev/null)"
}
# skip NAME REASON
skip() {
    n=$((n + 1))
    echo "ok $n - $1 # SKIP $2" >>"$tap"
}
# expect NAME STATUS OUTPUT [WORD...] -- COMMAND...: the whole standard output (ANY: any), and words
# of standard error in any case, which is left in the file err
expect() {
    local name=$1 status=$2 want=$3 words=() got rc bad=0 w
    shift 3
    while [ "$1" != -- ]; do words+=("$1"); shift; done
    shift
    got=$(timeout $patience "$@" 2>err </dev/null)
    rc=$?
    [ "$rc" = "$status" ] || bad=1
    [ "$want" = ANY ] || [ "$got" = "$want" ] || bad=1
    for w in "${words[@]+"${words[@]}"}"; do
        grep -qiF -- "$w" err || bad=1
    done
    result "$name" $bad "  status $rc (want $status), output '$got', stderr: $(head -c 400 err)"
}
# until_true COMMAND...: looks until it succeeds; false if that takes longer than anything should
until_true() {
    local end=$((SECONDS + patience))
    until "$@"; do
        [ $SECONDS -lt $end ] || return 1
        sleep 0.05
    done
}
has() { [ -s "$1" ]; }
is_over() { ! kill -0 "$1" 2>/dev/null; }
# until_it_catches PID: until that program (or the one that timeout runs) has its handler of SIGINT:
# before, the signal is lost, since the shell starts background commands with it ignored
until_it_catches() {
    until_true catches "$1"
}
catches() {
    local p caught
    for p in "$1" $(pgrep -P "$1"); do
        [ "$(cat "/proc/$p/comm" 2>/dev/null)" != timeout ] || continue
        caught=$(sed -n 's/^SigCgt:[[:space:]]*//p' "/proc/$p/status" 2>/dev/null)
        [ $((0x0${caught:-0} & 2)) = 0 ] || return 0
    done
    return 1
}
# json NAME CONDITION TEXT: what Python says of x, the value that TEXT is
json() {
    result "$1" "$(python3 -c 'import json, sys; x = json.loads(sys.argv[2]); sys.exit(not eval(sys.argv[1]))' "$2" "$3"; echo $?)" "$3"
}
# finish: the plan, the count, the script's status
finish() {
    echo "1..$n" >>"$tap"
    echo "$((n - failed)) passed, $failed failed"
    exit $((failed > 0))
}
