#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# tier: plain=full
"""The graphs with known output whose sources are files, with these files in a bucket of Ceph's gateway."""
import os
import subprocess
import sys

import gateway
import kit

if not kit.has_libcurl():
    kit.skip_all("built without libcurl")
if gateway.missing():
    kit.skip_all(gateway.missing())
run = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "known", "run.py")
with gateway.Gateway() as store:
    store.make_bucket("known")
    done = subprocess.run([sys.executable, run, kit.millrace, "--gateway", str(store.port), *sys.argv[1:]], check=False,
                          env={**os.environ, **store.environment})
sys.exit(done.returncode)
