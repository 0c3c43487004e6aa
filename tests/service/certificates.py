# SPDX-License-Identifier: Apache-2.0
"""Certificates for tests of TLS, made by the program openssl: CAs, and what they issue."""
import datetime
import os
import subprocess

_CONFIG = """
[ca]
default_ca = one
[one]
database = {folder}/index.txt
new_certs_dir = {folder}
rand_serial = yes
default_md = sha256
policy = any
unique_subject = no
x509_extensions = issued
[any]
commonName = supplied
[issued]
subjectAltName = {names}
[req]
distinguished_name = empty
[empty]
"""


def openssl(*words, **more):
    p = subprocess.run(["openssl", *words], stdin=subprocess.DEVNULL, capture_output=True, text=True, **more)
    if p.returncode:
        raise OSError(f"openssl {' '.join(words)}: {p.stderr}")
    return p.stdout


def _date(days):
    when = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(days=days)
    return when.strftime("%Y%m%d%H%M%SZ")


class Authority:
    """A CA in a separate folder; .pem is its certificate."""

    def __init__(self, folder, name):
        self.folder = os.path.join(folder, name)
        os.mkdir(self.folder)
        open(os.path.join(self.folder, "index.txt"), "w").close()
        self.pem, self.key = (os.path.join(self.folder, f"ca.{x}") for x in ("pem", "key"))
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "30",
                "-keyout", self.key, "-out", self.pem, "-subj", f"/CN={name}")

    def issue(self, name, names="DNS:localhost,IP:127.0.0.1", since=-1, until=30, to=None):
        """*.pem and *.key of a certificate for these names, valid between these days from now."""
        base = to or os.path.join(self.folder, name)
        config = os.path.join(self.folder, f"{name}.cnf")
        with open(config, "w") as f:
            f.write(_CONFIG.format(folder=self.folder, names=names))
        openssl("req", "-config", config, "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout",
                base + ".key", "-out", base + ".csr", "-subj", f"/CN={name}")
        openssl("ca", "-batch", "-notext", "-config", config, "-cert", self.pem, "-keyfile", self.key, "-in",
                base + ".csr", "-out", base + ".pem", "-startdate", _date(since), "-enddate", _date(until))
        return base + ".pem", base + ".key"

    def sign(self, name, subject):
        """*.pem and *.key of a certificate with this subject, which may have no common name or several."""
        base = os.path.join(self.folder, name)
        openssl("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", subject, "-keyout",
                base + ".key", "-out", base + ".csr")
        openssl("x509", "-req", "-in", base + ".csr", "-CA", self.pem, "-CAkey", self.key, "-days", "30", "-set_serial", "1",
                "-out", base + ".pem")
        return base + ".pem", base + ".key"
