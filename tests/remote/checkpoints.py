#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# tier: plain=full
"""Saved models, checkpoints and backups in a bucket of Ceph's gateway: what is read is what a local run has, what a
failure of each request and a killed run leave, and that old ones are removed."""
import json
import os
import re
import subprocess
import urllib.parse

import gateway
import kit
from forwarder import Forwarder, kind
from kit import Run, directory, result

if not kit.has_libcurl():
    kit.skip_all("built without libcurl")
if not os.path.exists(kit.millrace + "-train"):
    kit.skip_all("millrace-train is not built")
if gateway.missing():
    kit.skip_all(gateway.missing())

MODEL = ["--model", "dense(1)", "--loss", "mse", "--optimizer", "adam(learning_rate=0.05)", "--seed", "7", "--devices", "cpu:0"]
DATA = 'range(64).map(i => ([cast(i, "float32") / 64.0], [cast(i, "float32") / 32.0])).batch(8)'
EVALUATED = 'range(8).map(i => ([cast(i, "float32") / 64.0], [cast(i, "float32") / 32.0])).batch(8)'

store = gateway.Gateway()
try:
    store.make_bucket("bucket")
    os.environ.update(store.environment)
    forwarder = Forwarder(store.port)
    os.environ["AWS_ENDPOINT_URL"] = forwarder.endpoint

    def train(*arguments, epochs=2, **environment):
        return Run(["train", "--data", DATA, *MODEL, "--epochs", str(epochs), *arguments], **environment)

    def keys(prefix=""):
        page = store.request("GET", "bucket", query="list-type=2&prefix=" + urllib.parse.quote(prefix, safe="")).decode()
        return re.findall(r"<Key>([^<]*)</Key>", page)

    def losses(run):
        return [json.loads(line)["loss"] for line in run.lines if '"loss"' in line]

    def evaluate(saved):
        return Run(["evaluate", "--saved", saved, "--data", EVALUATED])

    # ---- a saved model
    local = os.path.join(directory.name, "model")
    here = train("--save", local, "--log", "json")
    there = train("--save", "s3://bucket/model", "--log", "json")
    result("a_model_is_saved", there.status == 0 and losses(here) == losses(there) != [],
           f"{here}\n{there}\n{here.lines}\n{there.lines}")
    saved = keys("model/")
    result("under_a_fresh_prefix_and_a_pointer", len(saved) == 4 and "model/checkpoint" in saved and
           len({k.split("/")[1] for k in saved}) == 2, str(saved))
    for name, run in (("evaluate", evaluate), ("predict", lambda s: Run(["predict", "--saved", s, "--data", EVALUATED])),
                      ("summary", lambda s: Run(["summary", "--saved", s])),
                      ("export", lambda s: Run(["export", "--saved", s, "--onnx", os.path.join(directory.name, "o.onnx")])),
                      ("train_init", lambda s: train("--init", s, "--log", "json"))):
        a, b = run(local), run("s3://bucket/model")
        result(f"{name}_reads_it", a.status == b.status == 0 and a.stdout.replace(local.encode(), b"") ==
               b.stdout.replace(b"s3://bucket/model", b""), f"{a}\n{b}\n{a.lines}\n{b.lines}")
    again = train("--save", "s3://bucket/model")
    result("it_is_replaced", again.status == 0 and len(keys("model/")) == 4 and not set(saved[1:]) & set(keys("model/")),
           f"{again} {keys('model/')}")
    words = os.path.join(directory.name, "words.txt")
    with open(words, "w", encoding="ascii") as f:
        f.write("a\nb\n")
    moments = os.path.join(directory.name, "moments")
    Run(["adapt", "--data", 'range(9).map(i => [cast(i, "float32")]).batch(3)', "--layer", "normalization()", "--out", moments])
    for name, layers, element, file in (
            ("vocabulary", f'lookup("{words}").embedding(4, 3).flatten().dense(1)', '["a"]', words),
            ("moments", f'normalization(adapted="{moments}").dense(1)', "[1.0]", os.path.join(moments, "normalization.json"))):
        data = f"range(4).map(i => ({element}, [1.0])).batch(2)"
        run = Run(["train", "--data", data, "--model", layers, *MODEL[2:], "--epochs", "1", "--save", f"s3://bucket/{name}"])
        there = os.path.exists(file)
        os.remove(file)
        back = Run(["evaluate", "--saved", f"s3://bucket/{name}", "--data", data])
        result(f"the_{name}_are_saved_too", run.status == back.status == 0 and there, f"{run}\n{back}")
    run = evaluate("s3://bucket/none")
    result("no_such_model", run.status == 1 and "no such saved model" in run.stderr, str(run))
    store.put("bucket", "other/file", b"x")
    run = train("--save", "s3://bucket/other")
    result("other_content_is_kept", run.status == 1 and "already exists" in run.stderr and keys("other/") == ["other/file"],
           str(run))
    run = train("--save", "http://127.0.0.1:1/model")
    result("http_is_not_written", run.status == 1 and "not written" in run.stderr, str(run))

    # ---- checkpoints: old ones are removed
    run = train("--callback", 'checkpoint("s3://bucket/ck/c_{epoch}", keep=2)', epochs=4)
    listed = Run(["checkpoints", "s3://bucket/ck", "--json"])
    named = {k.split("/")[1] for k in keys("ck/")}
    result("checkpoints_are_kept", run.status == 0 and named == {"c_3", "c_4", "checkpoint", "finished"}, f"{run} {named}")
    result("they_are_listed", listed.status == 0 and b"c_3" in listed.stdout and b"c_4" in listed.stdout, str(listed))
    a, b = evaluate("s3://bucket/ck"), evaluate("s3://bucket/ck/c_4")
    result("the_latest_is_read", a.status == 0 and a.stdout.replace(b"ck/c_4", b"ck") == b.stdout.replace(b"ck/c_4", b"ck"),
           f"{a}\n{b}\n{a.lines} {b.lines}")

    # ---- an evaluator follows them
    cluster = {"cluster": {"worker": ["127.0.0.1:1"]}, "task": {"type": "evaluator", "index": 0}}
    run = Run(["train", "--data", DATA, *MODEL, "--eval", EVALUATED, "--callback", 'checkpoint("s3://bucket/ck/c_{epoch}", keep=2)',
               "--log", "json"], TF_CONFIG=json.dumps(cluster))
    result("an_evaluator_reads_them", run.status == 0 and [json.loads(x)["epoch"] for x in run.lines] == [3, 4],
           f"{run} {run.lines}")

    # ---- a run that is killed continues from its backup
    def stops(h):  # the process is killed while it writes its third backup
        if kind(h) == "put" and h.path.split("?")[0].endswith("/checkpoint"):
            backups.append(1)
            if len(backups) == 3:
                os.kill(process.pid, 9)
                return h.hang_up()
        return False

    whole = train("--callback", 'backup_and_restore("s3://bucket/whole", save_freq=3)', "--log", "json", epochs=3)
    result("a_backup_is_removed_at_the_end", whole.status == 0 and not keys("whole/"), f"{whole} {keys('whole/')}")
    command = [kit.millrace, "train", "--data", DATA, *MODEL, "--epochs", "3", "--log", "json", "--callback",
               'backup_and_restore("s3://bucket/b", save_freq=3)']
    backups = []
    forwarder.hook = stops
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.communicate(timeout=300)
    forwarder.hook = None
    left = keys("b/")
    second = subprocess.run(command, capture_output=True, check=False, timeout=300)
    ends = [json.loads(line) for line in second.stdout.splitlines() if b'"loss"' in line]
    wanted = [json.loads(line) for line in whole.lines if '"loss"' in line]
    result("a_killed_run_was_killed", process.returncode == -9 and left, f"{process.returncode} {left}")
    result("it_continues_bit_for_bit", second.returncode == 0 and b"resuming from the backup" in second.stderr and ends and
           ends[-1]["loss"] == wanted[-1]["loss"], f"{second.stderr} {ends} {wanted}")
    result("and_what_it_left_is_removed", not keys("b/"), str(keys("b/")))
    forwarder.hook = lambda h: "backup" in h.path and h.answer(503)
    run = train("--callback", 'backup_and_restore("s3://bucket/b")', MILLRACE_REMOTE_RETRIES="1")
    forwarder.hook = None
    result("an_outage_is_not_a_missing_backup", run.status == 1 and "503" in run.stderr, str(run))

    # ---- each request of saving fails: the old model stays valid
    before = evaluate("s3://bucket/model").stdout
    for n in range(1, 60):
        count = []

        def fails(h):
            count.append(kind(h))
            return len(count) >= n and kind(h) != "delete" and h.answer(403)

        forwarder.hook = fails
        run = train("--save", "s3://bucket/model", epochs=1)
        forwarder.hook = None
        now = evaluate("s3://bucket/model")
        if run.status == 0 or now.status != 0 or (now.stdout != before and "put" in count[n - 1:]):
            break
    result("a_failure_at_each_request_leaves_a_whole_model", run.status == 0 and now.status == 0 and n > 4 and
           len(keys("model/")) == 4, f"request {n}: {run} {now} {count} {keys('model/')}")
    for name, call in (("csv_logger", 'csv_logger("s3://bucket/log.csv")'), ("tensorboard", 'tensorboard("s3://bucket/tb")')):
        run = train("--callback", call)
        result(f"{name}_writes_local_files", run.status == 1 and "not written" in run.stderr, str(run))
finally:
    store.close()
kit.end()
