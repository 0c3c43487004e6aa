# SPDX-License-Identifier: Apache-2.0
"""Ceph's object gateway, a server of the S3 protocol, with a monitor and a store in memory, on loopback.

    with gateway.Gateway() as store:
        store.make_bucket("bucket1")
        store.put("bucket1", "key", b"...")
        os.environ.update(store.environment)

It needs root, and Debian's radosgw, ceph-mon, ceph-osd and ceph-common; missing() says what is not there."""
import datetime
import hashlib
import hmac
import http.client
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.parse
import uuid

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
from ports import ports as free_ports  # noqa: E402

PROGRAMS = ("ceph-mon", "ceph-osd", "radosgw", "radosgw-admin", "ceph-authtool", "monmaptool", "ceph")
CONFIGURATION = """[global]
fsid = {fsid}
mon host = [v2:127.0.0.1:{v2},v1:127.0.0.1:{v1}]
osd pool default size = 1
osd pool default min size = 1
osd pool default pg num = 8
osd crush chooseleaf type = 0
mon allow pool size one = true
public addr = 127.0.0.1
run dir = {root}/run
admin socket = {root}/run/$name.asok
log file = {root}/log/$name.log
pid file = {root}/run/$name.pid
ms bind ipv6 = false
mon data = {root}/mon
osd data = {root}/osd
osd objectstore = memstore
memstore device bytes = 2147483648
keyring = {root}/keyring
[client.rgw]
rgw frontends = beast endpoint=127.0.0.1:{port}
"""


def missing():
    """Why the gateway cannot be started; "" if it can."""
    lacking = [p for p in PROGRAMS if not shutil.which(p)]
    if lacking:
        return f"{lacking[0]} is not installed (radosgw, ceph-mon, ceph-osd, ceph-common)"
    return "" if os.geteuid() == 0 else "Ceph's programs need root"


class Gateway:
    KEY, SECRET, REGION = "MRTESTKEY", "mr/test+secret", "us-east-1"

    def __init__(self):
        self.root = tempfile.mkdtemp(prefix="mr-ceph-")
        self.port, v2, v1 = free_ports(3)
        fsid = str(uuid.uuid4())
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self.environment = {"AWS_ENDPOINT_URL": self.endpoint, "AWS_ACCESS_KEY_ID": self.KEY,
                            "AWS_SECRET_ACCESS_KEY": self.SECRET}
        for folder in ("mon", "osd", "run", "log"):
            os.mkdir(os.path.join(self.root, folder))
        with open(os.path.join(self.root, "ceph.conf"), "w", encoding="utf-8") as f:
            f.write(CONFIGURATION.format(root=self.root, fsid=fsid, v1=v1, v2=v2, port=self.port))
        try:
            self.start(fsid, v1, v2)
        except BaseException:
            self.close()
            raise

    def start(self, fsid, v1, v2):
        allow = {"mon": "allow *", "osd": "allow *", "mgr": "allow *"}
        for name, caps in (("mon.", {"mon": "allow *"}), ("client.admin", {**allow, "mds": "allow *"}),
                           ("client.rgw", {"mon": "allow *", "osd": "allow *"}),
                           ("osd.0", {"mon": "allow profile osd", "osd": "allow *", "mgr": "allow profile osd"})):
            create = [] if os.path.exists(os.path.join(self.root, "keyring")) else ["-C"]
            self.call("ceph-authtool", *create, "keyring", "--gen-key", "-n", name,
                      *[w for k, v in caps.items() for w in ("--cap", k, v)])
        self.call("monmaptool", "--create", "--addv", "a", f"[v2:127.0.0.1:{v2},v1:127.0.0.1:{v1}]", "--fsid", fsid,
                  "monmap")
        self.call("ceph-mon", "-c", "ceph.conf", "--mkfs", "-i", "a", "--monmap", "monmap", "--keyring", "keyring")
        self.call("ceph-mon", "-c", "ceph.conf", "-i", "a")
        osd = str(uuid.uuid4())
        key = self.call("ceph-authtool", "keyring", "-p", "-n", "osd.0").strip()
        self.call("ceph", "-c", "ceph.conf", "osd", "new", osd, "-i", "-", text=f'{{"cephx_secret": "{key}"}}')
        self.call("ceph-osd", "-c", "ceph.conf", "-i", "0", "--mkfs", "--osd-uuid", osd)
        self.call("ceph-osd", "-c", "ceph.conf", "-i", "0")
        self.call("radosgw", "-c", "ceph.conf", "-n", "client.rgw")
        self.call("radosgw-admin", "-c", "ceph.conf", "-n", "client.rgw", "user", "create", "--uid", "test",
                  "--display-name", "test", "--access-key", self.KEY, "--secret-key", self.SECRET)
        for _ in range(600):
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
                return
            except OSError:
                time.sleep(0.1)
        raise RuntimeError("the gateway does not listen")

    def call(self, *command, text=None):
        run = subprocess.run(command, cwd=self.root, input=text, text=True, capture_output=True, check=False, timeout=300)
        if run.returncode != 0:
            raise RuntimeError(f"{' '.join(command)}: {run.stderr[-500:]}")
        return run.stdout

    def close(self):
        for name in os.listdir(os.path.join(self.root, "run")):
            if name.endswith(".pid"):
                with open(os.path.join(self.root, "run", name), encoding="utf-8") as f:
                    pid = int(f.read())
                try:  # it may have ended, and its number may be another's
                    with open(f"/proc/{pid}/comm", encoding="utf-8") as f:
                        if f.read().startswith(("ceph-", "radosgw")):
                            os.kill(pid, signal.SIGKILL)
                except (FileNotFoundError, ProcessLookupError):
                    pass
        shutil.rmtree(self.root, ignore_errors=True)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def request(self, method, bucket, key="", data=b"", query=""):
        """One signed request (Signature Version 4, its payload not)."""
        now = datetime.datetime.now(datetime.timezone.utc).strftime("%Y%m%dT%H%M%SZ")
        path = "/" + bucket + ("/" + urllib.parse.quote(key, safe="/~") if key else "")
        host = f"127.0.0.1:{self.port}"
        signed = {"host": host, "x-amz-content-sha256": "UNSIGNED-PAYLOAD", "x-amz-date": now}
        names = ";".join(signed)
        canonical = "\n".join([method, path, query, *[f"{k}:{v}" for k, v in signed.items()], "", names,
                               "UNSIGNED-PAYLOAD"])
        scope = f"{now[:8]}/{self.REGION}/s3/aws4_request"
        text = "\n".join(["AWS4-HMAC-SHA256", now, scope, hashlib.sha256(canonical.encode()).hexdigest()])
        secret = ("AWS4" + self.SECRET).encode()
        for part in (now[:8], self.REGION, "s3", "aws4_request"):
            secret = hmac.digest(secret, part.encode(), "sha256")
        signature = hmac.new(secret, text.encode(), "sha256").hexdigest()
        headers = {**signed, "Authorization": f"AWS4-HMAC-SHA256 Credential={self.KEY}/{scope},SignedHeaders={names},"
                                              f"Signature={signature}"}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        connection.request(method, path + ("?" + query if query else ""), body=data, headers=headers)
        answer = connection.getresponse()
        body = answer.read()
        connection.close()
        if answer.status >= 300:
            raise RuntimeError(f"{method} {path}: {answer.status} {body[:300]}")
        return body

    def make_bucket(self, bucket):
        self.request("PUT", bucket)

    def put(self, bucket, key, data):
        self.request("PUT", bucket, key, data)

    def delete(self, bucket, key):
        self.request("DELETE", bucket, key)


def main():
    """Starts a gateway with the named buckets, prints its environment for a shell, and ends with its standard input."""
    if missing():
        print(missing(), file=sys.stderr)
        sys.exit(77)
    with Gateway() as store:
        for bucket in sys.argv[1:]:
            store.make_bucket(bucket)
        for name, value in store.environment.items():
            print(f"export {name}={shlex.quote(value)}")
        print("# ready", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main()
