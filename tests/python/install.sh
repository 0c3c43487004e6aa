#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tier: plain=full
# `pip install ./python` as README has it: in a new virtual environment, with what `tests/run.sh
# --deps` installs and what pip brings. Uninstalling leaves the environment as it was.
. "$(dirname "${BASH_SOURCE[0]}")/../expect.sh"

here=$MR_SOURCE/tests/python
python=$(sed -n 's/^MR_PYTHON:[A-Z]*=//p' "$MR_BUILD/CMakeCache.txt")
python=${python:-python3}
"$python" -m venv venv >venv.log 2>&1 || {
    skip "pip installs the package" "no virtual environment can be made: $(tail -n 1 venv.log)"
    finish
}
pip=venv/bin/pip
timeout 600 $pip -q install --only-binary :all: numpy cffi cloudpickle >pip.log 2>&1 || {
    skip "pip installs the package" "nothing can be installed from PyPI: $(tail -n 1 pip.log)"
    finish
}
files_of() { find "$1" -path '*/__pycache__*' -prune -o -path '*/.git' -prune -o -path "$MR_SOURCE/build*" -prune -o -print | sort; }
files_of venv >before
files_of "$MR_SOURCE/python" >tree

# A build folder that stays lets a second run of this test build what changed.
! command -v ccache >/dev/null || export CMAKE_C_COMPILER_LAUNCHER=ccache
timeout 1400 $pip -v install -C build-dir="$MR_BUILD/python-wheel" "$MR_SOURCE/python" >pip.log 2>&1
result "pip installs the package" $? "$(tail -n 40 pip.log)" || finish
mkdir elsewhere
(cd elsewhere && ../venv/bin/python -W ignore "$here/user.py") >user.log 2>&1
result "the package works from another folder" $? "$(tail -n 20 user.log)"
expect "the program is on the path" 0 $'0\n1' -- venv/bin/millrace show 'range(2)'
expect "its companions are found" 0 ANY -- venv/bin/millrace worker --help

files_of venv >after
$pip -q uninstall -y millrace-data >pip.log 2>&1
result "pip uninstalls the package" $? "$(cat pip.log)"
files_of venv >left
same "uninstalling leaves nothing behind" "$(cat left)" "$(cat before)"
result "there was something to leave" $((! $(comm -13 before after | wc -l) > 20))
same "the tree is as it was" "$(files_of "$MR_SOURCE/python")" "$(cat tree)"
finish
