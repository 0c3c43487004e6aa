#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# tier: plain=long
"""The alerts and the dashboard of examples/deployment/kubernetes: a real Prometheus scrapes real daemons, each alert is
fired by the fault that it is for and ends when that does, and each query of the dashboard has data. Only times are
shorter than in the files. promtool tests the rules with their own times (alerts.test.yaml)."""
import json
import os
import re
import shutil
import signal
import subprocess

import kit
import prometheus
from certificates import Authority
from kit import result

HERE = os.path.dirname(os.path.abspath(__file__))
BASE = os.path.join(os.path.dirname(os.path.dirname(HERE)), "examples", "deployment", "kubernetes", "base")
for tool in ("prometheus", "promtool", "openssl", "cc"):
    if not shutil.which(tool):
        kit.skip("alerts", f"{tool} is not installed")
        kit.end()

# ---- the rules
with open(os.path.join(BASE, "alerts.yaml")) as f:
    rules = re.sub(r"^  ", "", f.read().split("\nspec:\n", 1)[1], flags=re.M)
with open(kit.path("alerts.yaml"), "w") as f:
    f.write(rules)
shutil.copy(os.path.join(HERE, "alerts.test.yaml"), kit.directory)
for words in (["check", "rules", "alerts.yaml"], ["test", "rules", "alerts.test.yaml"]):
    p = subprocess.run(["promtool", *words], cwd=kit.directory, capture_output=True, text=True)
    result("promtool_" + words[0], p.returncode == 0, p.stdout + p.stderr)
names = set(re.findall(r"alert: (\w+)", rules))
result("five_alerts", len(names) == 5, names)
quick, changed = re.subn(r"(for: |\[)\d+m", lambda m: m[1] + ("1s" if m[1] == "for: " else "10s"), rules)
result("times_were_found", changed == 6, quick)
with open(kit.path("quick.yaml"), "w") as f:
    f.write(quick)

# ---- the daemons
plugin = kit.path("sleeps.so")
subprocess.run(["cc", "-shared", "-fPIC", f"-I{kit.build}/include", f"-I{kit.build}/generated",
                os.path.join(HERE, "sleeps.c"), "-o", plugin], check=True)
page = f"127.0.0.1:{prometheus.ports(1)[0]}"  # the same after a restart
d = kit.Dispatcher("--status", page, "--state", "state")


def worker(name, *options, hold_mb=0):
    before = ["env", f"MILLRACE_PLUGINS={plugin}", "SLEEP_MS=50", f"HOLD_MB={hold_mb}"]
    return kit.Daemon("worker", "--dispatcher", d.at, "--status", pages[name], *options, name=name, before=before)


pages = {name: f"127.0.0.1:{port}" for name, port in zip(("worker", "small"), prometheus.ports(2))}
first = worker("worker")
ca = Authority(kit.directory, "ca")
cert, key = ca.issue("millrace")
other = kit.Dispatcher("--status", "127.0.0.1:0", "--tls-cert", cert, "--tls-key", key, name="tls")


def scraped(*at, **more):
    return {"static_configs": [{"targets": at, "labels": {"namespace": "n"}}], **more}


p = prometheus.Prometheus(
    {"millrace-dispatcher": scraped(d.page), "millrace-worker": scraped(*pages.values()),
     "tls": scraped(other.page, scheme="https", tls_config={"ca_file": ca.pem})},
    rules="quick.yaml", interval="500ms")


def fires(*alerts):
    """These and no others."""
    seen = []

    def so():
        seen[:] = [p.firing()]
        return seen[0] == set(alerts)
    return bool(kit.until(so)), f"{seen} instead of {alerts}"


kit.until(lambda: p.query("sum(up)") == [3])
result("no_alert_without_a_fault", *fires())

# ---- one fault after the other
ca.issue("millrace", until=3, to=cert[:-4])
result("a_certificate_that_is_not_renewed", *fires("MillraceCertificateExpires"))
ca.issue("millrace", to=cert[:-4])
result("it_is_renewed", *fires())
small = worker("small", "--memory-limit", "64M", hold_mb=60)
result("a_worker_at_its_memory_limit", *fires("MillraceWorkerMemory"))
result("it_leaves", small.stop() == 0 and fires()[0])
small = worker("small", "--memory-limit", "1G")
client = subprocess.Popen(
    [kit.millrace, "show", "--load", plugin,
     f'range(100000000).map(sleeps).distribute("{d.at}", job_name="fit", streams=8, max_outstanding_bytes=16000)'],
    stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=open(kit.path("client.log"), "w"))
kit._processes.append(client)
result("too_few_workers", *fires("MillraceClientsWait"))

# ---- while the job runs: the dashboard
with open(os.path.join(BASE, "dashboard.json")) as f:
    dashboard = json.load(f)
for panel in dashboard["panels"]:
    for target in panel["targets"]:
        query = target["expr"].replace("$namespace", "n").replace("$__rate_interval", "10s")
        values = kit.until(lambda: p.query(query), kit.HURRY) if "$" not in query else None
        result(f"panel {panel['title']} {target['refId']}", bool(values), f"{query}: {values}")

for w in (first, small):
    w.process.send_signal(signal.SIGKILL)
    w.process.wait()
kit.until(lambda: "MillraceStreamsWithoutWorker" in (p.firing() or ()))
result("workers_are_killed", "MillraceStreamsWithoutWorker" in p.firing(), p.firing())
first = worker("worker")
kit.until(lambda: "MillraceStreamsWithoutWorker" not in p.firing())
result("one_comes_back", "MillraceStreamsWithoutWorker" not in p.firing(), p.firing())
client.kill()
client.wait()
result("the_client_leaves", *fires())
d.process.send_signal(signal.SIGKILL)
d.process.wait()
result("the_dispatcher_is_killed", *fires("MillraceNoNewJobs"))
d = kit.Dispatcher("--status", page, "--state", "state", listen=d.at)
result("it_is_started_again", *fires())
p.end()
first.process.kill()  # it would finish what it makes
result("all_end", [x.stop() for x in (d, other)] == [0, 0])
kit.end()
