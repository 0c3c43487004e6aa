# SPDX-License-Identifier: Apache-2.0
# tier: plain=full
"""Graphs of a hostile client that rights.py does not have: huge counts, huge files, names that hide a path. Each is
refused, fails or is read within the memory limit, and the worker serves the next one."""
import gzip
import os
import subprocess
import time

import kit
from kit import result

LIMIT = 64 << 20
root, secret = kit.path("in"), kit.path("out/secret.txt")
for folder in ("in", "in/b", "out"):
    os.mkdir(kit.path(folder))
for path, text in ((f"{root}/a.txt", "a\n"), (secret, "secret\n")):
    with open(path, "w") as f:
        f.write(text)
with open(f"{root}/sparse", "wb") as f:
    f.truncate(1 << 40)
member = gzip.compress(bytes(16 << 20))
with open(f"{root}/bomb.gz", "wb") as f:
    for _ in range(256):  # 4 GiB
        f.write(member)

BIG = 1000000000
MEMORY, DENIED, MISSING = "resource exhausted", "permission denied", "not found"
# name, graph, options, and the words of its failure, or the number of elements that are read
CASES = [
    # names
    ("dots_in_a_pattern", f'text_line("{root}/*/../../out/secret.txt")', "", DENIED),
    ("dots_as_percent", f'text_line("{root}/%2e%2e/out/secret.txt")', "", MISSING),
    ("a_scheme_and_dots", f'text_line("file://{root}/../out/secret.txt")', "", DENIED),
    ("a_host_of_a_scheme", f'text_line("file://localhost{secret}")', "", DENIED),
    ("a_newline", f'text_line("{root}/a.txt\\n{secret}")', "", MISSING),
    ("dots_beyond_PATH_MAX", f'text_line("{root}/{"b/../" * 2000}a.txt")', "", 1),
    ("dots_beyond_PATH_MAX_to_the_outside", f'text_line("{root}/{"b/../" * 2000}../out/secret.txt")', "", DENIED),
    ("an_open_descriptor", 'from_tensor_slices(["/proc/self/fd/3"]).flat_map(f => text_line(f))', "", "invalid argument"),
    ("a_descriptor_by_another_name", f'from_tensor_slices(["{root}/fd"]).flat_map(f => text_line(f))', "", DENIED),
    ("a_folder", f'text_line("{root}")', "", "failed precondition"),
    ("a_server_beside_it", 'text_line("http://169.254.169.254/latest/meta-data")', "", DENIED),
    # files
    ("a_line_of_a_terabyte", f'text_line("{root}/sparse")', "", MEMORY),
    ("an_element_of_a_terabyte", f'from_tensor_slices(["{root}/sparse"]).map(f => read_file(f))', "", MEMORY),
    ("a_record_of_a_terabyte", f'fixed_length_record("{root}/sparse", {1 << 39})', "", MEMORY),
    ("a_bomb_of_gzip", f'text_line("{root}/bomb.gz", compression="GZIP")', "", MEMORY),
    # counts
    ("prefetch", f"range(300).map(x => zeros([250000])).prefetch({BIG}).map(x => x[0])", "", 300),
    ("threads", f"range(9).map(x => x, num_parallel_calls={BIG})", "", 9),
    ("cycles", f"range(9).interleave(x => range(1), cycle_length={BIG}, num_parallel_calls={BIG})", "", MEMORY),
    ("block_length", "range(9)", f"block_length={BIG}", 9),
    ("outstanding_bytes", "range(9)", f"max_outstanding_bytes={1 << 60}", 9),
    ("skip", f"range(9).skip({1 << 62})", "", 0),
    ("repeat_of_nothing", f"range(0).repeat({1 << 62})", "", 0),
    ("deep_functions", "range(3)" + ".flat_map(x => range(3)" * 60 + ")" * 60 + ".take(0)", "", 0),
]
os.symlink("/proc/self/fd/3", f"{root}/fd")
d = kit.Dispatcher()
w = kit.Daemon("worker", "--dispatcher", d.at, "--root", root, "--memory-limit", str(LIMIT), "--threads", "2", name="worker")


def attack(graph, options, after=""):
    """The client's status, its output and errors, and the most memory that the worker had."""
    graph = f'{graph}.distribute("{d.at}", {", ".join(filter(None, ["streams=1", options]))}){after}'
    with open(kit.path("output"), "w+") as out:
        p = subprocess.Popen([kit.millrace, "show", graph], cwd=kit.directory, stdin=subprocess.DEVNULL, stdout=out,
                             stderr=subprocess.STDOUT)
        most, end_at = 0, time.monotonic() + kit.PATIENCE
        while p.poll() is None and time.monotonic() < end_at:
            most = max(most, w.memory())
            time.sleep(0.01)
        p.kill()
        out.seek(0)
        return p.wait(), out.read(), most


for name, graph, options, how in CASES:
    status, out, most = attack(graph, options)
    good = status == 0 and out.count("\n") == how if isinstance(how, int) else status == 1 and f"{how}:" in out
    result(name, good and '"secret"' not in out, f"status {status}, not {how}: {out[-1000:]}")
    result(f"{name}_is_bounded", most < 3 * LIMIT, f"{most >> 20} MiB")

# A job for each repetition. The worker keeps nothing of its graph of 100 kB when the job was read to its end.
before = w.memory()
status, out, most = attack(f'range(1).map(x => ("{"a" * 100000}", x)[1])', "", ".repeat(300)")
result("many_jobs_are_read", status == 0 and out == "0\n" * 300, f"status {status}: {out[-1000:]}")
result("many_jobs_leave_nothing", most - before < 15 << 20, f"{before >> 20}, then {most >> 20} MiB")
result("the_worker_continues", attack(f'text_line("{root}/a.txt")', "")[:2] == (0, '"a"\n'), w.log()[-1000:])
result("all_end_well", w.stop() == 0 and d.stop() == 0, w.log()[-1000:] + d.log()[-1000:])
kit.end()
