#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tier: plain=full
# What Millrace writes, read by the programs it is written for: those of PyPI, in a virtual environment
# of the build's own.
[ -x "$MR_BUILD/millrace-train" ] || exit 77
venv=$MR_BUILD/readers
packages='numpy safetensors tensorboard onnx onnxruntime'
if ! "$venv/bin/python" -c 'import numpy, safetensors, tensorboard, onnx, onnxruntime' 2>/dev/null; then
    python3 -m venv "$venv" >/dev/null 2>&1 &&
        timeout 600 "$venv/bin/pip" -q install $packages >"$venv/log" 2>&1 || {
        echo "the readers ($packages) cannot be installed from PyPI: $(tail -n 1 "$venv/log" 2>/dev/null)"
        exit 77
    }
fi
exec "$venv/bin/python" "$MR_SOURCE/tests/trainer/exchange/readers.py" "$MR_BUILD/millrace"
