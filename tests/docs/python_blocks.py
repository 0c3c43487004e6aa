# SPDX-License-Identifier: Apache-2.0
"""Runs the Python blocks of a page, one after the other, in one namespace.

    python_blocks.py <REQUESTS >REPLIES

A request is a line of JSON: {"code": "...", "needs": ["torch"]}.
Its reply is {"output": ...} with what the block printed, {"error": traceback} or {"missing": package}.
"""

import contextlib
import importlib.util
import io
import json
import linecache
import os
import sys
import traceback

FILE = "example.py"  # what errors call a block


def missing(needs: list[str]) -> str | None:
    return next((name for name in needs if importlib.util.find_spec(name) is None), None)


def main() -> None:
    replies = os.fdopen(os.dup(1), "w", buffering=1)  # blocks and their threads may print
    os.dup2(2, 1)
    namespace: dict[str, object] = {"__name__": "__main__"}
    for line in sys.stdin:
        request = json.loads(line)
        package = missing(request["needs"])
        if package is not None:
            print(json.dumps({"missing": package}), file=replies)
            continue
        code = request["code"] + "\n"
        linecache.cache[FILE] = (len(code), None, code.splitlines(True), FILE)  # tracebacks quote it
        printed = io.StringIO()
        try:
            with contextlib.redirect_stdout(printed):
                exec(compile(code, FILE, "exec"), namespace)
            reply = {"output": printed.getvalue()}
        except BaseException:
            reply = {"error": printed.getvalue() + traceback.format_exc()}
        print(json.dumps(reply), file=replies)


if __name__ == "__main__":
    main()
