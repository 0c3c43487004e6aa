# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of Orbax that have the positions of loaders."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import jax  # type: ignore[import-not-found,unused-ignore]

try:
    import orbax.checkpoint as ocp  # type: ignore[import-not-found,import-untyped,unused-ignore]
except ImportError:
    raise ImportError("checkpoints of Orbax need it: pip install orbax-checkpoint") from None

from ._errors import InvalidArgument, NotFound


class CheckpointHandler(ocp.CheckpointHandler):  # type: ignore[misc,unused-ignore]
    """Saves and restores what has get_state and set_state: each process its position, in a separate file."""

    def save(self, directory: Any, item: Any = None, args: Any = None) -> None:
        item = args.item if args is not None else item
        with open(_path(directory, jax.process_index(), jax.process_count()), "w") as f:
            json.dump(item.get_state(), f)

    def restore(self, directory: Any, item: Any = None, args: Any = None) -> Any:
        item = args.item if args is not None else item
        path = _path(directory, jax.process_index(), jax.process_count())
        try:
            with open(path) as f:
                text = f.read()
        except FileNotFoundError:
            raise NotFound(
                f"{path}: there is no such file; positions are restored by as many processes as saved them",
                file=path,
            ) from None
        try:
            state = json.loads(text)
        except ValueError as e:
            raise InvalidArgument(f"{path}: not a saved position: {e}", file=path) from None
        item.set_state(state)
        return item


def _path(directory: Any, process: int, count: int) -> str:
    return str(directory / f"process_{process}-of-{count}.json")


@ocp.args.register_with_handler(CheckpointHandler, for_save=True)  # type: ignore[untyped-decorator,unused-ignore]
@dataclasses.dataclass
class CheckpointSave(ocp.args.CheckpointArgs):  # type: ignore[misc,unused-ignore]
    """`ocp.args.Composite(data=CheckpointSave(loader), ...)` saves the position of a loader or of its
    iterator."""

    item: Any


@ocp.args.register_with_handler(CheckpointHandler, for_restore=True)  # type: ignore[untyped-decorator,unused-ignore]
@dataclasses.dataclass
class CheckpointRestore(ocp.args.CheckpointArgs):  # type: ignore[misc,unused-ignore]
    """`ocp.args.Composite(data=CheckpointRestore(loader), ...)` goes to the saved position."""

    item: Any
