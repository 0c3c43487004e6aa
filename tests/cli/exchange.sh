#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Files and columns exchanged with the libraries of Python: those of PyPI, in a virtual environment of
# the build's own.
[ -x "$MR_BUILD/millrace" ] && [ -e "$MR_BUILD/libmillrace.so" ] || exit 77
if nm -D "$MR_BUILD/libmillrace.so" 2>/dev/null | grep -q '__[at]san_init'; then
    echo "Python does not load a library with a sanitizer in it"
    exit 77
fi
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
exec "$venv/bin/python" "$MR_SOURCE/tests/cli/exchange.py" "$MR_BUILD"
