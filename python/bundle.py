#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Copies the libraries that the package needs into it, so that it runs where they are not installed.

    python3 bundle.py FOLDER

FOLDER is the package as it is being installed: lib/ with our libraries, bin/ with the programs, and
the extension modules. Each copy is named and calls itself millrace-NAME: another package in the same
process may have opened another NAME. Libraries that are opened on first use are found by their
names in our binaries; pipeline/system/late_library.c looks for the copies first. Their licences come
along, as Debian's packages have them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

PREFIX = "millrace-"
# Every Linux system with a Python has them, and a process must not have two of them. libcurl, which URLs alone need,
# is the system's, because a copy would look for certificate authorities where Debian has them.
SYSTEM = re.compile(r"(ld-linux.*|lib(c|m|dl|pthread|rt|util|resolv|gcc_s|stdc\+\+|curl))\.so\.\d+")
NAME = re.compile(rb"(?<=\0)lib[\w+-]+(?:\.[\w+-]+)*?\.so(?:\.\d+)+(?=\0)")


def run(*command: str | Path) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"bundle.py: {' '.join(map(str, command))}: {done.stderr.strip()}")
    return done.stdout


def is_elf(path: Path) -> bool:
    with path.open("rb") as f:
        return f.read(4) == b"\x7fELF"


def machine(path: Path) -> bytes:
    """The class and the processor that a file is for."""
    head = path.open("rb").read(20)
    return head[4:6] + head[18:20]


def installed(like: Path) -> dict[str, Path]:
    """Libraries of the system by name, of the same kind as a binary."""
    found: dict[str, Path] = {}
    ldconfig = shutil.which("ldconfig") or "/sbin/ldconfig"
    for line in run(ldconfig, "-p").splitlines():
        if "=>" not in line:
            continue
        name, path = line.split()[0], Path(line.split("=>")[1].strip())
        if name not in found and path.exists() and machine(path) == machine(like):
            found[name] = path
    return found


def licence(library: Path) -> tuple[str, Path] | None:
    """The Debian package that a library is of, and its copyright file."""
    real = library.resolve()
    for path in (real, Path(str(real).removeprefix("/usr"))):
        done = subprocess.run(["dpkg-query", "-S", str(path)], capture_output=True, text=True)
        if done.returncode == 0:
            package = done.stdout.split(":")[0]
            text = Path("/usr/share/doc") / package / "copyright"
            return (package, text) if text.exists() else None
    return None


def main() -> None:
    package = Path(sys.argv[1])
    lib = package / "lib"
    ours = [p for p in package.rglob("*") if p.is_file() and not p.is_symlink() and is_elf(p)]
    if not ours:
        sys.exit(f"bundle.py: {package} has no binaries")
    own = {p.name for p in ours}
    system = installed(ours[0])
    late = {n.decode() for p in ours for n in NAME.findall(p.read_bytes())}
    # By the name of what they copy. What a binary needs is among the names that it contains.
    copies: dict[str, Path] = {}
    missing: list[str] = []
    todo = sorted(late)
    patched = list(ours)
    while todo:
        name = todo.pop()
        if name in copies or name in own or SYSTEM.fullmatch(name):
            continue
        if name not in system:
            missing.append(name)
            continue
        copy = lib / (PREFIX + name)
        shutil.copyfile(system[name], copy)
        copy.chmod(0o755)
        copies[name] = copy
        patched.append(copy)
        todo += run("patchelf", "--print-needed", copy).split()
    if missing:
        sys.exit(f"bundle.py: not installed: {', '.join(sorted(missing))}")
    for path in patched:
        options: list[str] = []
        for name in run("patchelf", "--print-needed", path).split():
            if name in copies:
                options += ["--replace-needed", name, PREFIX + name]
        if path not in ours:
            options += ["--set-soname", path.name, "--set-rpath", "$ORIGIN"]
        if options:
            run("patchelf", *options, path)
    without = []
    for name in sorted(copies):
        found = licence(system[name])
        if found is None:
            without.append(str(system[name]))
            continue
        to = lib / "licenses" / found[0]
        to.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(found[1], to / "copyright")
    if without:
        sys.exit(
            f"bundle.py: no licence in /usr/share/doc for {', '.join(without)}. A package without copies of "
            "libraries, which serves this machine: pip install -C cmake.define.MR_BUNDLE=OFF"
        )
    print(f"bundled {len(copies)} libraries: {' '.join(sorted(copies))}")


if __name__ == "__main__":
    main()
