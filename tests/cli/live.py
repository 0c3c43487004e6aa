#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# tier: plain=full
"""live.py [BUILD_DIR]   An input that waits for an outside producer (standard input, a FIFO): each element is
delivered before the next one is waited for, whatever ops follow. The producer writes a line only when the
result of the line before has arrived, so an op that waits for more rows hangs here."""
import os
import subprocess
import sys
import threading

from kit import equal, main

BUILD = sys.argv[1] if len(sys.argv) > 1 else os.environ["MR_BUILD"]
PROGRAM = os.path.join(os.path.abspath(BUILD), "millrace")
HANGS = 60  # seconds

ONE_EACH = [
    "map(x => x)",
    "map(x => x, num_parallel_calls=4)",
    "map(x => x, num_parallel_calls=auto)",
    "map(x => x, num_parallel_calls=4, deterministic=false)",
    "filter(x => true, num_parallel_calls=4)",
    "map(x => x, num_parallel_calls=2).filter(x => true, num_parallel_calls=3)",
    "flat_map(x => from_tensors(x))",
    "interleave(x => from_tensors(x), cycle_length=1)",
    "map(x => from_tensors(x)).flat_map(d => d)",
    "window(1).flat_map(w => w)",
    "batch(1).map(x => x, num_parallel_calls=4).unbatch()",
    "prefetch(4)",
    "prefetch(auto).map(x => x, num_parallel_calls=2).prefetch(1)",
    "scan(0, (s, x) => (s, x))",
    "unique().enumerate().map((i, x) => x)",
    "ignore_errors().take_while(x => true)",
    "cache().map(x => x, num_parallel_calls=2)",
    "concatenate(from_tensors(\"end\"))",
    "distribute(\"local\")",
    "map(x => x).distribute(\"local\").map(x => x, num_parallel_calls=2).prefetch(2)",
]


def converse(graph, options, sink, results, lines):
    """Writes each line when the one before has come back; an op that never gives it is ended by HANGS."""
    p = subprocess.Popen([PROGRAM, "show", *options, graph], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                         stderr=subprocess.PIPE, text=True)
    watch = threading.Timer(HANGS, p.kill)
    watch.start()
    try:
        to = sink(p)
        for i in range(lines):
            to.write(f"{i}\n")
            to.flush()
            results.append(p.stdout.readline())
        to.close()
        results.extend(p.stdout.read().splitlines(keepends=True))
        errors = p.stderr.read()
        equal(p.wait(), 0, f"exit status of {graph} {options}: {errors}")
    finally:
        watch.cancel()
        p.kill()
        p.wait()


def each_line_of_a_pipe_comes_back_before_the_next_is_written(_folder):
    graphs = [f'text_line("-").{ops}' for ops in ONE_EACH] + [
        'choose_from_datasets([text_line("-")], counter(0, 0))',
        'sample_from_datasets([text_line("-"), range(9).map(x => "b")], weights=[1.0, 0.0], seed=1)',
        'mix({"a": text_line("-")}, seed=1)',
        'zip(text_line("-"), counter()).map((x, i) => x)']
    for ops in graphs:
        for threads in ["0", "1", "4"]:
            got = []
            converse(ops, ["--threads", threads], lambda p: p.stdin, got, 12)
            got = [line.strip().strip('"').split('"')[-1] for line in got]
            equal(got[:12], [str(i) for i in range(12)], f"{ops} with {threads} threads")


def a_fifo_that_an_element_names_is_no_different(folder):
    path = os.path.join(folder, "fifo")
    os.mkfifo(path)
    graph = f'from_tensors("{path}").flat_map(f => text_line(f)).map(x => x, num_parallel_calls=3)'
    got = []
    converse(graph, [], lambda _p: open(path, "w", encoding="utf-8"), got, 8)
    equal([line.strip() for line in got], [f'"{i}"' for i in range(8)])


def lines_come_through_a_service_as_they_are_written(folder):
    daemons = []

    def start(*command):
        daemons.append(subprocess.Popen([PROGRAM, *command, "--listen", "127.0.0.1:0"], stdout=subprocess.PIPE, text=True))
        return daemons[-1].stdout.readline().split()[-1]
    try:
        service = start("dispatcher")
        start("worker", "--dispatcher", service)
        for options in ["", ", deterministic=false", ", block_length=3"]:
            path = os.path.join(folder, f"fifo{len(options)}")
            os.mkfifo(path)
            got = []
            converse(f'text_line("{path}").distribute("{service}"{options})', [],
                     lambda _p, path=path: open(path, "w", encoding="utf-8"), got, 6)
            equal([line.strip() for line in got], [f'"{i}"' for i in range(6)], f"lines with {options}")
    finally:
        for p in daemons[::-1]:
            p.terminate()
            p.wait()
            p.stdout.close()


def results_of_parallel_calls_over_a_pipe_are_complete_and_in_order(_folder):
    lines = "".join(f"{i}\n" for i in range(60000))
    for graph in ['text_line("-").map(x => to_number(x, "int64"), num_parallel_calls=4)',
                  'text_line("-").map(x => to_number(x, "int64")).filter(x => x % 7 == 0, num_parallel_calls=3)',
                  'text_line("-").map(x => to_number(x, "int64")).flat_map(x => range(x, x + 1))']:
        for threads in ["0", "2"]:
            p = subprocess.run([PROGRAM, "show", "--threads", threads, graph], input=lines, capture_output=True,
                               text=True, timeout=HANGS, check=True)
            want = range(0, 60000, 7 if "filter" in graph else 1)
            equal(p.stdout.split() == [str(i) for i in want], True, f"the rows of {graph}")


def positions_over_a_pipe_hold_what_was_pulled(folder):
    """Restored over a pipe that begins with the same lines."""
    state = os.path.join(folder, "state")
    graph = 'text_line("-").map(x => x, num_parallel_calls=3)'
    with subprocess.Popen([PROGRAM, "show", "--save-after", "2", "--state", state, graph], stdin=subprocess.PIPE,
                          stdout=subprocess.PIPE, text=True) as p:
        p.stdin.write("a\nb\nc\n")
        p.stdin.close()
        equal(p.stdout.read().split(), ['"a"', '"b"'])
    p = subprocess.run([PROGRAM, "show", "--restore", state, graph], input="a\nb\nc\nd\n", capture_output=True,
                       text=True, timeout=HANGS, check=False)
    equal((p.returncode, p.stdout.split()), (0, ['"c"', '"d"']), f"what follows: {p.stderr}")


if __name__ == "__main__":
    main("live", [each_line_of_a_pipe_comes_back_before_the_next_is_written,
                  a_fifo_that_an_element_names_is_no_different,
                  lines_come_through_a_service_as_they_are_written,
                  results_of_parallel_calls_over_a_pipe_are_complete_and_in_order,
                  positions_over_a_pipe_hold_what_was_pulled])
