#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# tier: plain=full
"""The cache with a bucket of Ceph's gateway: listings, several processes, offline and without credentials."""
import json
import os
import random
import subprocess

import gateway
import kit
from kit import Run, directory, millrace, result, show

if not kit.has_libcurl():
    kit.skip_all("built without libcurl")
if gateway.missing():
    kit.skip_all(gateway.missing())
root = directory.name
cache = os.path.join(root, "cache")
draw = random.Random(2)
contents = {f"d/f-{i}": b"".join(b"%0999d\n" % draw.getrandbits(64) for _ in range(300 if i else 17_500)) for i in range(6)}
lines = [f'"{x.decode()}"' for k in sorted(contents) for x in contents[k].splitlines()]

with gateway.Gateway() as store:
    os.environ.update(store.environment)
    store.make_bucket("data")
    for key, data in contents.items():
        store.put("data", key, data)
    graph = 'text_line("s3://data/d/f-*")'
    first = show(graph, "--cache-dir", cache)
    shown = json.loads(Run(["cache", cache, "--json"]).stdout)
    result("the_first_epoch", first.status == 0 and first.lines == lines and
           [(o["url"], o["size"], o["complete"]) for o in shown["objects"]] ==
           [(f"s3://data/{k}", len(contents[k]), True) for k in sorted(contents)], f"{first}\n{shown}")
    environment = {**os.environ, "MILLRACE_CACHE_DIR": cache + "2"}
    group = [subprocess.Popen([millrace, "show", graph], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in range(8)]
    ends = [p.communicate(timeout=300) for p in group]
    result("eight_processes", all(out == first.stdout and not err for out, err in ends), str([err for _, err in ends]))
    store.put("data", "d/f-3", b"new\n")
    changed = show(graph, "--cache-dir", cache)
    result("a_replaced_object", changed.status == 0 and '"new"' in changed.lines and len(changed.lines) == len(lines) - 299, str(changed))
    store.put("data", "d/f-3", contents["d/f-3"])
    show(graph, "--cache-dir", cache)
# The gateway is gone, and so are the credentials.
endpoint = os.environ["AWS_ENDPOINT_URL"]
for name in [n for n in os.environ if n.startswith("AWS_")]:
    del os.environ[name]
os.environ["AWS_ENDPOINT_URL"] = endpoint
offline = show(graph, "--cache-dir", cache, "--offline")
result("offline_without_credentials", offline.stdout == first.stdout and offline.stderr == "", str(offline))
names = show('list_files("s3://data/d/f-*")', "--cache-dir", cache, "--offline")
result("a_listing_offline", names.lines == [f'"s3://data/{k}"' for k in sorted(contents)], str(names))
other = show('text_line("s3://data/d/f-[01]")', "--cache-dir", cache, "--offline")
result("another_pattern_offline", other.status == 1 and "never listed" in other.stderr and "s3://data/d/f-[01]" in other.stderr, str(other))
os.environ["AWS_ENDPOINT_URL"] = "http://127.0.0.1:1"
other = show(graph, "--cache-dir", cache, "--offline")
result("another_endpoint", other.status == 1 and "never listed" in other.stderr, str(other))
online = show(graph, "--cache-dir", cache, MILLRACE_REMOTE_RETRIES="1", MILLRACE_S3_ANONYMOUS="1")
result("an_outage_without_offline", online.status == 1 and "unavailable" in online.stderr, str(online))
kit.end()
