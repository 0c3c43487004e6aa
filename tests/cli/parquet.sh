#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Parquet files exchanged with pyarrow, which is PyPI's, in the virtual environment that exchange.sh uses too.
[ -x "$MR_BUILD/millrace" ] || exit 77
venv=$MR_BUILD/exchange
exec 9>"$venv.lock" && flock 9
if ! "$venv/bin/python" -c 'import numpy, pyarrow' 2>/dev/null; then
    python3 -m venv "$venv" >/dev/null 2>&1 &&
        timeout 600 "$venv/bin/pip" -q install numpy pyarrow >"$venv/log" 2>&1 || {
        echo "numpy and pyarrow cannot be had from PyPI: $(tail -n 1 "$venv/log" 2>/dev/null)"
        exit 77
    }
fi
exec 9>&-
exec "$venv/bin/python" "$MR_SOURCE/tests/cli/parquet.py" "$MR_BUILD"
