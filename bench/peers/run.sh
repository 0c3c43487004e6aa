#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Builds Millrace and compares it with its peers: training (train.py), input pipelines (input.py) and the
# arrays of the Python package (records_numpy.py).
# The peers are installed from PyPI into a virtual environment (build/peers, or $MILLRACE_PEERS; some
# GB, because PyTorch includes GPU libraries if its own index is unreachable). Unavailable peers are
# skipped with a message.
#   bench/peers/run.sh
set -euo pipefail
cd "$(dirname "$0")/../.."
place=${MILLRACE_PEERS:-build/peers}
cmake -S . -B build >/dev/null
cmake --build build --parallel "$(nproc)" >/dev/null
[ -x "$place/bin/python" ] || python3 -m venv "$place" || {
    echo "peers/run.sh: python3 -m venv does not work here (python3-venv): nothing is compared"
    exit 0
}
have() { "$place/bin/python" -c "import importlib.util as i; exit(not i.find_spec('$1'))"; }
get() { "$place/bin/python" -m pip install -q "$@" 2>/dev/null; }
have tensorflow || get tensorflow-cpu || echo "tensorflow-cpu cannot be installed here"
have grain || get grain pillow || echo "grain cannot be installed here"
have torch || get --retries 0 torch torchvision --index-url https://download.pytorch.org/whl/cpu ||
    get torch torchvision || echo "torch cannot be installed here"
"$place/bin/python" bench/peers/train.py
"$place/bin/python" bench/peers/input.py
have cffi || get cffi numpy
if [ -d build/python/millrace ]; then
    PYTHONPATH=build/python "$place/bin/python" bench/peers/records_numpy.py
else
    echo "the Python package was not built (python3-dev, python3-cffi, python3-numpy): its arrays are not measured"
fi
