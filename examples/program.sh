# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Included by the examples whose only argument is the program. Sets $millrace, and $here to this directory.
case ${1:-} in
-h | --help) sed -n '3,/^[^#]/s/^# \{0,1\}//p' "$0"; exit ;;
-*) echo "${0##*/}: unknown option '$1'; see --help" >&2; exit 2 ;;
esac
set -euo pipefail
here=$(realpath "$(dirname "${BASH_SOURCE[0]}")")
[ -x "$here/../build/millrace" ] && millrace=$here/../build/millrace || millrace=millrace # installed
millrace=$(command -v "${1:-$millrace}") || { echo "${0##*/}: no program '${1:-$millrace}'; build it, or name one" >&2; exit 2; }
millrace=$(realpath "$millrace")
