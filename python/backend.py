# SPDX-License-Identifier: Apache-2.0
"""How the package is built: by scikit-build-core, which runs CMake, and with two steps more.

* An sdist has the sources of the C library too: it is the tree of the repository without its tests,
  with pyproject.toml at its root.
* A wheel is given the tag that auditwheel finds: the oldest Linux distributions that it runs on."""

from __future__ import annotations

import gzip
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

from scikit_build_core import build as _build
from scikit_build_core.build import (
    build_editable,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

TREE = Path(__file__).resolve().parent.parent
PARTS = ("CMakeLists.txt", "LICENSE", "README.md", "cli", "cmake", "pipeline", "python", "shard", "trainer", "transport")
# What pyproject.toml says of the tree from its own folder, and from the root of an sdist.
MOVED = (
    ('backend-path = ["."]', 'backend-path = ["python"]'),
    ('cmake.source-dir = ".."', 'cmake.source-dir = "."'),
    ('readme = "README.md"', 'readme = "python/README.md"'),
    ('wheel.packages = ["src/millrace"]', 'wheel.packages = ["python/src/millrace"]'),
)


def build_wheel(
    wheel_directory: str, config_settings: dict[str, Any] | None = None, metadata_directory: str | None = None
) -> str:
    name = _build.build_wheel(wheel_directory, config_settings, metadata_directory)
    wheel = Path(wheel_directory) / name
    with tempfile.TemporaryDirectory(dir=wheel_directory) as out:
        try:
            command = [sys.executable, "-m", "auditwheel", "repair", "--only-plat", "--wheel-dir", out, str(wheel)]
            subprocess.run(command, check=True, capture_output=True, text=True)
        except subprocess.CalledProcessError as e:
            print(f"auditwheel gives no tag, so this wheel is for this machine alone:\n{e.stderr}", file=sys.stderr)
            return name
        repaired = next(Path(out).iterdir())
        wheel.unlink()
        shutil.move(repaired, Path(wheel_directory) / repaired.name)
        return repaired.name


def _pyproject() -> str:
    """pyproject.toml for the root of the tree."""
    text = (TREE / "python" / "pyproject.toml").read_text()
    for old, new in MOVED:
        if old not in text:
            raise RuntimeError(f"pyproject.toml has no line {old!r}, which sdists change to {new!r}")
        text = text.replace(old, new)
    return text


def build_sdist(sdist_directory: str, config_settings: dict[str, Any] | None = None) -> str:
    with tempfile.TemporaryDirectory() as folder:
        info = Path(folder) / _build.prepare_metadata_for_build_wheel(folder, config_settings)
        metadata = (info / "METADATA").read_bytes()
        base = info.name.removesuffix(".dist-info")
    when = int(os.environ.get("SOURCE_DATE_EPOCH", (TREE / "python" / "pyproject.toml").stat().st_mtime))

    def plain(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        name = Path(member.name).name
        if name == "__pycache__" or name.startswith((".", "build")) and member.isdir() or name.endswith((".pyc", ".so")):
            return None
        member.uid = member.gid = 0
        member.uname = member.gname = ""
        member.mtime = when
        return member

    out = Path(sdist_directory) / f"{base}.tar.gz"
    with gzip.GzipFile(out, "wb", mtime=when) as zipped, tarfile.open(fileobj=zipped, mode="w") as tar:
        for part in PARTS:
            tar.add(TREE / part, f"{base}/{part}", filter=plain)
        for name, data in (("pyproject.toml", _pyproject().encode()), ("PKG-INFO", metadata)):
            member = tarfile.TarInfo(f"{base}/{name}")
            member.size, member.mtime = len(data), when
            tar.addfile(member, io.BytesIO(data))
    return out.name
