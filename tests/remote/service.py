#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# tier: plain=full
"""Workers read a web server that their clients cannot name freely: only below --root, and without redirections."""
import os
import subprocess

import gateway
import kit
from cloud import Cloud
from hub import Hub
from kit import Run, directory, redirect, result

program = os.path.join(kit.build, "millrace-service")
if not kit.has_libcurl():
    kit.skip_all("built without libcurl")
if not os.path.exists(program):
    kit.skip_all("millrace-service is not built")
kit.millrace = program
server = kit.Server()
url = server.put("/data/a.txt", b"one\ntwo\n")
server.put("/other.txt", b"secret\n")
server.always["/data/to"] = redirect("/other.txt")
local = os.path.join(directory.name, "local.txt")
with open(local, "w", encoding="ascii") as f:
    f.write("here\n")
(port,) = gateway.free_ports(1)
processes = []


def start(*arguments, **environment):
    log = open(os.path.join(directory.name, f"log-{len(processes)}"), "w+", encoding="utf-8")
    p = subprocess.Popen([program, *arguments], stdout=subprocess.PIPE, stderr=log, cwd=directory.name,
                         env={**os.environ, **environment})
    processes.append(p)
    p.stdout.readline()  # it is ready
    return p


def through(name, *, retries="2"):
    return Run(["show", f'text_line("{name}").distribute("127.0.0.1:{port}")'], MILLRACE_REMOTE_RETRIES=retries)


try:
    start("dispatcher", "--listen", f"127.0.0.1:{port}")
    worker = start("worker", "--dispatcher", f"127.0.0.1:{port}", "--root", server.address + "/data/")
    read = through(url)
    result("below_the_root", sorted(read.lines) == ['"one"', '"two"'], str(read))
    server.take()
    for name, at in (("beside_the_root", server.address + "/other.txt"), ("up", server.address + "/data/../other.txt"),
                     ("a_local_file", local), ("metadata_of_a_cloud", "http://169.254.169.254/latest/meta-data/"),
                     ("a_bucket", "s3://bucket/key")):
        refused = through(at)
        result(f"{name}_is_refused", refused.status == 1 and "permission denied" in refused.stderr and
               "--root" in refused.stderr and not refused.lines, str(refused))
    result("and_not_asked_for", not server.take(), "")
    moved = through(server.address + "/data/to")
    result("a_redirection_is_refused", moved.status == 1 and "redirection" in moved.stderr and not moved.lines and
           all(r[0] == "/data/to" for r in server.take()), str(moved))
    worker.terminate()
    worker.wait()
    at = server.address.rpartition(":")[2]
    server.take()
    worker = start("worker", "--dispatcher", f"127.0.0.1:{port}", "--root", f"http://127.1:{at}/")
    refused = through(f"http://127.1:{at}/data/a.txt")  # a name that leads to an address
    result("a_name_that_leads_to_loopback_is_refused", refused.status == 1 and "permission denied" in refused.stderr and
           "private" in refused.stderr and not server.take(), str(refused))
    worker.terminate()
    worker.wait()
    worker = start("worker", "--dispatcher", f"127.0.0.1:{port}", "--root", f"http://localhost:{at}/data/")
    read = through(f"http://localhost:{at}/data/a.txt")
    result("localhost_names_loopback", sorted(read.lines) == ['"one"', '"two"'], str(read))
    written = Run(["show", f'text_line("http://localhost:{at}/data/a.txt").cache("http://localhost:{at}/data/c")'
                   f'.distribute("127.0.0.1:{port}")'], MILLRACE_REMOTE_RETRIES="2")
    result("nothing_is_written", written.status == 1 and "--allow-writes" in written.stderr, str(written))
    worker.terminate()
    worker.wait()

    # ---- the cache of the operator, which is outside of all roots
    cache = os.path.join(directory.name, "cache")
    worker = start("worker", "--dispatcher", f"127.0.0.1:{port}", "--root", server.address + "/data/", "--cache-dir", cache)
    first = through(url)
    bodies = [r for r in server.take() if r[0] == "/data/a.txt" and r[1] != "bytes=0-0"]
    again = through(url)
    later = [r for r in server.take() if r[0] == "/data/a.txt" and r[1] != "bytes=0-0"]
    result("a_cache_outside_of_the_roots", sorted(first.lines) == sorted(again.lines) == ['"one"', '"two"'] and bodies and not later,
           f"{first}\n{again}\n{bodies}\n{later}")
    pieces = [os.path.join(cache, "objects", n) for n in os.listdir(os.path.join(cache, "objects")) if n.endswith(".piece")]
    taken = [through(piece) for piece in pieces]
    result("no_client_reads_its_files", len(pieces) == 1 and all(r.status == 1 and "--root" in r.stderr and not r.lines for r in taken),
           f"{pieces} {taken}")
    with open(pieces[0], "r+b") as f:
        f.truncate(10)
    read = through(url)
    result("a_damaged_piece_is_fetched_again", sorted(read.lines) == ['"one"', '"two"'] and os.path.getsize(pieces[0]) > 10, str(read))
    worker.terminate()
    worker.wait()
    server.take()
    worker = start("worker", "--dispatcher", f"127.0.0.1:{port}", "--root", server.address + "/data/", "--cache-dir", cache, "--offline")
    read = through(url)
    result("offline_in_a_worker", sorted(read.lines) == ['"one"', '"two"'] and not server.take(), str(read))
    worker.terminate()
    worker.wait()

    # ---- stores that the worker alone has access to
    cloud, hub = Cloud(), Hub()
    cloud.bearers.add("ya29.made-token")
    for i in range(3):
        cloud.put("data", f"many/f-{i}", b"%d\n" % i)
        hub.put("owner/name", f"train/f-{i}", b"%d\n" % i, large=i == 1)
    cloud.put("data", "other", b"secret\n")
    hub.put("owner2/name", "a.txt", b"secret\n")
    hub.private, hub.token = {"owner/name", "owner2/name"}, "hf_MadeToken"
    worker = start("worker", "--dispatcher", f"127.0.0.1:{port}", "--root", "gs://data/many/", "--root", "hf://datasets/owner/",
                   "--root", f"http://localhost:{hub.store.port}/", "--root", hub.address + "/",
                   STORAGE_EMULATOR_HOST=cloud.address, GOOGLE_OAUTH_ACCESS_TOKEN="ya29.made-token", HF_ENDPOINT=hub.address,
                   HF_TOKEN=hub.token)
    read = through("gs://data/many/f-*")
    result("a_google_bucket_below_the_root", sorted(read.lines) == ['"0"', '"1"', '"2"'], str(read))
    read = through("hf://datasets/owner/name/train/f-*")
    result("a_hub_below_the_root", sorted(read.lines) == ['"0"', '"1"', '"2"'], str(read))
    cloud.take()
    hub.take()
    for name, at in (("another_google_object", "gs://data/other"), ("another_google_bucket", "gs://data2/many/f-0"),
                     ("another_owner", "hf://datasets/owner2/name/a.txt"), ("up_in_a_bucket", "gs://data/many/../other")):
        refused = through(at)
        result(f"{name}_is_refused", refused.status == 1 and "permission denied" in refused.stderr and
               "--root" in refused.stderr and not refused.lines, str(refused))
    result("and_no_store_was_asked", not cloud.take() and not hub.take(), "")
    worker.terminate()
    worker.wait()
    worker = start("worker", "--dispatcher", f"127.0.0.1:{port}", "--root", "hf://datasets/owner/", HF_ENDPOINT=hub.address,
                   HF_TOKEN=hub.token)
    hub.take()
    refused = through("hf://datasets/owner/name/train/f-1")  # whose address no root names
    result("a_hub_at_a_private_address_needs_a_root", refused.status == 1 and "permission denied" in refused.stderr and
           "private" in refused.stderr and not refused.lines and not any("/resolve/" in r[1] for r in hub.take()), str(refused))
    worker.terminate()
    worker.wait()

    start("worker", "--dispatcher", f"127.0.0.1:{port}")
    server.take()
    refused = through(url)
    result("without_a_root", refused.status == 1 and "--root" in refused.stderr and not server.take(), str(refused))
finally:
    for p in processes:
        p.terminate()
    for p in processes:
        p.wait()
kit.end()
