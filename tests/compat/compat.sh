#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tier: plain=quick asan=full
# The program reads what earlier versions left on disk: positions, caches, indexes, ledgers, saved models,
# checkpoints, backups, the account of a dispatcher. Each folder holds the files of one version, written by
# make.py and read by compat.py. By hand: compat.sh MILLRACE
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
command -v python3 >/dev/null || { echo "python3 is not installed"; exit 77; }
exec python3 "$here/compat.py" "${1:-$MR_BUILD/millrace}" "$here"/[0-9]*/
