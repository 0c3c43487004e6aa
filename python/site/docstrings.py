# SPDX-License-Identifier: Apache-2.0
"""An extension of griffe: docstrings, which `help` shows as they are, as Markdown."""

from __future__ import annotations

import re
import textwrap
from typing import Any

import griffe

SEVERAL = re.compile(r"^( {4}(?: {4})?)((?:\w+, )+\w+)(: .*(?:\n\1 {4}.*)*)", re.M)
FACTS = re.compile(r"(Order|Memory|State|Elements): ")


def markdown(text: str) -> str:
    """Parameters that share a description get it each. Code after `Example:`, indented code and doctests become fenced blocks, and what help says of an op's
    order, memory, state and elements a list."""
    text = SEVERAL.sub(lambda m: "\n".join(m[1] + name + m[3] for name in m[2].split(", ")), text)
    out = []
    for part in re.split(r"\n\n(?=\S|    \S)", text):
        example = re.match(r"Example:\n((?:    .*\n?|\n)+)", part)
        if example:
            part = f"**Example:**\n\n```python\n{textwrap.dedent(example[1]).rstrip()}\n```"
        elif part.startswith((">>> ", "    ")) and out:
            code = textwrap.dedent(part).rstrip()
            if out[-1].startswith("```python\n"):  # the same block, after an empty line
                out[-1] = f"{out[-1].removesuffix('```')}\n{code}\n```"
                continue
            part = f"```{'pycon' if code.startswith('>>> ') else 'python'}\n{code}\n```"
        elif FACTS.match(part):
            lines = re.sub(r"\n(?!(Order|Memory|State|Elements): )\s*", " ", part).split("\n")
            part = "\n".join("* " + FACTS.sub(r"**\1:** ", line) for line in lines)
        out.append(part)
    return "\n\n".join(out)


class Docstrings(griffe.Extension):
    def on_object(self, *, obj: griffe.Object, **kwargs: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)
