# SPDX-License-Identifier: Apache-2.0
"""A real Prometheus that scrapes daemons of a test."""
import json
import os
import shutil
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request

sys.path[:0] = [os.path.dirname(os.path.dirname(os.path.abspath(__file__)))]
import kit  # noqa: E402
from ports import ports  # noqa: E402

program = shutil.which("prometheus")


class Prometheus:
    """jobs: {name: what its entry of scrape_configs has besides}. rules: a file of rules."""

    def __init__(self, jobs, rules=None, interval="1s"):
        self.at = f"127.0.0.1:{ports(1)[0]}"
        with open(kit.path("prometheus.yml"), "w") as f:
            json.dump({"global": {"scrape_interval": interval, "scrape_timeout": interval,
                                  "evaluation_interval": interval},
                       "rule_files": [rules] if rules else [],
                       "scrape_configs": [{"job_name": name, **more} for name, more in jobs.items()]}, f)
        self.process = subprocess.Popen(
            [program, "--config.file", kit.path("prometheus.yml"), "--storage.tsdb.path", kit.path("tsdb"),
             "--web.listen-address", self.at],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=open(kit.path("prometheus.log"), "w"))
        kit._processes.append(self.process)

    def _get(self, path):
        """What it answers; {} while it does not."""
        try:
            with urllib.request.urlopen(f"http://{self.at}/api/v1/{path}", timeout=kit.PATIENCE) as r:
                return json.load(r)["data"]
        except urllib.error.HTTPError as e:
            if e.code == 503:
                return {}
            raise ValueError(f"{path}: {e.read().decode()}")
        except OSError:
            return {}

    def query(self, text):
        """Its values now, of all labels."""
        return [float(x["value"][1])
                for x in self._get("query?" + urllib.parse.urlencode({"query": text})).get("result", [])]

    def firing(self):
        """The names of alerts that fire; None while it does not answer."""
        alerts = self._get("alerts").get("alerts")
        return None if alerts is None else {x["labels"]["alertname"] for x in alerts if x["state"] == "firing"}

    def end(self):
        self.process.kill()
        self.process.wait()
