# SPDX-License-Identifier: Apache-2.0
"""The programs of the command line, which a wheel has too."""

from __future__ import annotations

import os
import sys

from ._errors import NotFound

_HERE = os.path.dirname(os.path.abspath(__file__))


def path(name: str = "millrace") -> str:
    """The program of that name: of the wheel, of the build tree, or on PATH."""
    folders = [os.path.join(_HERE, "bin")]
    build = os.path.dirname(os.path.dirname(_HERE))
    if os.path.isfile(os.path.join(build, "CMakeCache.txt")):
        folders.append(build)
    for folder in folders:
        found = os.path.join(folder, name)
        if os.path.isfile(found) and os.access(found, os.X_OK):
            return found
    import shutil

    on_path = shutil.which(name)
    if on_path is None:
        raise NotFound(f"the program {name} is neither in the package nor on PATH", file=name)
    return on_path


def main() -> None:
    """`millrace`, the console script: replaces this process by the program."""
    program = path()
    os.execv(program, [program, *sys.argv[1:]])
