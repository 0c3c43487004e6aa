#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# tier: plain=full
"""Every format from nginx over https, with an authority of the test; and certificates that are not good."""
import os
import shutil
import socket
import subprocess
import time

import gateway
import kit
from kit import Run, directory, result, show

NGINX = shutil.which("nginx", path=os.environ["PATH"] + ":/usr/sbin:/sbin")
OPENSSL = shutil.which("openssl")
if not kit.has_libcurl():
    kit.skip_all("built without libcurl")
if not NGINX or not OPENSSL:
    kit.skip_all(f"{'openssl' if NGINX else 'nginx-light'} is not installed")
root = directory.name
site = os.path.join(root, "site")
os.mkdir(site)
port, plain = gateway.free_ports(2)


def openssl(*arguments):
    subprocess.run([OPENSSL, *arguments], cwd=root, check=True, capture_output=True)


for name in ("ca", "other"):
    openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", f"{name}.key", "-out", f"{name}.pem", "-days", "2",
            "-subj", f"/CN=test {name}", "-addext", "basicConstraints=critical,CA:TRUE")
openssl("req", "-newkey", "rsa:2048", "-nodes", "-keyout", "server.key", "-out", "server.csr", "-subj", "/CN=localhost")
with open(os.path.join(root, "names"), "w", encoding="ascii") as f:
    f.write("subjectAltName=DNS:localhost\n")
openssl("x509", "-req", "-in", "server.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-out", "server.pem",
        "-days", "2", "-extfile", "names")
with open(os.path.join(root, "nginx.conf"), "w", encoding="ascii") as f:
    f.write(f"""
daemon off; pid {root}/nginx.pid; error_log {root}/error.log; worker_processes 1;
events {{ worker_connections 256; }}
http {{
    access_log off; client_body_temp_path {root}/t1; proxy_temp_path {root}/t2; fastcgi_temp_path {root}/t3;
    uwsgi_temp_path {root}/t4; scgi_temp_path {root}/t5;
    server {{ listen 127.0.0.1:{port} ssl; root {site}; ssl_certificate {root}/server.pem;
              ssl_certificate_key {root}/server.key; }}
    server {{ listen 127.0.0.1:{plain}; root {site}; }}
}}
""")
if os.geteuid() == 0:  # its workers have another user
    os.chmod(root, 0o755)
nginx = subprocess.Popen([NGINX, "-c", os.path.join(root, "nginx.conf"), "-p", root, "-e", os.path.join(root, "error.log")],
                         stderr=subprocess.DEVNULL)
try:
    for _ in range(300):
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            break
        except OSError:
            time.sleep(0.1)
    os.environ["SSL_CERT_FILE"] = os.path.join(root, "ca.pem")
    at = f"https://localhost:{port}/"
    elements = 'range(50000).map(i => {"a": i, "b": cast(i, "float32") / 2.0})'
    endings = {"tfrecord": "tfrecord", "jsonl": "jsonl", "npy": "npy", "arrow": "arrow", "parquet": "parquet"}
    sources = {"tfrecord": 'tfrecord("{}").map(x => parse_example(x, a=int64, b=float32))', "jsonl": 'jsonl("{}", {{"a": int64, "b": float32}})',
               "npy": 'npy("{}")', "arrow": 'arrow("{}")', "parquet": 'parquet("{}")'}
    for form in endings:
        made = Run(["write", "--out", os.path.join(site, form), "--format", form, "--expr", elements])
        names = sorted(n for n in os.listdir(site) if n.startswith(form))
        result(f"{form}_is_written", made.status == 0 and len(names) == 1, f"{made} {names}")
        local, remote = (show(sources[form].format(x + names[0])) for x in (site + "/", at))
        result(f"{form}_is_the_same", local.status == 0 and remote.status == 0 and local.stdout == remote.stdout,
               f"{local}\n{remote}")
        restored = show(sources[form].format(at + names[0]), "--save-after", "31000", "--state", os.path.join(root, "s"))
        rest = show(sources[form].format(at + names[0]), "--restore", os.path.join(root, "s"))
        result(f"{form}_resumes", restored.lines + rest.lines == local.lines, f"{restored}\n{rest}")
    record = "tfrecord-00000-of-00001.tfrecord"
    Run(["index", os.path.join(site, record)])
    mixed = 'tfrecord("{}").global_shuffle(seed=7).map(x => parse_example(x, a=int64)).take(3000)'
    local, remote = (show(mixed.format(x + record)) for x in (site + "/", at))
    result("global_shuffle_is_the_same", local.status == 0 and local.stdout == remote.stdout, f"{local}\n{remote}")
    Run(["index", "--compact", os.path.join(site, record)])
    remote = show(mixed.format(at + record))
    result("global_shuffle_with_a_compact_index", local.stdout == remote.stdout, str(remote))
    os.remove(os.path.join(site, record + ".idx"))
    remote = show(mixed.format(at + record))
    result("global_shuffle_without_an_index", remote.status == 1 and "millrace index" in remote.stderr, str(remote))
    for compression in ("GZIP", "ZSTD"):
        out = os.path.join(site, compression)
        Run(["write", "--out", out, "--compress", compression, "--expr", elements])
        (name,) = (n for n in os.listdir(site) if n.startswith(compression))
        remote = show(f'tfrecord("{at}{name}", compression="{compression}").map(x => parse_example(x, a=int64)).skip(49999)')
        result(f"{compression}_is_read", remote.lines == ['{"a": 49999}'], str(remote))
    with open(os.path.join(site, "words.txt"), "w", encoding="ascii") as f:
        f.write("red\ngreen\nblue\n")
    looked_up = show(f'from_tensor_slices(["blue", "red"]).map(x => lookup(x, "{at}words.txt"))')
    here = show(f'from_tensor_slices(["blue", "red"]).map(x => lookup(x, "{site}/words.txt"))')
    result("a_vocabulary", looked_up.status == 0 and looked_up.stdout == here.stdout, f"{looked_up}\n{here}")
    contents = show(f'from_tensors("{at}words.txt").map(p => read_file(p))')
    result("read_file", contents.lines == ['"red\\ngreen\\nblue\\n"'], str(contents))
    inspected = Run(["inspect", at + record])
    result("inspect", inspected.status == 0 and b"50000" in inspected.stdout, f"{inspected}\n{inspected.stdout[:500]!r}")
    many = show(f'list_files("{at}words.txt", "{site}/words.txt")')
    result("list_files_has_both", many.lines == [f'"{site}/words.txt"', f'"{at}words.txt"'], str(many))
    unencrypted = show(f'text_line("http://localhost:{plain}/words.txt")')
    result("without_encryption", unencrypted.lines == ['"red"', '"green"', '"blue"'], str(unencrypted))
    gone = show(f'text_line("{at}gone*.txt")')
    result("no_patterns", gone.status == 1 and "404" in gone.stderr, str(gone))

    # ---- certificates
    for name, url, authority in (("of_another_authority", at, "other.pem"), ("of_another_name", at.replace("localhost", "127.0.0.1"), "ca.pem")):
        bad = show(f'text_line("{url}words.txt")', SSL_CERT_FILE=os.path.join(root, authority))
        result(f"a_certificate_{name}", bad.status == 1 and "failed precondition" in bad.stderr and "certificate" in bad.stderr and
               not bad.lines, str(bad))
    bad = show(f'text_line("{at}words.txt")', SSL_CERT_FILE=os.path.join(root, "no.pem"))
    result("no_file_of_authorities", bad.status == 1 and "SSL_CERT_FILE" in bad.stderr, str(bad))

    # ---- a proxy
    with kit.Tunnel() as tunnel:
        proxied = show(f'text_line("{at}words.txt")', HTTPS_PROXY=tunnel.address)
        result("a_proxy", proxied.lines == ['"red"', '"green"', '"blue"'] and tunnel.asked == [f"localhost:{port}"],
               f"{proxied}\n{tunnel.asked}")
    proxied = show(f'text_line("{at}words.txt")', HTTPS_PROXY="http://127.0.0.1:9", MILLRACE_REMOTE_RETRIES="1")
    result("a_proxy_is_used", proxied.status == 1 and "unavailable" in proxied.stderr, str(proxied))
    direct = show(f'text_line("{at}words.txt")', HTTPS_PROXY="http://127.0.0.1:9", NO_PROXY="localhost")
    result("no_proxy_holds", direct.status == 0, str(direct))
finally:
    nginx.terminate()
    nginx.wait()
kit.end()
