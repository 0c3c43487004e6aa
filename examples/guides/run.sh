#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Runs the examples that docs/guides.md lists, guide by guide, and compares their output with the guides'.
#   examples/guides/run.sh [BUILD]
case ${1:-} in
-h | --help) sed -n '3,/^[^#]/s/^# \{0,1\}//p' "$0"; exit ;;
-*) echo "${0##*/}: unknown option '$1'; see --help" >&2; exit 2 ;;
esac
build=${1:-$(dirname "$0")/../../build}
failed=0
for script in custom_loops template keras strategies input; do
    bash "$(dirname "$0")/$script.sh" "$build" || failed=1
done
exit $failed
