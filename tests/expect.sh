# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# What tests of the built program share. A script sources it first:
#   . "$(dirname "${BASH_SOURCE[0]}")/../expect.sh"
# and ends with `finish`. Its working directory is then a new, empty one ($dir), the program is $m,
# and results go to a TAP file. By hand: SCRIPT MILLRACE [TAP_FILE].
set -u
tests=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck disable=SC2034
m=$(readlink -f "${1:-$MR_BUILD/millrace}")
tap=$(readlink -m "${2:-${TAP_FILE:-/dev/null}}")
dir=$(mktemp -d)
# family PID: what it started, and what these started
family() {
    local p
    for p in $(pgrep -P "$1"); do
        echo "$p"
        family "$p"
    done
}
# is_ours PID: this shell, or one of its family. The number of a process that has ended may belong to another test's.
is_ours() {
    local line p=$1
    while [ "$p" != $$ ]; do
        { read -r line <"/proc/$p/stat"; } 2>/dev/null || return 1
        line=${line##*) } # after the name: the state, and the parent's number
        p=${line:2} p=${p%% *}
        [ "$p" != 0 ] || return 1
    done
}
# kill [-SIGNAL] PID...: those of ours; false if one is not. kill -l NAME: as ever
kill() {
    local word words=() some='' bad=0
    if [ "${1:-}" = -l ]; then
        builtin kill "$@"
        return
    fi
    for word; do
        if [[ $word == -* ]]; then
            words+=("$word")
        elif is_ours "$word"; then
            words+=("$word") some=1
        else
            bad=1
        fi
    done
    [ -n "$some" ] && builtin kill "${words[@]}" && return $bad
}
clean_up() {
    exec 2>/dev/null
    local ours
    ours=$(family $$)
    # shellcheck disable=SC2086
    kill -9 $ours # what still runs of ours, and nothing else
    chmod -R u+rwx "$dir"
    rm -rf "$dir"
}
trap clean_up EXIT
cd "$dir" || exit 1
unset TF_CONFIG MILLRACE_TOKEN_FILE NOTIFY_SOCKET "${!MILLRACE_TLS@}"
n=0 failed=0
# Seconds that one command may take: what hangs is found, and what is only slow passes on the busiest machine.
patience=600
# And all of them together, less than tests/run.sh gives a test: then it says what it awaits, and ends.
most=$([ "${MR_TEST_TIER:-}" = long ] && echo 30000 || echo 1500)
guard='' allowed=0
# allow SECONDS: from now on, of those that are left
allow() {
    [ -z "$guard" ] || kill "$guard"
    allowed=$(($1 < most - SECONDS ? $1 : most - SECONDS))
    {
        exec 3<> <(:)
        read -rt "$allowed" -u 3
        ps -o pid,etime,stat,args --ppid $$
        kill -USR1 $$
        read -rt 2 -u 3 # a shell that awaits a command in the foreground hears of it afterwards
        for p in $(pgrep -P $$); do
            [ "$p" = "$BASHPID" ] || kill -9 "$p" $(family "$p")
        done
    } 2>/dev/null &
    guard=$!
    disown
}
give_up() {
    printf 'FAILED to end within %s s; it awaits: %s\n' "$allowed" "$1"
    tail -v -n 20 "$dir"/*.err "$dir"/err
    echo "not ok $((n + 1)) - ends within $allowed s" >>"$tap"
    exit 1
} 2>/dev/null
trap 'give_up "$BASH_COMMAND"' USR1
allow $most
: >"$tap"

# After a failure much of what follows may never come: nothing is awaited for long any more.
hurry() {
    patience=60
    [ $BASHPID != $$ ] || allow 120
}
# result NAME STATUS [WHY]: status 0 is good; so is its own
result() {
    n=$((n + 1))
    if [ "$2" = 0 ]; then
        echo "ok $n - $1" >>"$tap"
        [ $failed = 0 ] || hurry
    else
        echo "not ok $n - $1" >>"$tap"
        printf 'FAILED %s\n%s\n' "$1" "${3:-}"
        failed=$((failed + 1))
        hurry
        return 1
    fi
}
# same NAME A B: two outputs that are equal and not empty; comparing nothing with nothing tests nothing.
# same --empty NAME A B: both may be empty
same() {
    local empty=0 bad=0
    if [ "$1" = --empty ]; then
        empty=1
        shift
    fi
    [ "$2" = "$3" ] && { [ -n "$2" ] || [ $empty = 1 ]; } || bad=1
    result "$1" $bad "  $(echo "$2" | head -c 300)
  $(echo "$3" | head -c 300)
  $(head -c 600 err 2>/dev/null)"
}
# takes N: is the next of many like cases tried? All are in the long tier, else one in N, which ones by the seed.
turn=${MR_TEST_SEED:-1}
takes() {
    [ "${MR_TEST_TIER:-}" != long ] || return 0
    turn=$(((turn + 1) % $1))
    [ $turn = 0 ]
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
        if [ $SECONDS -ge $end ]; then
            echo "not within $patience s: $*" >&2
            hurry
            return 1
        fi
        sleep 0.05
    done
}
has() { [ -s "$1" ]; }
is_over() { ! kill -0 "$1" 2>/dev/null; }
# while_runs PID COMMAND...: looks until it succeeds, or that program has ended, without which it never will
while_runs() {
    until_true is_so_or_over "$@"
    "${@:2}"
}
is_so_or_over() { "${@:2}" || is_over "$1"; }
# end_of PID: waits for it; its status
end_of() {
    until_true is_over "$1" || kill -9 "$1"
    wait "$1"
}
# until_it_catches PID: until that program (or the one that timeout runs) has its handler of SIGINT:
# before, the signal is lost, since the shell starts background commands with it ignored
until_it_catches() {
    while_runs "$1" catches "$1"
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
