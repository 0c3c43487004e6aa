#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Runs one registered test and makes sure that it leaves a TAP file, whatever happens to it.
#   run_one.sh TAP_DIR NAME COMMAND...     TAP_FILE in an argument becomes the file's name
# A command without TAP of its own counts as one test: exit status 0 passes, 77 skips (the last line
# it printed is the reason), anything else fails.
dir=$1 name=$2
shift 2
mkdir -p "$dir"
file=$dir/$name.tap
rm -f "$file"
TAP_FILE=$file
export TAP_FILE
n=$#
while [ "$n" -gt 0 ]; do
    arg=$1
    shift
    case $arg in
    *=TAP_FILE) arg=${arg%TAP_FILE}$file ;;
    esac
    set -- "$@" "$arg"
    n=$((n - 1))
done
out=$dir/$name.log
"$@" >"$out" 2>&1
rc=$?
cat "$out"
if [ ! -s "$file" ]; then
    case $rc in
    0) echo "ok - $name" ;;
    77) echo "ok - $name # SKIP $(tail -n 1 "$out")" ;;
    *) echo "not ok - $name: exit status $rc" ;;
    esac >"$file"
elif [ "$rc" -ne 0 ] && [ "$rc" -ne 77 ] && ! grep -q '^not ok' "$file"; then
    echo "not ok - $name: exit status $rc" >>"$file"
fi
exit "$rc"
