# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Common functions of the scripts in this directory. Each is called with the build directory (default:
# build in this source tree) and ends with `finish`: 0 if all results were those of the guide.
case ${1:-} in
-h | --help) sed -n '3,/^[^#]/s/^# \{0,1\}//p' "$0"; exit ;;
-*) echo "${0##*/}: unknown option '$1'; see --help" >&2; exit 2 ;;
esac
set -u
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=$(cd "${1:-$root/build}" && pwd) || exit 2
m=$build/millrace
guides=$build/examples/guides
[ -x "$m" ] || { echo "${0##*/}: no program $m; name the folder of a build" >&2; exit 2; }
[ -x "$guides/custom_loop" ] || { echo "${0##*/}: built without the trainer" >&2; exit 77; }
here=$(mktemp -d)
trap 'rm -rf "$here"' EXIT
cd "$here" || exit 2
unset TF_CONFIG
good=0 bad=0

# block ROW TITLE WANTED COMMAND...: standard output must be WANTED; '/PATTERN/': must have it
block() {
    local row=$1 title=$2 want=$3 got
    shift 3
    got=$("$@" 2>err </dev/null)
    local status=$?
    if [ $status = 0 ] && { [ "$got" = "$want" ] ||
        { [[ $want == /*/ ]] && printf '%s\n' "$got" | tr '\n' ' ' | grep -qE -- "${want:1:-1}"; }; }; then
        good=$((good + 1))
        printf '  %-5s %s\n' "$row" "$title"
    else
        bad=$((bad + 1))
        printf '! %-5s %s\n  status %s, printed\n%s\n  instead of\n%s\n' "$row" "$title" $status "$got" "$want"
        sed 's/^/  /' err
    fi
}
# says WORDS: the last block printed WORDS to standard error
says() {
    grep -qiF -- "$1" err && return
    bad=$((bad + 1))
    printf '! it did not say %s\n' "$1"
    sed 's/^/  /' err
}
finish() {
    printf '%s: %s as in the guide, %s not\n' "$(basename "$0" .sh)" "$good" "$bad"
    [ "$bad" = 0 ]
}
