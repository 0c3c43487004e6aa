#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# tier: asan=quick tsan=quick
# check.sh PROGRAM SANITIZERS: are the planted bugs caught that these sanitizers are for?
program=$1
case $2 in
*address*) bugs="leak overflow signed_overflow" ;;
*thread*) bugs="race" ;;
*) echo "no sanitizer to check"; exit 77 ;;
esac
failed=0
: "${TAP_FILE:=/dev/null}"
verdict() { # name, what was seen, wanted
    if [ "$2" = "$3" ]; then
        echo "ok - planted::$1"
    else
        echo "not ok - planted::$1: $2 instead of $3"
        failed=1
    fi | tee -a "$TAP_FILE"
    [ "$2" = "$3" ] || failed=1
}
for bug in $bugs; do
    if "$program" --filter="::$bug" >/dev/null 2>&1; then seen=passed; else seen=caught; fi
    verdict "$bug" "$seen" caught
done
# A test without a bug must pass, or "caught" above says nothing.
if "$program" --filter=::nothing; then seen=passed; else seen=failed; fi
verdict nothing "$seen" passed
exit "$failed"
