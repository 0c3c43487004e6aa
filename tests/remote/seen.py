#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# tier: plain=full asan=full
"""What is said of transfers: bench, its trace, top, a worker's metrics, explain, and slow listings."""
import json
import os
import re
import subprocess
import threading
import time
import urllib.request

import gateway
import kit
from kit import Run, directory, fault, result, show

if not kit.has_libcurl():
    kit.skip_all("built without libcurl")
server = kit.Server()
host = server.address.removeprefix("http://")
text = b"".join(b"%063d\n" % i for i in range(200000))  # 12.8 MB: two ranges
url = server.put("/a.txt", text)
with_secret = url.replace("//", "//user:5ec2e7@")

# ---- bench
server.plan("/a.txt", fault(cut=5000))
trace = os.path.join(directory.name, "trace")
run = Run(["bench", f'text_line("{with_secret}")', "--json", "--repeat", "2", "--trace", trace])
runs = [json.loads(line) for line in run.lines]
asked = len(server.take())
result("bench_runs", run.status == 0 and len(runs) == 2 and asked >= 5, f"{run}, {asked} requests")
seen = [r["hosts"] for r in runs]
result("bench_names_the_host", all(len(h) == 1 and h[0]["host"] == host for h in seen), str(seen))
result("bench_counts_bytes", all(h[0]["bytes"] == len(text) for h in seen), str(seen))
result("bench_counts_requests", sum(h[0]["requests"] for h in seen) == asked, f"{seen}, {asked}")
result("bench_counts_retries", [h[0]["retries"] for h in seen] == [1, 0], str(seen))
result("bench_counts_connections", all(1 <= h[0]["open_connections"] <= 64 for h in seen), str(seen))
answers = [sum(b["answers"] for b in h[0]["first_bytes"]) for h in seen]
result("bench_counts_first_bytes", answers == [h[0]["requests"] for h in seen] and all(h[0]["first_byte_seconds"] > 0 for h in seen),
       f"{answers} {seen}")
bounds = [b["at_most"] for b in seen[0][0]["first_bytes"]]
result("bounds_rise", bounds[-1] is None and bounds[:-1] == sorted(bounds[:-1]) and len(bounds) > 5, str(bounds))
with open(trace, encoding="utf-8") as f:
    events = [e for e in json.load(f)["traceEvents"] if e["ph"] == "C"]
last = [e["args"] for e in events if e["pid"] == 1][-1]
result("the_trace_has_counters", {e["name"] for e in events} == {f"host {host}"} and {e["pid"] for e in events} == {1, 2} and
       last["bytes"] == len(text) and last["retries"] == 1 and
       {"requests", "open_connections", "first_byte_seconds", "cached_bytes", "cache_hits", "cache_misses"} <= set(last),
       str(events[-3:]))
run = Run(["bench", f'text_line("{with_secret}")'])
table = re.search(r"^  host .*connections.*\n  (\S+) +12\.800 +(\d+) +0 +(\d+) ", run.stdout.decode(), re.M)
result("bench_prints_a_table", table and table[1] == host and "5ec2e7" not in run.stdout.decode(), f"{run}\n{run.stdout.decode()}")
run = Run(["bench", "range(10)"])
result("no_host_without_urls", run.status == 0 and b"connections" not in run.stdout, run.stdout.decode())

# ---- the cache
cache = os.path.join(directory.name, "cache")
both = [json.loads(line) for line in Run(["bench", f'text_line("{url}")', "--json", "--repeat", "2", "--cache-dir", cache]).lines]
caches = [[h[k] for h in r["hosts"] for k in ("cached_bytes", "cache_hits", "cache_misses")] for r in both]
result("bench_counts_hits_and_misses", caches == [[len(text), 0, 2], [len(text), 2, 0]], str(caches))
again = Run(["bench", f'text_line("{url}")', "--cache-dir", cache, "--offline"])
result("bench_prints_hits", re.search(r"cached MB +hits +misses\n  \S+ +0\.000 +0 +0 .* 12\.800 +2 +0$", again.stdout.decode(), re.M) and
       f"\n  {host} " in again.stdout.decode(), f"{again}\n{again.stdout.decode()}")
server.take()

closing = [server.put(f"/closing-{i}", b"x\n") for i in range(9)]
for i in range(9):
    server.always[f"/closing-{i}"] = fault(ranges=False, length=False)
run = Run(["bench", "--json", f"text_line({json.dumps(closing)})"])
result("closed_connections_are_not_open", json.loads(run.stdout)["hosts"][0]["open_connections"] == 0, run.stdout.decode())

# ---- top, while a transfer stalls
stalled, go_on = threading.Event(), threading.Event()


def stall(s, h, path):
    h.send_response(200)
    h.send_header("Content-Length", str(len(text)))
    h.end_headers()
    h.wfile.write(text[:640000])
    stalled.set()
    go_on.wait(300)
    h.wfile.write(text[640000:])


server.always["/slow.txt"] = stall
process = subprocess.Popen([kit.millrace, "show", f'text_line("{server.address}/slow.txt")'], stdout=subprocess.PIPE,
                           stderr=subprocess.DEVNULL)
stalled.wait(300)
top = {}
for _ in range(300):
    run = Run(["top", str(process.pid), "--once", "--json"])
    top = json.loads(run.stdout) if run.status == 0 else {}
    if top.get("hosts") and top["hosts"][0]["bytes"] == 640000:
        break
    time.sleep(0.1)
result("top_shows_the_host", top.get("hosts") and top["hosts"][0]["host"] == host and top["hosts"][0]["bytes"] == 640000 and
       top["hosts"][0]["requests"] == 1 and top["hosts"][0]["open_connections"] == 1, f"{run} {top}")
run = Run(["top", str(process.pid), "--once"])
result("top_prints_a_table", re.search(rf"^  {re.escape(host)} +0\.640 +1 +0 +1 ", run.stdout.decode(), re.M), run.stdout.decode())
go_on.set()
out, _ = process.communicate(timeout=300)
result("and_the_lines_arrive", process.returncode == 0 and out.count(b"\n") == 200000, str(process.returncode))

# ---- a worker's metrics
service = os.path.join(kit.build, "millrace-service")
if os.path.exists(service):
    port, status_port = gateway.free_ports(2)
    processes = []
    try:
        for arguments in (["dispatcher", "--listen", f"127.0.0.1:{port}"],
                          ["worker", "--dispatcher", f"127.0.0.1:{port}", "--root", server.address + "/",
                           "--status", f"127.0.0.1:{status_port}"]):
            processes.append(subprocess.Popen([service, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL))
            processes[-1].stdout.readline()  # it is ready
        read = subprocess.run([service, "show", f'text_line("{url}").distribute("127.0.0.1:{port}")'], capture_output=True,
                              timeout=300, check=False)
        result("a_worker_reads", read.returncode == 0 and read.stdout.count(b"\n") == 200000, read.stderr.decode())
        metrics = {}
        for _ in range(100):  # its report is made at most twice a second
            with urllib.request.urlopen(f"http://127.0.0.1:{status_port}/metrics", timeout=60) as answer:
                page = answer.read().decode()
            metrics = dict(line.rsplit(" ", 1) for line in page.splitlines() if line.startswith("millrace_remote"))
            if metrics.get(f'millrace_remote_bytes_total{{host="{host}"}}') == str(len(text)):
                break
            time.sleep(0.1)
        label = f'{{host="{host}"}}'
        count = metrics.get(f"millrace_remote_first_byte_seconds_count{label}")
        result("metrics_of_hosts", metrics.get("millrace_remote_bytes_total" + label) == str(len(text)) and
               int(metrics["millrace_remote_requests_total" + label]) >= 2 and metrics["millrace_remote_retries_total" + label] == "0" and
               "millrace_remote_open_connections" + label in metrics and metrics["millrace_remote_cached_bytes_total" + label] == "0" and
               {"millrace_remote_cache_hits_total" + label, "millrace_remote_cache_misses_total" + label} <= set(metrics), page)
        result("a_histogram", count and int(count) >= 2 and "# TYPE millrace_remote_first_byte_seconds histogram" in page and
               metrics[f'millrace_remote_first_byte_seconds_bucket{{host="{host}",le="+Inf"}}'] == count and
               float(metrics["millrace_remote_first_byte_seconds_sum" + label]) > 0, page)
    finally:
        for process in processes:
            process.terminate()
            process.wait()

# ---- explain, and a listing that takes more than two seconds
PAGES = 4


def page(s, h, path):
    number = int(re.search(r"continuation-token=(\d)", h.path)[1]) if "continuation" in h.path else 0
    if pause:
        time.sleep(pause)
    more = f"<IsTruncated>true</IsTruncated><NextContinuationToken>{number + 1}</NextContinuationToken>" if number + 1 < PAGES else ""
    objects = "".join(f'<Contents><Key>x-{number}-{i}</Key><Size>7</Size><ETag>"{i}"</ETag></Contents>' for i in range(10))
    body = f"<ListBucketResult>{more}{objects}</ListBucketResult>".encode()
    s.refuse(h, 200, body)


server.always["/bucket"] = page
store = {"AWS_ENDPOINT_URL": server.address, "AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"}
pause = 0
run = Run(["explain", 'text_line("s3://bucket/x-*")'], **store)
result("explain_counts_objects", "s3://bucket/x-*: 40 objects, 280 bytes" in run.stdout.decode(), f"{run}\n{run.stdout.decode()}")
result("a_quick_listing_is_silent", "listing" not in run.stderr, str(run))
run = Run(["explain", "--json", 'text_line("s3://bucket/x-*")'], **store)
result("explain_counts_objects_in_json", json.loads(run.stdout)["objects"] == [{"pattern": "s3://bucket/x-*", "objects": 40, "bytes": 280}],
       run.stdout.decode()[:2000])
pause = 1.1
run = show('list_files("s3://bucket/x-*")', **store)
said = re.findall(r"still listing s3://bucket/x-\*: (\d+) objects so far", run.stderr)
result("a_slow_listing_says_so", len(run.lines) == 40 and said and all(int(n) in (10, 20, 30) for n in said), str(run))
kit.end()
