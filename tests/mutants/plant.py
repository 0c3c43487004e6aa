#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Plants the faults of tests/mutants/*.tsv one after the other, and says which of them the tests notice.

    tests/mutants.sh [--only REGEX] [--file REGEX] [--dir DIR] [--jobs N] [--list | --stale | --tiers]

A row of a table, with a tab between its fields, says in this order: the behaviour that is broken (a name), the
source file, the text there (it must occur there exactly once), what replaces it, the tests that should notice
(separated by commas, run until one fails: names of ctest, or PROGRAM:PART for those tests of test_PROGRAM that have
PART in their name, or cuda:PART for those of test_trainer_device on the double of NVIDIA's libraries), and, for a
fault that no test can notice, why. "\\n" in a text is a new line. Rows with a reason count as survivors.

Rows are taken by file, so that one file is compiled a row; only the programs that a row's tests need are linked, and
only those tests run. The last line counts the verdicts and says how long it took. A fault whose test runs into its
time limit is noticed too, but counted apart: on a machine that is too busy any row may end so.

--tiers only reads the sources: every row must name tests that exist and run in the quick or the full tier of some
build. Rows whose tests run in the long tier alone are listed in long_only.txt, each with a tab and the reason.

It fails where a row is stale or does not compile, where a fault survives without a reason or is caught in spite of
one, and where fewer than nine tenths are caught.
"""
import argparse
import fcntl
import glob
import os
import re
import shutil
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
LIMIT = 120  # seconds for the tests of one fault
# What the runner, a test's own alarm and ctest say of a test that did not end.
TIMED_OUT = re.compile(r"ran longer than \d+ s|Alarm clock|\*\*\*Timeout")


class Row:
    def __init__(self, line, where):
        fields = line.split("\t")
        if len(fields) not in (5, 6):
            sys.exit(f"{where}: {len(fields)} fields instead of 5 or 6")
        self.name, self.file, self.old, self.new = fields[:4]
        self.tests, self.reason = fields[4].split(","), fields[5] if len(fields) == 6 else ""
        self.old, self.new = (text.replace("\\n", "\n") for text in (self.old, self.new))
        self.where = where

    def stale(self, root):
        """Why the row does not apply, or None."""
        try:
            with open(os.path.join(root, self.file), encoding="utf-8") as f:
                n = f.read().count(self.old)
        except OSError as error:
            return error.strerror
        return None if n == 1 else f"its text stands there {n} times"


def read_rows(only, file):
    rows, names = [], set()
    for path in sorted(glob.glob(os.path.join(ROOT, "tests/mutants/*.tsv"))):
        with open(path, encoding="utf-8") as f:
            for number, line in enumerate(f, 1):
                line = line.rstrip("\n")
                if not line or line.startswith("#"):
                    continue
                row = Row(line, f"{os.path.basename(path)}:{number}")
                if row.name in names:
                    sys.exit(f"{row.where}: a second row {row.name}")
                names.add(row.name)
                if re.search(only, row.name) and re.search(file, row.file):
                    rows.append(row)
    return sorted(rows, key=lambda row: row.file)


# ---- which tier a row's tests belong to, from the sources of the tests

TIER = {"": "quick", "_SLOW": "full", "_LONG": "long"}  # of MR_TEST, MR_TEST_SLOW and MR_TEST_LONG


def identifier(path):
    return re.sub(r"[^A-Za-z0-9]", "_", path)


def read_text(path):
    with open(path, encoding="utf-8", errors="replace") as f:
        return f.read()


def tests_of_programs():
    """{program: [(suite::name, tier)]}. A macro may make tests of its argument, also in an included table."""
    found, macros, texts = {}, {}, {}
    for path in glob.glob(os.path.join(ROOT, "tests/**/*.[ch]"), recursive=True):
        texts[os.path.relpath(path, os.path.join(ROOT, "tests"))] = text = read_text(path)
        for macro, parameter, body in re.findall(r"^#define (\w+)\((\w+)\)((?:.*\\\n)*.*)", text, re.M):
            made = re.findall(r"MR_TEST(|_SLOW|_LONG)\(([\w#]*)\)", body)
            if made and not macro.startswith("MR_TEST") and not macro.startswith("MR__"):
                macros[macro] = [(tier, re.sub(rf"(##)?\b{parameter}\b(##)?", "%", name)) for tier, name in made]
    for path, text in texts.items():
        if not path.endswith(".c"):
            continue
        tests = [(name, TIER[tier]) for tier, name in re.findall(r"^MR_TEST(|_SLOW|_LONG)\((\w+)\)", text, re.M)]
        for macro, made in macros.items():
            arguments = re.findall(rf"^{macro}\((\w+)\)", text, re.M)
            for table in re.findall(r'#include "(.*\.def)"', text):
                arguments += re.findall(rf"^{macro}\((\w+)\)", read_text(os.path.join(ROOT, table)), re.M)
            tests += [(name.replace("%", argument), TIER[tier]) for argument in arguments for tier, name in made]
        suite = identifier(path[:-2])
        found.setdefault(identifier(os.path.dirname(path)), []).extend(
            (f"{suite}::{name}", tier) for name, tier in tests)
    return found


def tests_of_scripts():
    """{name in ctest: the tiers of its builds}, from the lines "# tier: ..." of the scripts"""
    found = {}
    for path in glob.glob(os.path.join(ROOT, "tests/**/*.*"), recursive=True):
        if not path.endswith((".sh", ".py")):
            continue
        name = identifier(os.path.relpath(path, os.path.join(ROOT, "tests")).removesuffix(".py"))
        for other, tiers in re.findall(r"^# tier(?: (\w+))?: (.*)", read_text(path)[:4096], re.M):
            found[other or name] = re.findall(r"=(\w+)", tiers)
    for path in glob.glob(os.path.join(ROOT, "tests/fuzz/fuzz_*.c")):
        found[os.path.basename(path)[:-2]] = found["fuzz_run_sh"]
    return found


def check_tiers(rows):
    """Prints what is wrong with the tests that rows name, then a count; the exit status"""
    programs, scripts = tests_of_programs(), tests_of_scripts()
    exceptions, used, bad = {}, set(), []
    for line in read_text(os.path.join(ROOT, "tests/mutants/long_only.txt")).splitlines():
        if line and not line.startswith("#"):
            name, _, reason = line.partition("\t")
            exceptions[name] = reason
    for row in rows:
        tiers = []
        for test in row.tests:
            program, _, part = test.partition(":")
            if program == "cuda":
                made = programs["trainer_device"]
            else:
                made = programs.get(program, [])
            its = [tier for name, tier in made if part in name] or scripts.get(test, [])
            if not its:
                bad.append(f"{row.where} {row.name}: there is no test {test}")
            tiers += its
        if tiers and not {"quick", "full"} & set(tiers):
            used.add(row.name)
            if not exceptions.get(row.name):
                bad.append(f"{row.where} {row.name}: only the long tier runs {','.join(row.tests)}")
    bad += [f"long_only.txt: {name}: no such row, or its tests are not in the long tier alone"
            for name in exceptions if name not in used]
    print("".join(line + "\n" for line in bad) + f"{len(rows)} rows, {len(used)} for the long tier alone, {len(bad)} wrong")
    return 1 if bad else 0


def copy_tree(to):
    """What git knows or would take, as it is now; files that did not change keep their times."""
    names = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
                           capture_output=True, check=True).stdout.decode().split("\0")
    kept = set()
    for name in filter(None, names):
        source, copy = os.path.join(ROOT, name), os.path.join(to, name)
        if not os.path.isfile(source):
            continue
        kept.add(copy)
        with open(source, "rb") as f:
            data = f.read()
        try:
            with open(copy, "rb") as f:
                if f.read() == data:
                    continue
        except OSError:
            os.makedirs(os.path.dirname(copy), exist_ok=True)
        with open(copy, "wb") as f:
            f.write(data)
        shutil.copymode(source, copy)
    for folder, _, files in os.walk(to):
        for name in files:
            if os.path.join(folder, name) not in kept:
                os.unlink(os.path.join(folder, name))


def targets_of(tests):
    """What must be built for these tests."""
    out, scripts = set(), tests_of_scripts()
    for test in (test.partition(":")[0] for test in tests):
        if test == "cuda":
            out |= {"millrace-cuda", "cuda-double", "test_trainer_device"}
        elif test.startswith("fuzz_"):
            out.add(test)
        elif test == "cpp":
            out |= {"millrace", "millrace-shared"}
        elif test in ("known", "known_identities", "oracle", "held") or test in scripts:
            out |= {"millrace", "oracle_held"}
            if "trainer" in test or "cli" in test:
                out.add("millrace-train")
        else:
            out.add("test_" + test)
    return sorted(out)


class Bed:
    """The copy and its build."""

    def __init__(self, folder, jobs):
        self.tree, self.build = os.path.join(folder, "tree"), os.path.join(folder, "build")
        self.jobs = str(jobs)

    def run(self, *command, limit=None, more=None):
        """(status, output); the status is -1 where it ran too long"""
        environment = {**os.environ, "MR_TEST_TIMEOUT": str(LIMIT // 4), "MR_TEST_FAIL_FAST": "1",
                       "MR_TEST_SEED": "1", "MR_TEST_TIER": "full", "LC_ALL": "C.UTF-8", "CCACHE_DISABLE": "1", **(more or {})}
        try:
            run = subprocess.run(command, cwd=self.tree, env=environment, stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=limit, check=False)
            return run.returncode, run.stdout.decode(errors="replace")
        except subprocess.TimeoutExpired:
            return -1, "ran too long"

    def configure(self):
        status, output = self.run("cmake", "-S", ".", "-B", self.build, "-G", "Ninja", "-DMR_BUILD_BENCH=OFF",
                                  "-DMR_BUILD_EXAMPLES=OFF", "-DMR_WITH_CRITERION=OFF", "-DCMAKE_BUILD_TYPE=Debug",
                                  "-DCMAKE_C_FLAGS_DEBUG=-O1",
                                  "-DMR_CUDA_ARCHITECTURES=90")
        if status:
            sys.exit(output[-4000:])

    def has_cuda(self):
        """Whether nvcc was found."""
        return os.path.exists(os.path.join(self.build, "tests", "cuda_double"))

    def compile(self, tests):
        """The output of a build that failed, or None."""
        status, output = self.run("nice", "cmake", "--build", self.build, "--parallel", self.jobs, "--target",
                                  *targets_of(tests))
        return output if status else None

    def test(self, test):
        """("passes", "fails" or "timed out", output)"""
        program, _, part = test.partition(":")
        if part:
            double = {"LD_LIBRARY_PATH": os.path.join(self.build, "tests", "cuda_double", "lib"),
                      "MILLRACE_CUDA_MODULE": os.path.join(self.build, "millrace-cuda.so"),
                      "MR_TEST_DEVICES": "cuda:0", "MR_DOUBLE_DELAY": "20"} if program == "cuda" else {}
            program = "trainer_device" if double else program
            status, output = self.run(os.path.join(self.build, "tests", "test_" + program), "--filter=" + part,
                                      limit=LIMIT, more=double)
            if status == 2:
                sys.exit(f"{test}: {output}")
        else:
            status, output = self.run("ctest", "--test-dir", self.build, "-R", f"^{re.escape(test)}$",
                                      "--no-tests=error", "--timeout", str(LIMIT), limit=LIMIT + 10)
        if status == 0:
            return "passes", output
        return ("timed out" if status == -1 or TIMED_OUT.search(output) else "fails"), output

    def plant(self, row):
        """Returns what undoes it."""
        path = os.path.join(self.tree, row.file)
        with open(path, encoding="utf-8") as f:
            text = f.read()
        with open(path, "w", encoding="utf-8") as f:
            f.write(text.replace(row.old, row.new))

        def undo():
            with open(path, "w", encoding="utf-8") as f:
                f.write(text)
        return undo


def failed_of(test, output):
    """The test, and which one of its parts failed first, where the output says so."""
    found = re.search(r"^(?:FAIL|not ok)\s+(?:\d+ )?(?:- )?(.*)", output, re.M)
    return f"{test}: {found.group(1)}" if found else test


def verdict_of(bed, row):
    why = row.stale(bed.tree)
    if why:
        return "STALE", why
    undo = bed.plant(row)
    try:
        for test in row.tests:
            output = bed.compile([test])
            if output is not None:
                return "DOES NOT COMPILE", "\n".join(re.findall(r"^.*error.*$", output, re.M)[:3])
            result, output = bed.test(test)
            if result == "timed out":
                return result, test
            if result == "fails":
                why = failed_of(test, output)
                return ("CAUGHT IN SPITE OF ITS REASON", why) if row.reason else ("caught", why)
        return ("survives", row.reason) if row.reason else ("SURVIVED", "")
    finally:
        undo()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="REGEX", help="rows with such names")
    parser.add_argument("--file", default="", metavar="REGEX", help="rows that change such files")
    parser.add_argument("--dir", default=os.path.join(ROOT, "build-test", "mutants"),
                        help="keeps the copy and its build for the next run (default: build-test/mutants)")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--no-first", dest="first", action="store_false",
                        help="does not run all tests without a fault first")
    parser.add_argument("--list", action="store_true", help="prints the rows")
    parser.add_argument("--stale", action="store_true", help="only looks whether every row finds its text")
    parser.add_argument("--tiers", action="store_true", help="only looks whether every row's tests run in CI")
    options = parser.parse_args()
    began = time.monotonic()
    rows = read_rows(options.only, options.file)
    if options.list:
        for row in rows:
            print(f"{row.name:<60} {row.file}{'  (survives)' if row.reason else ''}")
        return 0
    if options.stale:
        found = [(row, why) for row in rows for why in [row.stale(ROOT)] if why]
        for row, why in found:
            print(f"STALE {row.where} {row.name}: {row.file}: {why}")
        print(f"{len(rows) - len(found)} rows apply, {len(found)} are stale")
        return 1 if found else 0
    if options.tiers:
        return check_tiers(rows)
    os.makedirs(options.dir, exist_ok=True)
    # Held until this process ends: two runs would plant faults into each other's copy.
    lock = open(os.path.join(options.dir, "lock"), "w", encoding="utf-8")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        sys.exit(f"another run works in {options.dir}; wait for it, or give this one a folder of its own with --dir")
    bed = Bed(os.path.abspath(options.dir), options.jobs)
    copy_tree(bed.tree)
    bed.configure()
    if not bed.has_cuda():
        left_out = [row for row in rows if any(test.startswith("cuda:") for test in row.tests)]
        rows = [row for row in rows if row not in left_out]
        print(f"{len(left_out)} rows are left out: their tests want nvcc")
    everything = sorted({test for row in rows for test in row.tests})
    output = bed.compile(everything)
    if output is not None:
        sys.exit(output[-4000:])
    for test in everything if options.first else []:
        result, output = bed.test(test)
        if result != "passes":
            sys.exit(f"{test} {result} without any fault:\n{output[-4000:]}")
    return run(bed, rows, began)


def run(bed, rows, began):
    """Prints a line for each row and one with the counts, also where it is interrupted; returns the exit status."""
    counts = {}
    try:
        for number, row in enumerate(rows, 1):
            row_began = time.monotonic()
            verdict, why = verdict_of(bed, row)
            counts[verdict] = counts.get(verdict, 0) + 1
            print(f"{number}/{len(rows)} {verdict:<8} {row.name} ({row.file}, {time.monotonic() - row_began:.0f} s)"
                  + (f": {why}" if why else ""), flush=True)
    except KeyboardInterrupt:
        print()
    ran = sum(counts.values())
    line = [f"{counts.pop(key, 0)} {name}" for key, name in
            (("caught", "caught"), ("timed out", "timed out"), ("survives", "survive with a reason"),
                              ("SURVIVED", "survive"), ("STALE", "stale"))]
    numbers = [int(part.split()[0]) for part in line]
    caught, bad = numbers[0] + numbers[1], ran - sum(numbers[:3])
    line += [f"{n} {verdict.lower()}" for verdict, n in sorted(counts.items())]
    if ran < len(rows):
        line.append(f"{len(rows) - ran} not run")
    print(f"{', '.join(line)}; {time.monotonic() - began:.0f} s")
    return 1 if bad or ran < len(rows) or caught * 10 < len(rows) * 9 else 0


if __name__ == "__main__":
    sys.exit(main())
