# SPDX-License-Identifier: Apache-2.0
# tier: plain=full
"""Processes of a training job that know each other by TLS and a token: which strangers are refused, which reasons
they get and what the log says of them, while the job waits for its processes; the same sums; and what can be read on the
way."""
import os
import re
import socket
import ssl
import struct
import subprocess
import sys
import threading

root = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path += [os.path.join(root, "service"), root]
sys.dont_write_bytecode = True
import kit  # noqa: E402
from certificates import Authority  # noqa: E402
from kit import result  # noqa: E402
from ports import ports  # noqa: E402

for variable in [v for v in os.environ if v.startswith(("MILLRACE_TLS", "MILLRACE_CLUSTER", "TF_CONFIG", "SLURM"))]:
    del os.environ[variable]
long = os.environ.get("MR_TEST_TIER") == "long"
rank_program = os.path.join(kit.build, "tests", "rank")
ca, other = Authority(kit.directory, "ours"), Authority(kit.directory, "theirs")
ours, named = ca.issue("ours"), ca.issue("node7", "DNS:node7.example")
other_node7, node8 = ca.issue("other7", "DNS:node7.example"), ca.issue("node8", "DNS:node8.example")
theirs, old = other.issue("stranger"), ca.issue("old", since=-9, until=-2)
for name in ("secret", "different"):
    with open(kit.path(name), "w") as f:
        f.write(name + "-of-the-test\n")


def tls(pair, authority=ca, **more):
    return {"MILLRACE_TLS_CERT": pair[0], "MILLRACE_TLS_KEY": pair[1], "MILLRACE_TLS_CA": authority.pem, **more}


def token(name):
    return {"MILLRACE_CLUSTER_TOKEN_FILE": kit.path(name)}


class Rank:
    """A process of a job of the program millrace, or of tests/ranks/rank.c; .err has what it says, also as it runs."""

    def __init__(self, rank, world, port, words, env, at="127.0.0.1"):
        Rank.count = getattr(Rank, "count", 0) + 1
        self.path = kit.path(f"rank.{Rank.count}")
        with open(self.path + ".err", "w") as err, open(self.path + ".out", "w") as out:
            self.process = subprocess.Popen(
                words, cwd=kit.directory, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                env={**os.environ, "RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_ADDR": at,
                     "MASTER_PORT": str(port), **env})
        kit._processes.append(self.process)

    def _read(self, what):
        with open(self.path + what, errors="replace") as f:
            return f.read()

    err, out = property(lambda self: self._read(".err")), property(lambda self: self._read(".out"))

    def wait(self):
        return self.process.wait(kit.PATIENCE)

    def says(self, *parts):
        return kit.until(lambda: all(x in self.err for x in parts) or self.process.poll() is not None) and \
            all(x in self.err for x in parts)


def rank(i, world, port, env, *words, timeout=kit.PATIENCE):
    return Rank(i, world, port, [rank_program, "--connect-timeout", str(timeout), "--peer-timeout", str(kit.PATIENCE),
                                 *words], env)


MODEL = ["--data", 'range(64).map(i => ([cast(i % 7, "float32"), 1.0], [cast(i % 3, "float32")])).batch(8)', "--model",
         "dense(4).dense(1)", "--loss", "mse", "--optimizer", "adam(0.01)", "--seed", "3", "--log", "json"]


def train(i, world, port, env, *words, timeout=kit.PATIENCE):
    return Rank(i, world, port, [kit.millrace, "train", *MODEL, "--connect-timeout", str(timeout), "--peer-timeout",
                                 str(kit.PATIENCE), *words], env)


def listens(port):
    def look():
        with open("/proc/net/tcp") as f:
            return f":{port:04X} 00000000:0000 0A " in f.read()
    return kit.until(look)


def send(port, data):
    """What comes back from who speaks so, until the connection ends."""
    with socket.create_connection(("127.0.0.1", port), timeout=kit.PATIENCE) as s:
        s.sendall(data)
        got = b""
        try:
            while part := s.recv(4096):
                got += part
        except ConnectionResetError:
            pass
        return got


def shake(port, pair=None, version=ssl.TLSVersion.TLSv1_3):
    """The reason that a TLS client gets."""
    context = ssl.create_default_context(cafile=ca.pem)
    context.minimum_version = context.maximum_version = version
    if pair:
        context.load_cert_chain(*pair)
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=kit.PATIENCE) as plain:
            with context.wrap_socket(plain, server_hostname="localhost") as s:
                return repr(s.recv(100))
    except OSError as e:
        return str(e)


# ---- a program at the address of the first process that accepts and says nothing, and whose connection stays
with_certificate = ssl.create_default_context(cafile=ca.pem)
with_certificate.load_cert_chain(*ours)
accepts = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=ca.pem)
accepts.load_cert_chain(*ours)
mute = {}
for name, env in (("open", {}), ("tls", tls(ours)), ("certified", tls(ours))):
    with socket.create_server(("127.0.0.1", 0)) as door:
        second = rank(1, 2, door.getsockname()[1], env, "--tcp", "check")
        door.settimeout(kit.PATIENCE)
        taken = door.accept()[0]
        if name == "certified":
            taken = accepts.wrap_socket(taken, server_side=True)
    mute[name] = taken, second, rank(0, 2, taken.getsockname()[1], env, "--tcp", "check")

# ---- the matrix: who comes to a job whose first process waits
jobs = {
    "open": {},
    "token": token("secret"),
    "tls": tls(ours),
    "both": {**tls(ours), **token("secret")},
}
refuses = r"rank 0 \(127\.0\.0\.1:\d+\)( refuses this process)?: "
not_peer = r"rank 0 \(127\.0\.0\.1:\d+\) is not a peer; still waiting for the peer: "
needs_token = "this job requires a token; give all processes the same --cluster-token-file"
needs_tls = "this job requires TLS; give all processes --tls-cert, --tls-key and --tls-ca"
no_tls = "the process at 127.0.0.1 does not use TLS; leave out --tls"
log_tls = "it began a TLS handshake, but this process has no certificate"
log_plain = "it connected without TLS, which this process requires"
refused_ca = "the certificate /CN=ours of the peer is refused: unable to get local issuer certificate"
log_ca = "the peer refuses this process's certificate: it does not trust the CA that issued it"
stranger_ca = "the process refuses this side's certificate: it does not trust the CA that issued it"
log_stranger = "the certificate /CN=stranger of the peer is refused: unable to get local issuer certificate"
trusts_both = kit.path("both.pem")
with open(trusts_both, "w") as f:
    f.write(open(ca.pem).read() + open(other.pem).read())
matrix = [  # the job, who comes, with what, the reason it gets, what the log of the first says
    ("open", "a_token", token("secret"), "a token was given, but this job has none", "it has a token, but this process has none"),
    ("open", "tls", tls(ours), no_tls, log_tls),
    ("token", "nothing", {}, needs_token, "it has no token"),
    ("token", "another_token", token("different"), "the tokens differ; all processes", "it has another token"),
    ("token", "tls", {**tls(ours), **token("secret")}, no_tls, log_tls),
    ("tls", "nothing", {}, needs_tls, log_plain),
    ("tls", "a_token", token("secret"), needs_tls, log_plain),
    ("tls", "another_ca", tls(ours, other), refused_ca, log_ca),
    ("tls", "a_certificate_of_another_ca", tls(theirs), stranger_ca, log_stranger),
    ("tls", "another_name", tls(node8, MILLRACE_TLS_NAME="other.example"),
     "the certificate of the process is for localhost, 127.0.0.1, not for other.example", "it is for another name"),
    ("tls", "also_a_token", {**tls(ours), **token("secret")}, "a token was given, but this job has none", "it has a token"),
    ("both", "no_token", tls(ours), needs_token, "it has no token"),
    ("both", "another_token", {**tls(ours), **token("different")}, "the tokens differ", "it has another token"),
    ("both", "no_tls", token("secret"), needs_tls, log_plain),
    ("both", "a_certificate_of_another_ca", {**tls(theirs), **token("secret")}, stranger_ca, log_stranger),
]
http = b"GET / HTTP/1.1\r\nHost: somebody\r\n\r\n"
hello_of_a_rank = struct.pack("<4sIII", b"MRMT", 2, 1, 16 << 20) + b"\1" * 100  # it would have 16 MiB
other_version = struct.pack("<4sIII", b"MRMT", 7, 1, 0) + b"\0" * 100
firsts, come = {}, []
for job, env in jobs.items():
    port = ports(1)[0]
    firsts[job] = rank(0, 2, port, env, "--tcp", "check"), port
    for j, who, with_, reason, log in matrix:
        # Who is refused ends. Who refuses the first process takes that for a stranger, and tries again and again: it
        # gets one for itself, since the log has at most ten such messages in a minute.
        refuses_it = reason.startswith(("the process at", "the certificate"))
        own = ports(1)[0] if refuses_it else port
        if j == job:
            first = rank(0, 2, own, env, "--tcp", "check") if refuses_it else firsts[job][0]
            come.append((f"{job}_job_and_{who}", refuses_it, reason, log, first, rank(1, 2, own, with_, "--tcp", "check")))
for name, refuses_it, reason, log, first, r in come:
    if refuses_it:
        result(f"{name}_refuses_it", r.says("not a peer") and re.search(not_peer + re.escape(reason), r.err),
               f"not {reason}: {r.err}")
    else:
        result(f"{name}_gets_the_reason", r.wait() == 1 and re.search(f"error: {refuses}{re.escape(reason)}", r.err),
               f"{r.wait()}, not {reason}: {r.err}")
    result(f"{name}_is_logged", first.says("refused a connection from 127.0.0.1:", log), first.err)
    if refuses_it:
        r.process.kill()
        first.process.kill()
for job, env in jobs.items():
    first, port = firsts[job]
    if job != "open":
        # All get a reason in the clear.
        got = send(port, other_version)
        result(f"{job}_job_and_another_version", b"requires TLS" in got or b"run the same release" in got, got)
        got = send(port, hello_of_a_rank)
        result(f"{job}_job_takes_no_large_message", b"requires T" in got or b"requires a t" in got, got)
    for who, data in (("http", http), ("garbage", b"\xde\xad" * 500)):
        got = send(port, data)
        reason = b"requires TLS" if "MILLRACE_TLS_CERT" in env else b"it is not a Millrace training process"
        result(f"{job}_job_and_{who}", reason in got, got)
    want = "the peer does not speak TLS" if "MILLRACE_TLS_CERT" in env else "it is not a Millrace training process"
    result(f"{job}_job_logs_garbage", first.says(want), first.err)
    silent = socket.create_connection(("127.0.0.1", port))
    # The job waits on, and its own process is let in.
    second = rank(1, 2, port, env, "--tcp", "check")
    ends = [first.wait(), second.wait()]
    result(f"{job}_job_meets_after_all", ends == [0, 0] and first.out == second.out, first.err[-2000:] + second.err)
    result(f"{job}_job_is_connected_so", f"connected by {'TLS' if 'MILLRACE_TLS_CERT' in env else 'TCP'}\n" in second.err,
           second.err)
    silent.close()
    jobs[job] = first.out
result("sums_have_the_same_bits", len(set(jobs.values())) == 1 and jobs["tls"].startswith("done "), jobs)

port = ports(1)[0]
first = rank(0, 2, port, tls(ours), "--tcp", "check")
listens(port)
for name, words, reason, log in (
        ("no_certificate", {}, "certificate required", "it presented no certificate, which every process of a job needs"),
        ("an_expired_certificate", {"pair": old}, "certificate expired",
         "the certificate /CN=old of the peer is refused: certificate has expired"),
        ("tls_1_2", {"version": ssl.TLSVersion.TLSv1_2}, "alert protocol version",
         "the peer does not support TLS 1.3, and earlier versions are refused")):
    got = shake(port, **words)
    result(f"{name}_gets_the_reason", reason in got, got)
    result(f"{name}_is_logged", first.says(log), first.err)
first.process.kill()

# ---- who is at the address of the first process
port = ports(1)[0]
fake = subprocess.Popen(["openssl", "s_server", "-accept", f"127.0.0.1:{port}", "-quiet", "-cert", theirs[0], "-key",
                         theirs[1]], cwd=kit.directory, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                        stderr=subprocess.DEVNULL)
kit._processes.append(fake)
listens(port)
second = rank(1, 2, port, tls(ours), "--tcp", "check")
result("a_stranger_at_the_address_is_named", second.says(
    "is not a peer; still waiting for the peer: the certificate /CN=stranger of the peer is refused: unable to get"), second.err)
fake.kill()
fake.wait()
first = rank(0, 2, port, tls(ours), "--tcp", "check")
result("and_the_peer_waited_for", [first.wait(), second.wait()] == [0, 0], first.err + second.err)

for name, (taken, second, first) in mute.items():
    result(f"a_silent_program_at_the_address_of_an_{name}_job_is_left", [first.wait(), second.wait()] == [0, 0] and
           re.search(r"rank 0 \(127.0.0.1:\d+\) has not answered for \d+ s; trying again", second.err), first.err + second.err)
    taken.close()

# ---- more silent connections than a process keeps: the oldest make room, also those with a certificate
def silent_at(port, secure):
    s = socket.create_connection(("127.0.0.1", port), timeout=kit.PATIENCE)
    return with_certificate.wrap_socket(s, server_hostname="localhost") if secure else s


for name, env, secure in (("open", {}, False), ("tls", tls(ours), False), ("certified", tls(ours), True)):
    port = ports(1)[0]
    first = rank(0, 2, port, env, "--tcp", "check")
    listens(port)
    crowd = [silent_at(port, secure) for i in range(200)]
    over = crowd[0].recv(1) == b""
    crowd[-1].setblocking(False)
    try:
        crowd[-1].recv(1)
        waits = False
    except (BlockingIOError, ssl.SSLWantReadError):
        waits = True
    second = rank(1, 2, port, env, "--tcp", "check")
    result(f"a_silent_crowd_keeps_nobody_out_of_an_{name}_job", over and waits and [first.wait(), second.wait()] == [0, 0],
           f"{over} {waits} {first.err}{second.err}")
    for s in crowd:
        s.close()

# ---- one certificate for all, whatever its name; other names
for name, env, status in (("one_certificate_of_another_name_serves_all", [tls(named)] * 3, 0),
                          ("a_name_for_all", [tls(x, MILLRACE_TLS_NAME="node7.example") for x in (named, named, other_node7)], 0),
                          ("two_cas", [tls(ours, MILLRACE_TLS_CA=trusts_both, MILLRACE_TLS_CLIENT_CA=trusts_both),
                                       tls(theirs, MILLRACE_TLS_CA=trusts_both), tls(ours, MILLRACE_TLS_CA=trusts_both)], 0)):
    port = ports(1)[0]
    all_ = [rank(i, 3, port, env[i], "--tcp", "--exchange", "steps", "5") for i in range(3)]
    result(name, [r.wait() for r in all_] == [status] * 3, "".join(r.err for r in all_))

# ---- options
wrong = [
    ("an_expired_certificate", tls(old), "tls_cert: the certificate in "),
    ("no_ca", {k: v for k, v in tls(ours).items() if not k.endswith("_CA")}, "tls_cert: a certificate is set, but no CA"),
    ("the_systems_cas", {**{k: v for k, v in tls(ours).items() if not k.endswith("_CA")}, "MILLRACE_TLS": "1"},
     "those of the system's CAs could be anyone's"),
    ("no_token_file", token("none"), "none: cannot open the file"),
]
for name, env, text in wrong:
    r = rank(0, 2, 1, env, "check")
    result(f"wrong_{name}", r.wait() == 1 and text in r.err, r.err)
alone = {"ca": train(0, 2, ports(1)[0], {}, "--tls-ca", ca.pem, timeout=1),
         "token": train(0, 2, ports(1)[0], token("secret"), timeout=1)}
for name, env in (("nothing", {}), ("a_token", token("secret")), ("tls", tls(ours))):
    alone[name] = Rank(0, 2, ports(1)[0], [kit.millrace, "train", *MODEL, "--connect-timeout", "1"], env, at="0.0.0.0")
for r in alone.values():
    r.wait()
r = alone["ca"]
result("a_ca_alone_is_for_other_connections", r.wait() == 1 and "still waiting for rank 1" in r.err, r.err)

result("loopback_is_no_warning", "warning" not in alone["token"].err, alone["token"].err)
for name, text in (("nothing", "without TLS and without a token: anyone who reaches that port can join"),
                   ("a_token", "with a token, but without TLS: anyone who controls the network"), ("tls", None)):
    err = alone[name].err
    result(f"other_hosts_and_{name}", text in err if text else "warning" not in err, err)


# ---- failures are noticed as they are in the clear
def fails(name, env, kill, *words, want):
    port = ports(1)[0]
    all_ = [rank(i, 3, port, env, "--tcp", *words) for i in range(3)]
    if kill:
        kit.until(lambda: "step 5\n" in all_[1].out)
        all_[1].process.kill()
    ends = [r.wait() for r in all_]
    result(name, ends[0] == ends[2] == 1 and all(re.search(want, r.err) for r in (all_[0], all_[2])),
           f"{ends} " + "".join(r.err for r in all_))


at = r"rank 1 \(127\.0\.0\.1:\d+\) "
fails("a_killed_rank_is_named", tls(ours), True, "--pause", "5", "steps", "100000", want=at + ".*killed or crashed")
fails("connections_that_are_cut", tls(ours), False, "--rank", "1", "--at", "4", "--do", "cut", "steps", "1000",
      want=r"rank [0-2] \(127\.0\.0\.1:\d+\).*at step [0-9]+")
fails("stray_bytes", tls(ours), False, "--rank", "1", "--at", "4", "--do", "stray", "steps", "1000",
      want=r"rank [0-2] \(127\.0\.0\.1:\d+\).*(at step [0-9]+|cannot be decrypted)")
fails("a_failure_is_everybodys", tls(ours), False, "--rank", "1", "--at", "4", "--do", "abort", "steps", "1000",
      want=at + "failed at step 4: no such file")


# ---- what passes on the way
class Relay:
    """Forwards connections to `to`, and keeps what it forwards."""

    def __init__(self, to):
        self.to, self.bytes, self.lock = to, bytearray(), threading.Lock()
        self.door = socket.create_server(("127.0.0.1", 0))
        self.port = self.door.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            a = self.door.accept()[0]
            try:
                b = socket.create_connection(("127.0.0.1", self.to))
            except OSError:
                a.close()
                continue
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


def relayed(env, words):
    """The bytes on all connections of a job of two processes, by TF_CONFIG with relays before both addresses."""
    own = ports(2)
    relays = [Relay(p) for p in own]
    all_ = []
    for i in range(2):
        at = [f"127.0.0.1:{own[k] if k == i else relays[k].port}" for k in range(2)]
        config = ('{"cluster": {"worker": ["%s", "%s"]}, "task": {"type": "worker", "index": %d}}' % (*at, i))
        all_.append(Rank(i, 2, 1, words, {**env, "TF_CONFIG": config}))
    ends = [r.wait() for r in all_]
    return ends, bytes(relays[0].bytes) + bytes(relays[1].bytes), "".join(r.err for r in all_), all_[0].out


ones = struct.pack("<f", 1.0) * 8  # of the values that rank.c sums
steps = [rank_program, "--tcp", "--connect-timeout", str(kit.PATIENCE), "--fact", "model=name-of-the-model", "steps", "3"]
seen = {}
for job, env in (("clear", {}), ("token", token("secret")), ("hidden", {**tls(ours), **token("secret")})):
    ends, seen[job], err, _ = relayed(env, steps)
    result(f"{job}_job_through_relays", ends == [0, 0] and len(seen[job]) > 10000, err)
result("relays_see_what_is_in_the_clear", all(x in seen[j] for x in (ones, b"name-of-the-model", b"MRMT")
                                              for j in ("clear", "token")))
result("the_token_is_never_sent", not any(b"secret-of" in x for x in seen.values()))
result("tls_hides_everything", not any(x in seen["hidden"] for x in (ones, b"name-of-the-model", b"MRMT", b"secret-of")))

# ---- who has a certificate of the job but not its token, and passes on what others prove
class Between(Relay):
    def _accept(self):
        accepts, connects = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context(cafile=ca.pem)
        accepts.load_cert_chain(*ours)
        connects.load_cert_chain(*ours)
        while True:
            a = self.door.accept()[0]
            try:
                b = connects.wrap_socket(socket.create_connection(("127.0.0.1", self.to)), server_hostname="127.0.0.1")
                a = accepts.wrap_socket(a, server_side=True)
            except OSError:
                a.close()
                continue
            for x, y in ((a, b), (b, a)):
                threading.Thread(target=self._forward, args=(x, y), daemon=True).start()


for name, env, meets in (("a_token", {**tls(ours), **token("secret")}, False), ("no_token", tls(ours), True)):
    port = ports(1)[0]
    between = Between(port)
    first = rank(0, 2, port, env, "--tcp", "check")
    listens(port)
    second = rank(1, 2, between.port, env, "--tcp", "check")
    if meets:  # it has all that is required
        result(f"who_is_between_and_has_{name}_passes_on_all", kit.until(lambda: b"MRMT" in between.bytes))
    else:
        result(f"who_is_between_and_has_{name}_cannot_use_a_proof", second.wait() == 1 and "the tokens differ" in second.err and
               first.says("it has another token"), first.err + second.err)
    for r in (first, second):
        r.process.kill()

# ---- the program: options, environment, and processes that it starts itself
port = ports(1)[0]
options = ["--tls-cert", ours[0], "--tls-key", ours[1], "--tls-ca", ca.pem, "--cluster-token-file", kit.path("secret")]
all_ = [train(0, 2, port, {}, *options), train(1, 2, port, {**tls(ours), **token("secret")})]
result("options_are_as_the_environment", [r.wait() for r in all_] == [0, 0], "".join(r.err for r in all_))
port = ports(1)[0]
plain = [train(i, 2, port, {}) for i in range(2)]
result("losses_have_the_same_bits", [r.wait() for r in plain] == [0, 0] and plain[0].out == all_[0].out != "", plain[0].err)
for name, words, env in (("options", [*options[:1], named[0], options[2], named[1], *options[4:]], {}),
                         ("environment", [], {**tls(ours), **token("secret")})):
    p = subprocess.run([kit.millrace, "train", *MODEL, "--processes", "2", *words], cwd=kit.directory, timeout=kit.PATIENCE,
                       stdin=subprocess.DEVNULL, capture_output=True, text=True, env={**os.environ, **env})
    result(f"processes_with_the_{name}", p.returncode == 0 and p.stdout == plain[0].out and "without TLS" not in p.stderr, p.stderr)
kit.end()
