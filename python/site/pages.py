# SPDX-License-Identifier: Apache-2.0
"""Hooks of mkdocs: pages from outside docs/, and links as the site has them.

README.md is the first page, and docs/index.md becomes questions.md. Files of the tree that pages
link to, such as examples, are copied below tree/. The pages of the reference name what they document as
`::: millrace.Dataset`; `::: functions`, `::: classes` and `::: errors` stand for all others of their kind.
Modules that a program imports, such as millrace.torch, get a page each.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import griffe
from mkdocs.structure.files import File, Files, InclusionLevel

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PACKAGE = HERE.parent / "src" / "millrace"
MODULES = sorted(path.stem for path in PACKAGE.glob("[a-z]*.py") if path.stem != "fn")
LINK = re.compile(r"\]\(([^)\s#:]+)(#[^)\s]*)?\)")


def _source(uri: str) -> str:
    """The path in the tree of a page of the site."""
    if uri == "index.md":
        return "README.md"
    return "docs/index.md" if uri == "questions.md" else f"docs/{uri}"


def _uri(path: str) -> str:
    """The place on the site of a file of the tree."""
    if path in ("README.md", "docs/index.md"):
        return "index.md" if path == "README.md" else "questions.md"
    return path.removeprefix("docs/") if path.endswith(".md") and path.startswith("docs/") else f"tree/{path}"


def on_config(config: Any) -> Any:
    python = next(part["Python"] for part in config.nav if "Python" in part)
    reference = next(part["Reference"] for part in python if "Reference" in part)
    reference += [{f"millrace.{name}": f"api/{name}.md"} for name in MODULES]
    return config


def on_files(files: Files, config: Any) -> Files:
    index = files.get_file_from_path("index.md")
    assert index is not None
    files.remove(index)
    files.append(File.generated(config, "questions.md", abs_src_path=str(ROOT / "docs/index.md")))
    files.append(File.generated(config, "index.md", abs_src_path=str(ROOT / "README.md")))
    files.append(File.generated(config, "site.css", abs_src_path=str(HERE / "site.css")))
    for page in sorted((HERE / "api").glob("*.md")):
        files.append(File.generated(config, f"api/{page.name}", abs_src_path=str(page)))
    for name in MODULES:
        content = f"# millrace.{name}\n\n::: millrace.{name}\n    options: {{show_root_heading: false}}\n"
        files.append(File.generated(config, f"api/{name}.md", content=content))
    linked: set[str] = set()
    for file in files.documentation_pages():
        if file.src_uri.startswith("api/"):
            continue
        folder = posixpath.dirname(_source(file.src_uri))
        for target, _ in LINK.findall(file.content_string):
            path = posixpath.normpath(posixpath.join(folder, target))
            if _uri(path).startswith("tree/"):
                linked.add(path)
    for path in sorted(linked):
        if (ROOT / path).is_file():
            files.append(File.generated(config, _uri(path), abs_src_path=str(ROOT / path)))
        else:
            names = "\n".join(f"* {p.name}" for p in sorted((ROOT / path).iterdir()))
            files.append(File.generated(config, f"tree/{path}/index.md", content=f"# {path}\n\n{names}\n"))
            files.get_file_from_path(f"tree/{path}/index.md").inclusion = InclusionLevel.NOT_IN_NAV
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    uri = page.file.src_uri
    if uri.startswith("api/"):
        return _with_lists(markdown)
    if uri.startswith("tree/"):
        return markdown
    folder = posixpath.dirname(_source(uri))

    def link(found: re.Match[str]) -> str:
        target = _uri(posixpath.normpath(posixpath.join(folder, found[1])))
        if target.startswith("tree/") and (ROOT / target.removeprefix("tree/")).is_dir():
            target += "/index.md"
        return f"]({posixpath.relpath(target, posixpath.dirname(uri) or '.')}{found[2] or ''})"

    return "\n".join(_lines(LINK.sub(link, markdown).split("\n")))


def _with_lists(markdown: str) -> str:
    package = griffe.load("millrace", search_paths=[str(PACKAGE.parent)])
    places = {n: m.target_path for n, m in sorted(package.members.items()) if m.is_alias and not n.startswith("_")}
    own = {name: path for name, path in places.items() if path.startswith("millrace.")}
    functions = [name for name in own if package[name].is_function]
    errors = [name for name, path in own.items() if path.startswith("millrace._errors.")]
    classes = [name for name in own if package[name].is_class and name not in errors]
    short = "\n    options: {inherited_members: false, merge_init_into_class: false, show_bases: true}"
    plain = "\n    options: {inherited_members: false}"
    for mark, names, options in (("functions", functions, ""), ("classes", classes, plain), ("errors", errors, short)):
        others = [name for name in names if name not in ("Dataset", "Error", "Iterator")]
        found = "\n\n".join(f"::: millrace.{name}{options}" for name in others)
        markdown = markdown.replace(f"::: {mark}\n", found + "\n")
    return markdown


def _lines(lines: list[str]) -> Iterator[str]:
    """Blocks that are indented by four spaces become fenced ones, as after a list they would belong to its
    last item. In tables, GitHub needs a backslash before a bar in code, which Python-Markdown would show."""
    fenced = indented = False
    before = ""
    for i, line in enumerate(lines):
        fenced ^= line.startswith("```")
        if (
            indented
            and not line.startswith("    ")
            and (line.strip() or not lines[i + 1 : i + 2] or lines[i + 1][:4].strip())
        ):
            yield "```"
            indented = False
        starts = not before.strip() or before.startswith("<!--")
        if not fenced and not indented and starts and line.startswith("    ") and line.strip():
            indented = True
            yield "```console" if line.startswith("    $ ") else "```text"
        if line.startswith("|") and not fenced:
            line = re.sub(r"`[^`]*`", lambda code: code[0].replace("\\|", "|"), line)
        yield line[4:] if indented else line
        before = line
    if indented:
        yield "```"
