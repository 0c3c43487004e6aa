#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tier: plain=full
# Files and columns exchanged with the libraries of Python: those of PyPI, in a virtual environment of
# the build's own.
[ -x "$MR_BUILD/millrace" ] && [ -e "$MR_BUILD/libmillrace.so" ] || exit 77
if nm -D "$MR_BUILD/libmillrace.so" 2>/dev/null | grep -q '__[at]san_init'; then
    echo "Python does not load a library with a sanitizer in it"
    exit 77
fi
. "$MR_SOURCE/tests/pypi.sh"
exec "$venv/bin/python" "$MR_SOURCE/tests/cli/exchange.py" "$MR_BUILD"
