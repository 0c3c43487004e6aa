#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# tier: plain=quick
"""Every metric that examples/deployment and the documentation name is one that daemons have, and the documentation
says what to do on each alert."""
import glob
import os
import re
import shutil
import ssl
import urllib.request

import kit
from certificates import Authority
from kit import result

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def words(pattern):
    """{name: a file that has it}"""
    return {name: os.path.relpath(path, ROOT) for path in glob.glob(os.path.join(ROOT, pattern), recursive=True)
            if os.path.isfile(path) for name in re.findall(r"\bmillrace_(?:%s)_\w+" % KINDS, open(path).read())}


def metrics(page, scheme="http", context=None):
    with urllib.request.urlopen(f"{scheme}://{page}/metrics", timeout=kit.PATIENCE, context=context) as r:
        return set(re.findall(r"^# TYPE (\w+) ", r.read().decode(), re.M))


KINDS = "dispatcher|job|worker|target|tls|remote"
d = kit.Dispatcher("--status", "127.0.0.1:0")
w = kit.Daemon("worker", "--dispatcher", d.at, "--status", "127.0.0.1:0", name="worker")
have = metrics(d.page) | metrics(w.page)
result("metrics", len(have) > 20, have)
if shutil.which("openssl"):
    ca = Authority(kit.directory, "ca")
    cert, key = ca.issue("d")
    tls = kit.Dispatcher("--status", "127.0.0.1:0", "--tls-cert", cert, "--tls-key", key, name="tls")
    have |= metrics(tls.page, "https", ssl.create_default_context(cafile=ca.pem))
    tls.stop()
else:
    kit.skip("tls", "the program openssl is not installed")
    have.add("millrace_tls_certificate_expiry_seconds")
deployed = words("examples/deployment/**/*")
result("deployment_names_metrics", len(deployed) >= 15, deployed)
for name, where in sorted({**words("docs/*.md"), **deployed}.items()):
    result(name, name in have, f"{where} names {name}, which no daemon has: {sorted(have)}")
with open(os.path.join(ROOT, "examples/deployment/kubernetes/base/alerts.yaml")) as f:
    alerts = re.findall(r"- alert: (\w+)", f.read())
with open(os.path.join(ROOT, "docs/kubernetes.md")) as f:
    explained = re.findall(r"^\| `(Millrace\w+)` \|", f.read(), re.M)
result("every_alert_is_explained", alerts and alerts == explained, f"{alerts}, but {explained}")
result("they_end", [w.stop(), d.stop()] == [0, 0])
kit.end()
