#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# tier: plain=full
"""Graphs with known output whose sources are files, with these files in gs:// and hf://, which the tests imitate: a
sample, and all of them in the long tier."""
import os
import subprocess
import sys

import kit
from cloud import Cloud
from hub import Hub

SAMPLE = "16"
if not kit.has_libcurl():
    kit.skip_all("built without libcurl")
run = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "known", "run.py")
cloud, hub = Cloud(), Hub()
cloud.anonymous = True
for prefix, port, environment in (("gs://known/", cloud.port, {"STORAGE_EMULATOR_HOST": cloud.address}),
                                  ("hf://datasets/known/all/", hub.port, {"HF_ENDPOINT": hub.address})):
    done = subprocess.run([sys.executable, run, kit.millrace, "--gateway", str(port), "--prefix", prefix, "--sample", SAMPLE,
                           *sys.argv[1:]], check=False, env={**os.environ, **environment, "TAP_FILE": os.devnull})
    kit.result(f"known_answers_of_{prefix[:2]}", done.returncode == 0, f"status {done.returncode}")
kit.end()
