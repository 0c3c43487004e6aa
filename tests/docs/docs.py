#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# tier: plain=full
"""Follows every link of README.md and docs/*.md and runs every block of code in them.

    docs.py BUILD_DIR CC CXX [PYTHON] [PAGE...]

A block (indented by four spaces, or fenced) is one of these, recognised by how it begins:
    $ command       a session in a shell: what follows it must be the command's output, with or without
                    what goes to standard error
    millrace ...    commands that must succeed (as any line that begins with a program named in PROGRAMS)
    range(3)...     pipelines, one or several: each must be built, whether or not its files or its service are there
    {"json": ...}   JSON
    ```c            a whole program, or statements with `files`, `n`, report() and use() in scope: it
                    must compile, and a whole program must run
    ```cpp          a whole program in C++17, which must compile and run
    ```python       statements, run by PYTHON with the package of the build tree; the blocks of a page share
                    their names. If a ```text block follows, it is what they print.
    <!-- needs: torch, ... -->  on the line before a Python block: it is skipped where a package is missing
    <!-- not run: REASON -->    on the line before: anything else
Blocks of a page run in turn in one directory, which has the files that FIXTURES makes. The code in the
head comments of op.h, op_iterator.h and cmake/millrace.h.in is one program (OWN_OP), which runs too, and
so does the one in cmake/millrace.hpp.in.
Without PYTHON, Python blocks are skipped; $MR_DOCS_PYTHON is another interpreter, for
example of a virtual environment with the packages that blocks need. docs/ops.md, docs/expressions.md and docs/components.md must be what the program prints of its descriptors.
TAP goes to $TAP_FILE, one test a block and one a page for its links.
"""
import glob
import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap

PROGRAMS = ("millrace", "printf", "echo")
# Example records of digits as train-*, strings as a-*, single files of both kinds, JPEG images of two classes
# in photos/ and as WebDataset shards.
FIXTURES = r"""
digit='{"image": cast([x, 2 * x], "uint8"), "label": x % 10}'
millrace write --out train --shards 2 --expr "range(40).map(x => $digit)"
millrace write --out test --expr "range(10).map(x => $digit)"
millrace write --out a --expr 'range(2000).map(x => "record")'
cp train-00000-of-00002.tfrecord train.tfrecord
cp a-00000-of-00001.tfrecord a.tfrecord
cp a.tfrecord b.tfrecord
mkdir day-1 day-2
cp a.tfrecord day-1/part-1.tfrecord
cp a.tfrecord day-2/part-1.tfrecord
seq 9 >lines.txt
mkdir -p photos/cat photos/dog samples
for i in 0 1 2 3 4 5 6 7; do
    kind=$([ $((i % 2)) = 0 ] && echo cat || echo dog)
    millrace show "range(1).map(x => encode_jpeg(cast(ones([20, 30, 3]) * $((20 * i)).0, \"uint8\")))" |
        sed 's/.*: "//; s/"}//' | base64 -d >photos/$kind/$i.jpg
    cp photos/$kind/$i.jpg samples/00$i.jpg && printf %s $((i % 2)) >samples/00$i.cls
done
tar --sort=name -cf shard-000000.tar -C samples 000.cls 000.jpg 001.cls 001.jpg 002.cls 002.jpg 003.cls 003.jpg
tar --sort=name -cf shard-000001.tar -C samples 004.cls 004.jpg 005.cls 005.jpg 006.cls 006.jpg 007.cls 007.jpg
"""
PRELUDE = """#include <millrace/millrace.h>
#include <millrace/millrace-transport.h>
#include <string.h>
int report(const mr_status *st);
void use(const mr_array *column);
int fragment(const char *const *files, size_t n);
int fragment(const char *const *files, size_t n)
{
"""
# %(parameters)s, ... are blocks of the headers; what is open after them is run, and resumed at every place.
OWN_OP = """#include <millrace/millrace.h>
#include <stdio.h>
#include <string.h>
%(parameters)s
%(slots)s
%(descriptor)s
static int report(const mr_status *st)
{
    fprintf(stderr, "%%s\\n", st->message);
    return 1;
}
static size_t used;
static void use(const mr_array *column)
{
    used += column->rows;
}
static int run(mr_dataset *ds, int k, mr_status *st)
{
    mr_iterator *it = NULL;
    mr_block b = MR_BLOCK_EMPTY;
    mr_iterator_opts opts = {.positions = true};
    mr_code rc = mr_iterator_open(&it, ds, &opts, st);
    for (int i = 0; rc == MR_OK && (rc = mr_iterator_next(it, 1, &b, st)) == MR_OK; i++) {
        printf("%%zu ", mr_array_row_values(&b.columns[0]));
        if (i != k)
            continue;
        void *bytes = NULL;
        size_t size = 0;
        if (mr_iterator_save(it, &bytes, &size, st) != MR_OK)
            return report(st);
        mr_iterator_close(it);
        it = NULL;
        rc = mr_iterator_open(&it, ds, &opts, st);
        if (rc == MR_OK)
            rc = mr_iterator_restore(it, bytes, size, st);
        mr_free(bytes);
    }
    mr_block_reset(&b);
    mr_iterator_close(it);
    puts("");
    return rc == MR_END ? 0 : report(st);
}
int main(void)
{
%(chain)s
%(options)s
%(positions)s
%(registered)s
    for (int k = -1; k < 3; k++)
        if (run(ds, k, &st) != 0)
            return 1;
    mr_dataset_unref(ds);
    return rc != MR_END || used != 4;
}
"""
FOLDERS = "pipeline|shard|transport|trainer|cli|bench|tests|examples|docs"


class Failure(Exception):
    pass


class Skip(Exception):
    pass


class Python:
    """The interpreter that runs the Python blocks of a page."""

    def __init__(self, program, folder, build):
        self.program, self.folder, self.process = program, folder, None
        self.environment = dict(os.environ, PYTHONPATH=f"{build}/python", PYTHONDONTWRITEBYTECODE="1")

    def run(self, code, needs):
        if not self.program:
            raise Skip("the Python package is not built")
        if self.process is None:
            script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "python_blocks.py")
            self.process = subprocess.Popen([self.program, script], cwd=self.folder, env=self.environment, text=True,
                                            stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.process.stdin.write(json.dumps({"code": code, "needs": needs}) + "\n")
        self.process.stdin.flush()
        reply = self.process.stdout.readline()
        if not reply:
            status, self.process = self.process.wait(), None
            raise Failure(f"the interpreter ended with status {status}")
        reply = json.loads(reply)
        if "missing" in reply:
            raise Skip(f"{reply['missing']} is not installed")
        if "error" in reply:
            raise Failure(reply["error"])
        return reply["output"]

    def close(self):
        if self.process is not None:
            self.process.stdin.close()
            if self.process.wait(timeout=60):
                raise Failure(f"the interpreter ended with status {self.process.returncode}")


def blocks_of(text):
    """(line number, language or "", text, the mark before it: a reason not to run it, and the packages it needs)
    of each block."""
    lines = text.splitlines()
    i, reason, needs = 0, None, []
    while i < len(lines):
        line = lines[i]
        mark = re.fullmatch(r"<!-- (not run|needs): (.+) -->", line)
        start, language = i + 1, ""
        if mark:
            reason, needs = (mark[2], needs) if mark[1] == "not run" else (reason, mark[2].split(", "))
            i += 1
            continue
        if line.startswith("```"):
            language = line[3:].strip()
            body = []
            i += 1
            while i < len(lines) and not lines[i].startswith("```"):
                body.append(lines[i])
                i += 1
            i += 1
        elif line.startswith("    ") and (i == 0 or not lines[i - 1].strip() or reason):
            body = []
            while i < len(lines) and (lines[i].startswith("    ") or
                                      (not lines[i].strip() and lines[i + 1:i + 2] and
                                       lines[i + 1].startswith("    "))):
                body.append(lines[i][4:])
                i += 1
        else:
            if line.strip():
                reason, needs = None, []
            i += 1
            continue
        yield start, language, "\n".join(body), reason, needs
        reason, needs = None, []


def with_outputs(blocks):
    """The same, each with the text block that follows it if it is Python, else None."""
    blocks = list(blocks)
    for i, block in enumerate(blocks):
        if block[1] == "text" and i > 0 and blocks[i - 1][1] == "python":
            continue
        follows = block[1] == "python" and i + 1 < len(blocks) and blocks[i + 1][1] == "text"
        yield *block, blocks[i + 1][2] if follows else None


def run(command, folder, program=None):
    done = subprocess.run(program or ["bash", "-c", command], cwd=folder, text=True, timeout=1200, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    return done.returncode, done.stdout


def statements(text):
    """Logical lines: what is indented, or follows a backslash, belongs to the line before."""
    whole = []
    for line in text.splitlines():
        if whole and (line[:1] in (" ", ".", "") or whole[-1].endswith("\\")):
            whole[-1] += "\n" + line
        else:
            whole.append(line)
    return whole


def run_session(text, folder):
    for part in re.split(r"^\$ ", text, flags=re.M)[1:]:
        command, wanted = [], part.splitlines()
        while wanted:
            command.append(wanted.pop(0))
            if not command[-1].endswith("\\"):
                break
        _, output = run("\n".join(command), folder)
        if output.splitlines() != wanted:
            _, output = run("{ " + "\n".join(command) + "\n} 2>/dev/null", folder)
        if output.splitlines() != wanted:
            raise Failure(f"$ {command[0]}\nprints\n{output}instead of\n" + "\n".join(wanted))


def run_commands(text, folder):
    for command in statements(text):
        status, output = run(command, folder)
        if status:
            raise Failure(f"{command}: exit status {status}\n{output}")


def build_pipelines(text, folder):
    for pipeline in statements(text):
        status, output = run("", folder, ["millrace", "show", "--limit", "0", pipeline])
        # Of a service that is not there, or another program's.
        away = status == 2 and output.startswith(("millrace: unavailable: ", "millrace: deadline exceeded: "))
        if status not in (0, 1) and not away or "Sanitizer" in output:
            raise Failure(f"{pipeline}: exit status {status}\n{output}")


def compile_c(text, folder, build, compiler, wanted=None):
    whole = re.search(r"^int main\(", text, re.M)
    path = os.path.join(folder, "block.c")
    with open(path, "w", encoding="utf-8") as out:
        out.write(text + "\n" if whole else PRELUDE + text + "\n    return 0;\n}\n")
    command = [compiler, "-std=c11", "-Wall", "-Wextra", "-Werror", "-Wno-unused", f"-I{build}/include",
               f"-I{build}/generated", path]
    if whole:
        command += ["-o", path[:-2], f"-L{build}", f"-Wl,-rpath,{build}", "-lmillrace"]
    else:
        command += ["-fsyntax-only"]
    status, output = run("", folder, command)
    if status == 0 and whole:
        status, output = run("", folder, [path[:-2]])
    if status or wanted not in (None, output):
        raise Failure(output)


def compile_cpp(text, folder, build, compiler, wanted=None):
    path = os.path.join(folder, "block.cpp")
    with open(path, "w", encoding="utf-8") as out:
        out.write(text + "\n")
    status, output = run("", folder, [compiler, "-std=c++17", "-Wall", "-Wextra", "-Wpedantic", "-Werror",
                                      f"-I{build}/include", f"-I{build}/generated", path, "-o", path[:-4],
                                      f"-L{build}", f"-Wl,-rpath,{build}", "-lmillrace"])
    if status == 0:
        status, output = run("", folder, [path[:-4]])
    if status or wanted not in (None, output):
        raise Failure(output)


def head_blocks(path):
    """The blocks of code in the first comment of a file but the SPDX line: indented after an empty line."""
    with open(path, encoding="utf-8") as source:
        comment = re.search(r"/\* (?!SPDX).*?\*/", source.read(), re.S)[0]
    return [re.sub(r"^ \* {5}", "", block, flags=re.M)
            for block in re.findall(r"(?<= \*\n)(?: \* {5}.*\n)+", comment)]


def run_own_op(root, folder, build, compiler):
    parameters, descriptor = head_blocks(f"{root}/pipeline/graph/op.h")
    slots, = head_blocks(f"{root}/pipeline/engine/op_iterator.h")
    chain, options, positions, registered = (
        textwrap.indent(block, "    ") for block in head_blocks(f"{root}/cmake/millrace.h.in"))
    compile_c(OWN_OP % locals(), folder, build, compiler, wanted="3 3 1 \n" * 4)


def run_python(python, code, needs, wanted):
    output = python.run(code, needs)
    if wanted is not None and output.rstrip("\n") != wanted:
        raise Failure(f"prints\n{output}instead of\n{wanted}")


def is_json(text):
    try:
        for line in text.splitlines():
            json.loads(line)
    except ValueError:
        return False
    return True


def try_block(language, text, folder, build, compilers):
    first = text.split(None, 1)[0] if text.strip() else ""
    if text.startswith("$ "):
        run_session(text, folder)
    elif language == "c":
        compile_c(text, folder, build, compilers[0])
    elif language == "cpp":
        compile_cpp(text, folder, build, compilers[1])
    elif os.path.basename(first) in PROGRAMS:
        run_commands(text, folder)
    elif is_json(text):
        return
    elif re.match(r"[a-z_]+\(", text):
        build_pipelines(text, folder)
    else:
        raise Failure("neither run nor marked by <!-- not run: REASON -->")


def anchors(path):
    with open(path, encoding="utf-8") as page:
        titles = re.findall(r"^#+ (.*)$", page.read(), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def check_links(root, page, text):
    """Every link, and every file of the tree that the page names. Returns the pages linked."""
    linked = set()
    prose = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", prose):
        if re.match(r"[a-z]+:", target):
            raise Failure(f"{target}: links leave the tree; nobody can follow them without a network")
        name, _, anchor = target.partition("#")
        path = os.path.normpath(os.path.join(os.path.dirname(page), name)) if name else page
        if not os.path.exists(os.path.join(root, path)):
            raise Failure(f"the link {target} leads nowhere")
        if anchor and anchor not in anchors(os.path.join(root, path)):
            raise Failure(f"{target}: there is no such heading")
        linked.add(path)
    for name in re.findall(rf"(?:^|[\s`(])((?:{FOLDERS})/[\w./*-]*[\w*/])", prose):
        if "foo" not in name and not glob.glob(os.path.join(root, name)):
            raise Failure(f"{name} does not exist")
    for name in re.findall(r"[\w./-]+\.md\b", prose):
        places = (os.path.dirname(page), "", "docs")
        if not any(os.path.exists(os.path.join(root, place, name)) for place in places):
            raise Failure(f"{name} does not exist")
    return linked


def main():
    build, compilers = os.path.abspath(sys.argv[1]), sys.argv[2:4]
    interpreter, only = os.environ.get("MR_DOCS_PYTHON") or (sys.argv[4:5] or [""])[0], sys.argv[5:]
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    os.environ["PATH"] = build + os.pathsep + os.environ["PATH"]
    pages = ["README.md"] + sorted(os.path.relpath(p, root) for p in glob.glob(f"{root}/docs/*.md"))
    tested = [page for page in pages if not only or page in only]
    failed, linked = 0, {"README.md"}
    with open(os.environ.get("TAP_FILE", os.devnull), "w", encoding="utf-8") as tap:
        def test(name, work):
            nonlocal failed
            try:
                work()
                print(f"ok - docs::{name}", file=tap)
            except Skip as why:
                print(f"ok - docs::{name} # SKIP {why}", file=tap)
                print(f"SKIPPED {name}: {why}")
            except (Failure, subprocess.TimeoutExpired) as why:
                failed += 1
                print(f"not ok - docs::{name}", file=tap)
                print(f"FAILED {name}: {why}")
        for page in tested:
            with open(os.path.join(root, page), encoding="utf-8") as source:
                text = source.read()
            test(f"links of {page}", lambda: linked.update(check_links(root, page, text)))
            with tempfile.TemporaryDirectory(prefix="millrace-docs-") as folder:
                status, output = run("set -e\n" + FIXTURES, folder)
                if status:
                    sys.exit(f"the files that pages use could not be made:\n{output}")
                python = Python(interpreter, folder, build)
                for line, language, block, reason, needs, output in with_outputs(blocks_of(text)):
                    if reason:
                        continue
                    name = f"{page}:{line}"
                    if language == "python":
                        test(name, lambda: run_python(python, block, needs, output))
                    else:
                        test(name, lambda: try_block(language, block, folder, build, compilers))
                test(f"Python of {page} ends", python.close)
        if only:
            return 1 if failed else 0

        with tempfile.TemporaryDirectory(prefix="millrace-docs-") as folder:
            test("the op in the headers runs", lambda: run_own_op(root, folder, build, compilers[0]))
            program = "\n\n".join(head_blocks(f"{root}/cmake/millrace.hpp.in"))
            test("the program in millrace.hpp runs", lambda: compile_cpp(
                program, folder, build, compilers[1], wanted="".join(f"{i}\n" for i in range(10))))

        def page_is_what_the_table_says(page, *command):
            status, printed = run("", root, ["millrace", *command])
            with open(f"{root}/docs/{page}.md", encoding="utf-8") as source:
                if status or source.read() != printed:
                    raise Failure(f"'millrace {' '.join(command)}' prints another page: write that to docs/{page}.md")
        for page in (("ops", "ops", "--page", "ops"), ("expressions", "ops", "--page", "expressions"),
                     ("components", "components", "--page")):
            test(f"docs/{page[0]}.md is what millrace {page[1]} prints",
                 lambda page=page: page_is_what_the_table_says(*page))

        def every_page_is_linked():
            missing = set(pages) - linked
            if missing:
                raise Failure(f"no link leads to {', '.join(sorted(missing))}")
        test("every page is linked", every_page_is_linked)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
