#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes src/millrace/_generated.py and its stub from the descriptions of ops, which `millrace ops
--json` prints: sources, methods, their types, defaults and documentation.

    python3 generate.py path/to/millrace [--check]

--check writes nothing and exits with 1 if the files are not what it would write. Functions of
recorded functions are written by generate_functions.py."""

from __future__ import annotations

import argparse
import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
PACKAGE = HERE / "src" / "millrace"


def load(path: Path) -> Any:
    """A module of the package alone: the package needs its extensions."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


codegen = load(PACKAGE / "_codegen.py")
translate = load(HERE / "translate.py")

HEAD = '''# SPDX-License-Identifier: Apache-2.0
# Written by generate.py from `millrace ops --json`; do not edit.
# mypy: disable-error-code="empty-body"
# pyright: reportReturnType=false
# ruff: noqa: A001, A002, E501
"""Sources, and the methods of datasets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

'''


def module(ops: list[dict[str, Any]], stub: bool, millrace: str) -> str:
    translate.load_names(millrace)
    examples = {o["op"]: translate.python_of(o["example"]) for o in ops}
    out = HEAD
    if stub:
        out += "from ._call import Features, Function, Path, Paths\nfrom ._dataset import Dataset\nfrom ._values import Auto\n\n"
    else:
        out += "from . import _call\nfrom ._call import Features, Function, Path, Paths\nfrom ._values import AUTO, Auto\n\n"
        out += "if TYPE_CHECKING:\n    from ._dataset import Dataset\n\n"
        out += "_call.add_tables({\n" + "".join(codegen.table_source(o) for o in ops) + "})\n\n\n"
    out += 'class Methods:\n    """What Dataset inherits: a method for each op."""\n\n    __slots__ = ()\n\n'
    out += "\n".join(codegen.method_source(o, examples[o["op"]]) for o in ops if codegen.is_method(o))
    sources = [o for o in ops if codegen.is_source(o) and o["op"] not in codegen.HANDWRITTEN]
    for o in sources:
        out += "\n\n" + codegen.source_source(o, examples[o["op"]])
    names = ", ".join(f'"{o["op"]}"' for o in sources)
    if not stub:
        return out + f"\n\nSOURCES = ({names})\n"
    out += "\n\nSOURCES: tuple[str, ...]\n"
    out = out.replace("    @_call.method\n", "").replace("@_call.source\n", "")
    return out.replace("import TYPE_CHECKING, Any, Literal", "import Any, Literal").replace("= AUTO", "= ...")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("millrace")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    lines = subprocess.run([args.millrace, "ops", "--json"], check=True, capture_output=True, text=True).stdout
    ops = [d for d in map(json.loads, lines.splitlines()) if "op" in d]
    stale = 0
    for path, stub in ((PACKAGE / "_generated.py", False), (PACKAGE / "_generated.pyi", True)):
        text = module(ops, stub, args.millrace)
        if path.exists() and path.read_text() == text:
            continue
        stale = 1
        if args.check:
            print(f"{path} is not what generate.py writes: python3 python/generate.py {args.millrace}")
        else:
            path.write_text(text)
    return stale if args.check else 0


if __name__ == "__main__":
    sys.exit(main())
