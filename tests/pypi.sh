# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
# Sourced: $venv, a virtual environment of the build's own with numpy and pyarrow of PyPI, which several tests
# may want at once. Ends with 77, and why, where they cannot be installed.
venv=$MR_BUILD/exchange
exec 9>"$venv.lock" && flock 9
if ! "$venv/bin/python" -c 'import numpy, pyarrow' 2>/dev/null; then
    python3 -m venv "$venv" >/dev/null 2>&1 &&
        timeout 600 "$venv/bin/pip" -q install numpy pyarrow >"$venv/log" 2>&1 || {
        echo "numpy and pyarrow cannot be installed from PyPI: $(tail -n 1 "$venv/log" 2>/dev/null)"
        exit 77
    }
fi
exec 9>&-
