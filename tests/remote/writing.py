#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# tier: plain=full
"""Writing to buckets of Ceph's gateway: all formats, what a failure of each request and a killed writer leave, other
writers. A forwarder between the program and the gateway counts requests, fails some, and loses answers."""
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
import urllib.parse

import gateway
import kit
from forwarder import Forwarder, kind
from kit import Run, result, show

if not kit.has_libcurl():
    kit.skip_all("built without libcurl")
if gateway.missing():
    kit.skip_all(gateway.missing())


store = gateway.Gateway()
try:
    store.make_bucket("bucket")
    os.environ.update(store.environment)
    forwarder = Forwarder(store.port)
    os.environ["AWS_ENDPOINT_URL"] = forwarder.endpoint

    def write(prefix, expression, *arguments, **environment):
        return Run(["write", "--out", f"s3://bucket/{prefix}", "--expr", expression, *arguments], **environment)

    def keys(prefix=""):
        page = store.request("GET", "bucket", query="list-type=2&prefix=" + urllib.parse.quote(prefix, safe="")).decode()
        return re.findall(r"<Key>([^<]*)</Key>", page)

    def uploads(prefix=""):
        run = Run(["uploads", f"s3://bucket/{prefix}", "--json"])
        return json.loads(run.stdout) if run.status == 0 else [str(run)]

    def names(prefix, n, ending="tfrecord"):
        return [f"{prefix}-{i:05}-of-{n:05}.{ending}" for i in range(n)]

    # ---- formats: what is read is what was written; small objects and multipart ones
    READS = {"tfrecord": 'tfrecord("{}").map(r => parse_example(r, a=int64, b=string))',
             "jsonl": 'jsonl("{}", {{"a": int64, "b": string}})', "arrow": 'arrow("{}")', "parquet": 'parquet("{}")'}
    ELEMENTS = 'range(7).map(i => {"a": i, "b": "x"})'
    for form, read in READS.items():
        run = write(f"f-{form}", ELEMENTS, "--format", form, "--shards", "2")
        back = show(read.format(f"s3://bucket/f-{form}-*"))
        want = show(f"{ELEMENTS}.shard(2, 0).concatenate({ELEMENTS}.shard(2, 1))")
        result(f"{form}_is_read_back", run.status == 0 and len(want.lines) == 7 and back.lines == want.lines,
               f"{run}\n{back}\n{back.lines}\n{want}\n{want.lines}")
    run = write("f-npy", "range(7)", "--format", "npy", "--shards", "2")
    back = show('npy("s3://bucket/f-npy-*")')
    result("npy_is_read_back", back.lines == ["0", "2", "4", "6", "1", "3", "5"], f"{run}\n{back}\n{back.lines}")
    run = write("none", "range(0)", "--shards", "2")
    result("no_elements", run.status == 0 and keys("none") == names("none", 2), f"{run} {keys('none')}")
    run = write("dict", "range(20000)", "--compress", "zstd-record")
    back = show('tfrecord("s3://bucket/dict-*", record_compression="ZSTD").skip(19999)')
    result("a_dictionary", run.status == 0 and "dict.dict" in keys("dict") and len(back.lines) == 1, f"{run}\n{back}")

    # 40 MiB: three parts; the head of an npy file is written last
    BIG = "range(5242880)"
    forwarder.take()
    run = write("big", BIG, "--format", "npy")
    seen = [r for r in forwarder.take() if "partNumber" in r[1]]
    back = show('npy("s3://bucket/big-*").skip(5242878)')
    result("parts_of_16_mib", run.status == 0 and back.lines == ["5242878", "5242879"] and
           sorted(r[2] for r in seen)[-2:] == [16 << 20, 16 << 20] and len(seen) == 3, f"{run}\n{back}\n{seen}")
    run = write("small", "range(5)")
    seen = forwarder.take()
    result("a_small_object_is_one_put", [r[0] for r in seen if r[0] != "GET"] == ["PUT"], str(seen))

    # ---- the order of a set: all parts, then the last shard first
    run = write("order", BIG, "--format", "npy", "--shards", "3")
    seen = [(r[0], r[1]) for r in forwarder.take() if r[0] in ("PUT", "POST")]
    ends = [p for m, p in seen if (m == "POST" and "uploadId" in p) or (m == "PUT" and "partNumber" not in p)]
    begun = [i for i, (m, p) in enumerate(seen) if (m, p) == ("POST", ends[0]) or p == ends[0]]
    later = [p for _, p in seen[begun[0]:] if "partNumber" in p]
    result("all_parts_come_first", run.status == 0 and not later, f"{run} {seen}")
    result("the_last_shard_appears_first", [re.search(r"-(\d{5})-of", p).group(1) for p in ends] ==
           ["00002", "00001", "00000"], str(ends))
    store.delete("bucket", names("order", 3, "npy")[0])
    run = show('npy("s3://bucket/order-*").take(1)')
    result("a_part_of_a_set_is_warned_of", run.status == 0 and "incomplete" in run.stderr, str(run))

    # ---- existing sets
    write("old", "range(4)", "--shards", "2")
    for name, arguments in (("the_same_names", ("--shards", "2")), ("other_names", ("--shards", "3"))):
        forwarder.take()
        run = write("old", "range(9)", *arguments)
        result(f"a_set_of_{name}_is_refused", run.status == 1 and "already exists" in run.stderr and
               "--overwrite" in run.stderr and all(r[0] == "GET" for r in forwarder.take()), str(run))
    forwarder.take()
    run = write("old", "range(9)", "--shards", "3", "--overwrite", "--format", "jsonl")
    changes = [kind(type("H", (), {"command": r[0], "path": r[1]})) for r in forwarder.take() if r[0] != "GET"]
    result("it_is_overwritten", run.status == 0 and keys("old") == names("old", 3, "jsonl"), f"{run} {keys('old')}")
    result("shard_0_goes_first", changes == ["delete", "put", "put", "put", "delete"], str(changes))
    run = write("old", "range(9)", "--shards", "3", "--overwrite", "--format", "jsonl")
    result("by_the_same_names", run.status == 0 and show('text_line("s3://bucket/old-*")').lines[0] == '"0"', str(run))
    run = write("f[1]*", "range(2)")
    result("a_prefix_with_wildcards", run.status == 0 and "f[1]*-00000-of-00001.tfrecord" in keys(), f"{run} {keys()}")

    # ---- another writer appears while this one writes
    def appears(h):
        if kind(h) == "list":
            lists.append(1)
            if len(lists) == 1:
                answer, body = h.forward()
                h.answer(answer.status, body)
                store.put("bucket", names("race", 2)[1], b"other")
                return True
        return False

    lists = []
    forwarder.hook = appears
    run = write("race", "range(4)", "--shards", "2")
    forwarder.hook = None
    result("a_second_writer_is_refused", run.status == 1 and "already exists" in run.stderr and
           keys("race") == [names("race", 2)[1]], f"{run} {keys('race')}")

    def condition(h):
        return kind(h) in ("put", "complete") and h.headers.get("If-None-Match") == "*" and h.answer(412)

    forwarder.hook = condition
    run = write("race2", "range(4)", "--shards", "2")
    forwarder.hook = None
    result("or_by_the_store", run.status == 1 and "already exists" in run.stderr and not keys("race2"), str(run))

    def no_conditions(h):
        return h.headers.get("If-None-Match") and h.answer(501)

    forwarder.hook = no_conditions
    run = write("plain", "range(4)", "--shards", "2")
    forwarder.hook = None
    result("a_store_without_conditions", run.status == 0 and keys("plain") == names("plain", 2), str(run))

    # ---- an answer is lost, for each kind of request: done, but not heard of; and a failure of each request
    TWO = "range(2621440)"  # 20 MiB in npy: two parts

    def lose(what):
        def hook(h):
            if kind(h) == what and not lost:
                lost.append(1)
                h.forward()
                return h.hang_up()
            return False
        return hook

    for what in ("list", "begin", "part", "complete"):
        lost = []
        forwarder.hook = lose(what)
        run = write(f"lost-{what}", TWO, "--format", "npy")
        forwarder.hook = None
        back = show(f'npy("s3://bucket/lost-{what}-*").skip(2621439)')
        result(f"a_lost_answer_to_{what}", run.status == 0 and lost and back.lines == ["2621439"], f"{run}\n{back}")
    lost = []
    forwarder.hook = lose("put")
    run = write("lost-put", "range(4)")
    result("a_lost_answer_to_put", run.status == 0 and lost and keys("lost-put") == names("lost-put", 1), str(run))

    def late(h):  # the store finishes after it has answered that it did not
        if kind(h) == "complete":
            if not lost:
                lost.append(1)
                h.forward()
                return h.answer(503)
            lost.append(2)
        return False

    lost = []
    forwarder.hook = late
    run = write("late", TWO, "--format", "npy")
    forwarder.hook = None
    result("a_completion_is_checked_before_it_is_repeated", run.status == 0 and lost == [1] and
           keys("late") == names("late", 1, "npy"), f"{run} {lost}")

    def quietly(h):
        return kind(h) == "complete" and h.answer(200, b"<Error><Code>InternalError</Code><Message>m</Message></Error>")

    forwarder.hook = quietly
    run = write("quiet", TWO, "--format", "npy", MILLRACE_REMOTE_RETRIES="2")
    forwarder.hook = None
    result("an_error_after_status_200", run.status == 1 and "InternalError" in run.stderr and not keys("quiet"), str(run))
    left = [u for u in uploads("quiet")]
    result("and_the_upload_is_aborted", not left, str(left))

    def nth(n, status):
        def hook(h):
            count.append(kind(h))
            return len(count) >= n and kind(h) not in ("abort",) and h.answer(status)
        return hook

    for status in (403, 503):
        for n in range(1, 40):
            count = []
            forwarder.hook = nth(n, status)
            run = write(f"fail{status}-{n}", "range(1966080)", "--shards", "2", "--format", "npy",
                        MILLRACE_REMOTE_RETRIES="1")
            forwarder.hook = None
            if run.status == 0:
                break
            there = keys(f"fail{status}-{n}-")
            good = run.status == 1 and names(f"fail{status}-{n}", 2, "npy")[0] not in there and not uploads(f"fail{status}-{n}-")
            if not good:
                break
        result(f"status_{status}_at_every_request_leaves_nothing", run.status == 0 and n > 4, f"request {n}: {run} {count}")

    # ---- signals: SIGTERM aborts; SIGKILL leaves nothing that looks whole, and `uploads` finds the rest
    def begin(prefix, **options):
        return subprocess.Popen([kit.millrace, "write", "--out", f"s3://bucket/{prefix}", "--format", "npy", "--shards", "2",
                                 "--expr", "range(100000000000)"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options)

    def wait_for_parts(n):
        while process.poll() is None and sum("partNumber" in r[1] for r in forwarder.requests) < n:
            time.sleep(0.01)

    for name, number in (("sigterm", signal.SIGTERM), ("sigint", signal.SIGINT)):
        forwarder.take()
        process = begin(name)
        wait_for_parts(3)
        process.send_signal(number)
        process.communicate(timeout=300)
        result(f"{name}_aborts_the_uploads", process.returncode == 128 + number and not keys(name) and not uploads(name),
               f"{process.returncode} {keys(name)} {uploads(name)}")
    forwarder.take()
    process = begin("killed")
    wait_for_parts(3)
    process.kill()
    process.communicate()
    left = uploads("killed")
    result("sigkill_leaves_uploads", not keys("killed") and len(left) == 2 and
           {u["url"] for u in left} == {f"s3://bucket/{k}" for k in names("killed", 2, "npy")} and
           all(u["id"] and u["initiated"].startswith("20") and u["aborted"] is False for u in left), str(left))
    run = Run(["uploads", "s3://bucket/killed"])
    result("uploads_prints_lines", len(run.lines) == 2 and all(u["id"] in run.stdout.decode() for u in left), str(run))
    run = Run(["uploads", "s3://bucket/killed", "--abort"])
    result("uploads_aborts_them", run.status == 0 and len(run.lines) == 2 and not uploads("killed"), str(run))
    result("other_uploads_stay_out", uploads("no-such-prefix") == [], "")
    for name, url in (("a_path", "local"), ("a_web_server", "https://host/a"), ("another_store", "gs://bucket/a")):
        run = Run(["uploads", url])
        result(f"uploads_of_{name}", run.status == 1, str(run))

    random.seed(7)
    whole, broken = 0, []
    for turn in range(12):
        prefix = f"random-{turn}"
        process = subprocess.Popen([kit.millrace, "write", "--out", f"s3://bucket/{prefix}", "--shards", "3", "--expr",
                                    "range(300)"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            process.communicate(timeout=random.uniform(0.0, 0.15))
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
        there = keys(prefix + "-")
        if there and names(prefix, 3)[0] in there:
            back = show(f'tfrecord("s3://bucket/{prefix}-*")')
            whole += 1
            if there != names(prefix, 3) or len(back.lines) != 300:
                broken.append(f"{prefix}: {there}")
    result("sigkill_at_random_moments_leaves_no_set_that_looks_whole", not broken, str(broken))

    # ---- Python
    package = os.path.join(kit.build, "python")
    if os.path.isdir(os.path.join(package, "millrace")):
        program = """import millrace as mr
w = mr.write([{"a": i} for i in range(5)], "s3://bucket/py", shards=2)
ds = mr.tfrecord(w.pattern).map(lambda r: mr.fn.parse_example(r, a=mr.int64))
print(w.records, w.files[0], sum(e["a"].item() for e in ds))
try:
    mr.write([1], "s3://bucket/py")
except mr.AlreadyExists:
    print("exists")
"""
        run = subprocess.run([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": package}, text=True,
                             capture_output=True, check=False, timeout=300)
        if "No module named" in run.stderr or "ImportError" in run.stderr:
            print(f"python is left out: {run.stderr.splitlines()[-1]}")
        else:
            result("python_writes", run.stdout.split() == ["5", "s3://bucket/py-00000-of-00002.tfrecord", "10", "exists"],
                   run.stdout + run.stderr)

    # ---- refusals
    for name, url, words in (("http", "http://127.0.0.1:1/a", "not written"), ("gs", "gs://bucket/a", "written"),
                             ("hf", "hf://datasets/a/b/c", "written"), ("a_bucket", "s3://bucket", "bucket")):
        run = Run(["write", "--out", url, "--expr", "range(3)"])
        result(f"writing_to_{name}_is_refused", run.status == 1 and words in run.stderr, str(run))
    run = Run(["write", "--out", "s3://bucket/old", "--recover"])
    result("recover_of_a_url", run.status == 1 and "--overwrite" in run.stderr, str(run))
    run = write("limit", BIG, "--format", "npy", "--shards", "8", "--memory-limit", "256M")
    back = show('npy("s3://bucket/limit-*").skip(5242879)')
    result("under_a_memory_limit", run.status == 0 and back.lines == ["5242879"], f"{run}\n{back}")
    run = write("limit2", BIG, "--format", "npy", "--shards", "64", "--memory-limit", "128M")
    result("a_limit_without_room_for_parts", run.status == 1 and "memory_limit" in run.stderr and not keys("limit2"),
           str(run))
    run = Run(["write", "--out", "s3://bucket/denied", "--expr", "range(3)"], AWS_SECRET_ACCESS_KEY="wrong")
    result("wrong_credentials", run.status == 1 and "permission denied" in run.stderr and "wrong" not in
           run.stderr.replace("AWS_ACCESS_KEY_ID", ""), str(run))
finally:
    store.close()
kit.end()
