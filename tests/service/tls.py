# SPDX-License-Identifier: Apache-2.0
# tier: plain=full
"""TLS between real processes: who is served, which errors the others get, what the log names, what can be read
on the way, and certificates that change while a job is read."""
import os
import socket
import ssl
import subprocess
import threading
import urllib.error
import urllib.request

import kit
from certificates import Authority, openssl
from hostile_frames import field, frame, hello
from kit import result

for variable in [v for v in os.environ if v.startswith("MILLRACE_TLS")]:
    del os.environ[variable]
ca, other = Authority(kit.directory, "ours"), Authority(kit.directory, "theirs")
server, client = ca.issue("server"), ca.issue("client", "DNS:client")
stranger = other.issue("stranger", "DNS:client")
elsewhere = ca.issue("elsewhere", "DNS:elsewhere.example")
old, bound = ca.issue("old", since=-9, until=-2), ca.issue("soon", until=3)
with open(kit.path("token"), "w") as f:
    f.write("open-sesame-of-the-test")


def own(pair):
    return ["--tls-cert", pair[0], "--tls-key", pair[1]]


def run(*words, **env):
    return subprocess.run([kit.millrace, *words], cwd=kit.directory, stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=kit.PATIENCE, env={**os.environ, **env})


def says(name, p, status, *parts):
    result(name, p.returncode == status and all(x in p.stderr for x in parts) and (status or not p.stderr),
           f"status {p.returncode}, not {status} with {parts}: {p.stdout}{p.stderr}")


def ask(at, *options):
    return run("service", "workers", "--dispatcher", at, *options)


def logged(name, d, *parts):
    result(name, kit.until(lambda: all(x in d.log() for x in parts)), d.log())


def s_client(at, *words):
    """What the program openssl says of the connection."""
    p = subprocess.run(["openssl", "s_client", "-connect", at, *words], input="", capture_output=True, text=True,
                       timeout=kit.PATIENCE)
    return p.stdout + p.stderr


# ---- daemons and those who connect, of every kind
daemons = {
    "plain": kit.Dispatcher(name="plain"),
    "tls": kit.Dispatcher(*own(server), name="tls"),
    "mutual": kit.Dispatcher(*own(server), "--tls-client-ca", ca.pem, name="mutual"),
}
ours = ["--tls-ca", ca.pem]
refused_ca = "permission denied: the certificate /CN=server of the service is refused: unable to get local issuer"
refused_name = "permission denied: the certificate of the service is for localhost, 127.0.0.1, not for other.example"
plainly = "does not use TLS; leave out --tls, --tls-ca and their environment variables, or start it with --tls-cert"
needs_tls = "failed precondition: the service requires TLS; give --tls-ca with the file of its CA"
log_plain = "closed: failed precondition: it began a TLS handshake, but this service has no certificate"
log_tls = "closed: failed precondition: it connected without TLS, which this service requires"
log_ca = "the peer refuses this service's certificate: it does not trust the CA that issued it"
log_name = "the peer refuses this service's certificate: it is for another name, or damaged"
matrix = [  # daemon, who connects, its options, the status, its message, the log's line
    ("plain", "plain", [], 0, "", ""),
    ("plain", "right", ours, 1, plainly, log_plain),
    ("tls", "plain", [], 1, needs_tls, log_tls),
    ("tls", "right", ours, 0, "", ""),
    ("tls", "right_with_a_certificate", ours + own(client), 0, "", ""),
    ("tls", "wrong_ca", ["--tls-ca", other.pem], 1, refused_ca, log_ca),
    ("tls", "wrong_name", ours + ["--tls-name", "other.example"], 1, refused_name, log_name),
    ("tls", "the_systems_cas", ["--tls"], 1, refused_ca, log_ca),
    ("mutual", "plain", [], 1, needs_tls, log_tls),
    ("mutual", "right", ours + own(client), 0, "", ""),
    ("mutual", "no_certificate", ours, 1, "permission denied: the service requires a certificate of its clients; give "
     "--tls-cert and --tls-key", "it presented no client certificate, which --tls-client-ca requires"),
    ("mutual", "certificate_of_another_ca", ours + own(stranger), 1, "permission denied: the service refuses this "
     "side's certificate: it does not trust the CA that issued it; the service's log has the reason",
     "permission denied: the certificate /CN=stranger of the client is refused: unable to get local issuer"),
    ("mutual", "wrong_ca", ["--tls-ca", other.pem] + own(client), 1, refused_ca, log_ca),
    ("mutual", "wrong_name", ours + own(client) + ["--tls-name", "other.example"], 1, refused_name, log_name),
]
for daemon, who, options, status, message, line in matrix:
    d = daemons[daemon]
    says(f"{daemon}_daemon_and_{who}", ask(d.at, *options), status, message)
    if line:
        logged(f"{daemon}_daemon_logs_{who}", d, line)
for name, d in daemons.items():
    with d.connect() as s:
        s.sendall(b"\xde\xad" * 500)
        while s.recv(1000):
            pass
    want = "does not speak this protocol" if name == "plain" else "closed: failed precondition: the peer does not speak TLS"
    logged(f"{name}_daemon_and_garbage", d, want)
for name in ("tls", "mutual"):
    text = s_client(daemons[name].at, "-tls1_2")
    result(f"{name}_daemon_refuses_tls_1_2", "alert protocol version" in text, text)
    logged(f"{name}_daemon_logs_tls_1_2", daemons[name],
           "the peer does not support TLS 1.3, and earlier versions are refused")
    text = s_client(daemons[name].at, "-CAfile", ca.pem, "-verify_return_error", "-verify_hostname", "localhost")
    result(f"{name}_daemon_is_verified_by_openssl", "Verification: OK" in text and "New, TLSv1.3" in text, text)
s_client(daemons["mutual"].at, "-CAfile", ca.pem, "-cert", old[0], "-key", old[1])
logged("an_expired_client_is_refused_and_named", daemons["mutual"],
       "the certificate /CN=old of the client is refused: certificate has expired")
says("verified_by_name", ask(f"localhost:{daemons['tls'].at.split(':')[1]}", *ours), 0)
says("the_name_of_the_other_side", ask(daemons["tls"].at, *ours, "--tls-name", "localhost"), 0)
says("options_of_the_environment", run("service", "workers", "--dispatcher", daemons["mutual"].at, MILLRACE_TLS_CA=ca.pem,
                                       MILLRACE_TLS_CERT=client[0], MILLRACE_TLS_KEY=client[1]), 0)
says("the_systems_cas_of_the_environment", run("service", "workers", "--dispatcher", daemons["tls"].at, "--tls",
                                               SSL_CERT_FILE=ca.pem), 0)


# ---- services that a client refuses
def pretend(*words):
    """A server of the program openssl; its address."""
    with socket.create_server(("127.0.0.1", 0)) as s:
        port = s.getsockname()[1]
    p = subprocess.Popen(["openssl", "s_server", "-accept", f"127.0.0.1:{port}", "-quiet", *words], cwd=kit.directory,
                         stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    kit._processes.append(p)

    def listens():
        try:
            socket.create_connection(("127.0.0.1", port)).close()
            return True
        except OSError:
            return False
    kit.until(listens)
    return f"127.0.0.1:{port}"


says("an_expired_service_is_refused", ask(pretend("-tls1_3", "-cert", old[0], "-key", old[1]), *ours), 1,
     "permission denied: the certificate /CN=old of the service is refused: certificate has expired")
says("a_service_with_tls_1_2_is_refused", ask(pretend("-tls1_2", "-cert", server[0], "-key", server[1]), *ours), 1,
     "failed precondition: the peer does not support TLS 1.3")
says("a_service_of_another_name_is_refused", ask(pretend("-cert", elsewhere[0], "-key", elsewhere[1]), *ours), 1,
     "the certificate of the service is for elsewhere.example, not for 127.0.0.1; --tls-name NAME")

# ---- options
dispatcher = ("dispatcher", "--listen", "127.0.0.1:0")
wrong = [
    ("an_expired_certificate", [*dispatcher, *own(old)], ["tls_cert: the certificate in ", "old.pem expired on "]),
    ("a_certificate_without_a_key", [*dispatcher, "--tls-cert", server[0]], ["tls_cert", "go together"]),
    ("another_key", [*dispatcher, "--tls-cert", server[0], "--tls-key", client[1]], ["tls_key", "not that of the"]),
    ("a_missing_file", [*dispatcher, "--tls-cert", "none.pem", "--tls-key", server[1]], ["none.pem: No such file"]),
    ("no_certificate", [*dispatcher, "--tls-cert", server[1], "--tls-key", server[1]], ["tls_cert", "PEM"]),
    ("a_client_ca_without_a_certificate", [*dispatcher, "--tls-client-ca", ca.pem], ["tls_client_ca", "--tls-cert"]),
    ("a_worker_that_cannot_verify", ["worker", "--dispatcher", "127.0.0.1:1", *own(server)], ["tls_cert", "--tls-ca"]),
    ("a_name_without_tls", ["service", "jobs", "--dispatcher", "127.0.0.1:1", "--tls-name", "a"], ["tls_name"]),
    ("other_hosts_without_tls", ["dispatcher", "--listen", "0.0.0.0:0", "--token-file", "token"],
     ["is open to other hosts without TLS", "--insecure"]),
    ("a_workers_other_hosts_without_tls", ["worker", "--dispatcher", "127.0.0.1:1", "--listen", "0.0.0.0:0", "--root",
                                           ".", "--token-file", "token"], ["without TLS", "--insecure"]),
]
for name, words, parts in wrong:
    p = run(*words)
    result(f"wrong_{name}", p.returncode == 2 and all(x in p.stderr for x in parts), f"{p.returncode}: {p.stderr}")
d = kit.Dispatcher("--token-file", "token", "--insecure", name="insecure", listen="0.0.0.0:0")
logged("insecure_says_what_it_means", d, "without TLS (--insecure): anyone who controls the network can read and alter")
d.stop()
d = kit.Dispatcher(*own(bound), name="bound", listen="0.0.0.0:0")
logged("a_certificate_that_expires_is_a_warning", d, "the certificate /CN=soon in ", " expires on ")
result("other_hosts_with_tls_need_no_more", "--insecure" not in d.log(), d.log())
d.stop()


# ---- a service, and what can be read on the way
class Proxy:
    """Forwards connections, and keeps what it forwards."""

    def __init__(self, to):
        self.to, self.bytes, self.lock = to, bytearray(), threading.Lock()
        self.door = socket.create_server(("127.0.0.1", 0))
        self.at = "127.0.0.1:%d" % self.door.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            a = self.door.accept()[0]
            b = kit.connect(self.to)
            for x, y in ((a, b), (b, a)):
                threading.Thread(target=self._forward, args=(x, y), daemon=True).start()

    def _forward(self, x, y):
        try:
            while data := x.recv(1 << 16):
                with self.lock:
                    self.bytes += data
                y.sendall(data)
        except OSError:
            pass
        for s in (x, y):
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def has(self, word):
        with self.lock:
            return word in self.bytes


class Wire:
    """What passes on loopback to and from a port; None where a process may not look."""

    def __init__(self, port):
        self.port, self.bytes, self.over = port, bytearray(), False
        try:
            self.s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
        except PermissionError:
            self.s = None
            return
        self.s.bind(("lo", 0))
        self.s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        self.s.settimeout(0.1)
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self):
        last = False
        while not last:
            last = self.over
            try:
                while True:
                    packet = self.s.recv(1 << 17)
                    ports = packet[34:38] if packet[12:14] == b"\x08\x00" else b""
                    if self.port.to_bytes(2, "big") in (ports[:2], ports[2:]):
                        self.bytes += packet
            except TimeoutError:
                pass

    def stop(self):
        self.over = True
        if self.s:
            self.thread.join()
        return self.bytes


def secrets(name, options):
    """Reads a job through the dispatcher's proxy: the bytes on both connections."""
    d = kit.Dispatcher("--token-file", "token", *options["daemon"], name=name)
    proxy = Proxy(d.at)
    w = kit.Daemon("worker", "--dispatcher", proxy.at, "--token-file", "token", *options["worker"], name=name + "-worker")
    wire = Wire(kit.address(w.at)[1])
    with open(kit.path("file-of-a-name.txt"), "w") as f:
        f.write("words-of-the-data\n" * 1000)
    graph = (f'text_line("{kit.path("file-of-a-name.txt")}").map(x => (x, "words-of-the-graph"))'
             f'.distribute("{proxy.at}", transfer="tcp", streams=2)')
    p = run("show", "--token-file", "token", *options["client"], graph)
    result(f"{name}_gives_the_elements", p.returncode == 0 and p.stdout.count("words-of-the-data") == 1000, p.stderr)
    on_wire = wire.stop()
    at = w.at
    w.stop()
    d.stop()
    return proxy, on_wire, wire.s is not None, at


words = [b"words-of-the-data", b"words-of-the-graph", b"file-of-a-name", b"open-sesame"]
clear, on_wire, looks, at = secrets("clear", {"daemon": [], "worker": [], "client": []})
result("the_proxy_sees_what_is_in_the_clear", clear.has(words[1]) and clear.has(words[2]) and clear.has(b"MRF1"))
result("the_token_never_is", not clear.has(words[3]))
if looks:
    result("the_wire_shows_what_is_in_the_clear", words[0] in on_wire)
asks = ["--tls-client-ca", ca.pem]
hidden, on_wire, looks, at = secrets("hidden", {"daemon": own(server) + asks, "worker": own(server) + ours + asks,
                                                "client": ours + own(client)})
result("tls_hides_everything_from_the_proxy", len(hidden.bytes) > 1000 and
       not any(hidden.has(x) for x in [*words, b"MRF1", at.encode()]))
if looks:
    result("and_on_the_wire", len(on_wire) > 10000 and not any(x in on_wire for x in [*words, b"MRF1"]))
else:
    kit.skip("the_wire", "this process may not look at packets")

# ---- mutual TLS in place of a token, and shared memory on one host
d = kit.Dispatcher(*own(server), *asks, "--state", "account", name="d")
w = kit.Daemon("worker", "--dispatcher", d.at, *own(server), *ours, *asks, name="w")
graph = "range(2000).map(x => (x, zeros([500]))).shuffle(100, seed=3).batch(10)"
want = kit.local(graph, "seed=4").decode()
for transfer in ("auto", "tcp", "shared_memory"):
    p = run("show", *ours, *own(client), f'{graph}.distribute("{d.at}", seed=4, transfer="{transfer}")')
    result(f"the_same_elements_by_{transfer}", p.returncode == 0 and p.stdout == want, p.stderr)
p = run("show", *ours, f'{graph}.distribute("{d.at}", seed=4)')
result("a_client_without_a_certificate_reads_nothing", p.returncode == 1 and p.stdout == "" and
       "requires a certificate of its clients" in p.stderr, p.stderr)
p = run("show", f'{graph}.distribute("{d.at}", seed=4, connect_timeout=1)')
result("nor_one_without_tls", p.returncode == 1 and p.stdout == "" and "requires TLS" in p.stderr, p.stderr)
p = run("worker", "--dispatcher", d.at, *ours, *own(stranger), "--tls-client-ca", ca.pem)
result("a_strange_worker_ends_and_says_why", p.returncode == 1 and "refuses this side's certificate" in p.stderr, p.stderr)


def local_socket(daemon):
    """The name of the local socket on which it listens."""
    folder = f"/proc/{daemon.process.pid}/fd"
    own_inodes = {os.readlink(f"{folder}/{n}").removeprefix("socket:[").rstrip("]") for n in os.listdir(folder)}
    with open("/proc/net/unix") as f:
        rows = [row.split() for row in f]
    return next(row[7] for row in rows if len(row) == 8 and row[6] in own_inodes and row[7].startswith("@"))


# Who finds the socket's name is of this user, but has no TLS connection.
for daemon in (d, w):
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(kit.PATIENCE)
        s.connect("\0" + local_socket(daemon)[1:])
        s.sendall(hello())
        got = s.recv(1 << 16)
        s.sendall(frame(field(3, b"")))
        while data := s.recv(1 << 16):
            got += data
    result("the_local_socket_refuses_who_has_no_tls_connection",
           b"serves only those that have a TLS connection" in got, got)

# ---- the status page
with open(kit.path("page-token"), "w") as f:
    f.write("token-of-the-page\n")
page = kit.Dispatcher(*own(bound), *asks, "--status", "127.0.0.1:0", "--status-token-file", "page-token", name="page")


def get(at, what, token=None, scheme="https", version=None):
    """The status and the text of a page; None: no answer."""
    context = ssl.create_default_context(cafile=ca.pem)
    context.maximum_version = version or ssl.TLSVersion.TLSv1_3
    request = urllib.request.Request(f"{scheme}://{at}{what}")
    if token:
        request.add_header("Authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=kit.PATIENCE, context=context) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as e:
        return e.code, e.read().decode()
    except OSError:
        return None


for what in ("/", "/metrics", "/status.json", "/page.js", "/none"):
    for token in (None, "token-of-the-pagE", "token-of-the-page-too", "token"):
        got = get(page.page, what, token)
        result(f"the_page_requires_its_token_{what}", got and got[0] == 401 and "Bearer" in got[1] and
               "millrace_" not in got[1], got)
result("its_health_is_free", get(page.page, "/healthz") == (200, "ok\n"))
got = get(page.page, "/status.json", "token-of-the-page")
result("who_has_the_token_sees_it", got and got[0] == 200 and '"workers"' in got[1], got)
got = get(page.page, "/metrics", "token-of-the-page")
end_date = openssl("x509", "-in", bound[0], "-noout", "-enddate").split("=")[1].strip()
want = f"\nmillrace_tls_certificate_expiry_seconds {ssl.cert_time_to_seconds(end_date)}\n"
result("a_metric_says_when_the_certificate_expires", got and want in got[1], (got, want))
result("the_page_needs_tls", get(page.page, "/healthz", scheme="http") is None)
result("and_not_an_earlier_version", get(page.page, "/healthz", version=ssl.TLSVersion.TLSv1_2) is None)
p = run(*dispatcher, "--status", "127.0.0.1:0", "--status-token-file", "none.token")
result("a_missing_token_of_the_page", p.returncode == 2 and "status_token_file: none.token" in p.stderr, p.stderr)
p = run(*dispatcher, "--status", "127.0.0.1:0", "--status-token-file", "")
result("an_empty_name_of_it", p.returncode == 2 and "status_token_file" in p.stderr, p.stderr)
page.stop()

# ---- certificates that change
live = kit.path("live")
for n, serial in enumerate(("first", "second")):
    os.mkdir(kit.path(serial))
    ca.issue(serial, to=os.path.join(kit.path(serial), "tls"))
os.symlink("first", live)
moving = [f"{live}/tls.pem", f"{live}/tls.key"]
d2 = kit.Dispatcher(*own(moving), *asks, "--status", "127.0.0.1:0", name="rotating")
w2 = kit.Daemon("worker", "--dispatcher", d2.at, *own(moving), *ours, *asks, name="rotating-worker")
reader = subprocess.Popen(
    [kit.millrace, "show", *ours, *own(client), f'range(300000).distribute("{d2.at}", streams=2, transfer="tcp", '
     'max_outstanding_bytes=65536)'], cwd=kit.directory, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
kit._processes.append(reader)
lines = [reader.stdout.readline() for i in range(1000)]


def swap(to):
    os.symlink(to, live + ".new")
    os.replace(live + ".new", live)


def serves(at, subject):
    return f"subject=CN = {subject}" in s_client(at, "-CAfile", ca.pem)


result("the_first_certificate_is_served", serves(d2.at, "first") and serves(w2.at, "first") and serves(d2.page, "first"))
swap("second")
result("a_swapped_link_is_noticed", kit.until(lambda: serves(d2.at, "second") and serves(w2.at, "second")), d2.log())
logged("and_logged", d2, "the certificates were read again: /CN=second, valid until ")
result("also_by_the_page", kit.until(lambda: serves(d2.page, "second") and get(d2.page, "/healthz")), d2.log())
result("while_the_job_is_read", reader.poll() is None)
os.mkdir(kit.path("broken"))
for name in ("tls.pem", "tls.key"):
    with open(kit.path(f"broken/{name}"), "w") as f:
        f.write("no certificate\n")
swap("broken")
logged("a_broken_file_is_an_error_of_the_log", d2, "the certificates stay as they were: tls_cert: ")
result("and_the_old_certificate_stays", serves(d2.at, "second"))
ca.issue("old2", since=-9, until=-2, to=kit.path("broken/tls"))
logged("so_is_an_expired_one", d2, "the certificates stay as they were: tls_cert: the certificate in ", "expired on")
swap("second")
kit.until(lambda: d2.log().count("/CN=second, valid until") >= 2)
d2.process.send_signal(1)
result("a_hangup_reads_them_again", kit.until(lambda: d2.log().count("/CN=second, valid until") >= 3), d2.log())
rest = reader.stdout.read()
reader.wait(kit.PATIENCE)
result("the_job_gives_the_same_elements", "".join(lines) + rest == kit.local("range(300000)", "streams=2").decode(),
       d2.log())
for daemon in (w2, d2, w, d, *daemons.values()):
    result("ends_well", daemon.stop() == 0, daemon.log())
kit.end()
