# SPDX-License-Identifier: Apache-2.0
# tier: plain=full
"""What a peer may do: each sentence of that section of docs/service.md, tested by attacks. The name of a
test begins with the number of its sentence there; a sentence without a test fails, and so does one that
was changed without this list."""
import contextlib
import hmac
import os
import random
import re
import shutil
import signal
import socket
import sqlite3
import ssl
import subprocess
import tarfile
import threading
import time
import zipfile

import kit
from certificates import Authority
from hostile_frames import field, frame, frames, hello, parse, send
from kit import result

source = os.environ["MR_SOURCE"]
is_long = os.environ.get("MR_TEST_TIER") == "long"
random.seed(int(os.environ.get("MR_TEST_SEED", "1")))
SENTENCES = []


def sentence(text):
    """The tests that follow are of this sentence."""
    SENTENCES.append(text)
    print(f"{len(SENTENCES)}. {text}")


def check(name, good, why=""):
    result(f"{len(SENTENCES)}_{name}", good, why)


def run(*words, **env):
    return subprocess.run([kit.millrace, *words], cwd=kit.directory, stdin=subprocess.DEVNULL, capture_output=True,
                          text=True, timeout=kit.PATIENCE, env={**os.environ, **env})


def show(graph, at, options="", *words):
    """What a client prints that reads the graph through the service."""
    more = f", {options}" if options else ""
    return run("show", *words, f'{graph}.distribute("{at}"{more})')


def refused(name, p, *parts):
    check(name, p.returncode == 1 and not p.stdout and all(x in p.stderr for x in parts),
          f"status {p.returncode}, not 1 with {parts}: {p.stdout[-500:]}{p.stderr[-1500:]}")


def reads(name, p, lines):
    check(name, p.returncode == 0 and p.stdout.splitlines() == lines,
          f"status {p.returncode}, not {lines}: {p.stdout[-500:]}{p.stderr[-1500:]}")


def put(name, text):
    os.makedirs(os.path.dirname(kit.path(name)), exist_ok=True)
    with open(kit.path(name), "w") as f:
        f.write(text)
    return kit.path(name)


def everything():
    """All files below the test's directory, but the logs."""
    return sorted(os.path.join(d, f) for d, _, files in os.walk(kit.directory) for f in files if not f.endswith(".log"))


# ---- files that are written
put("in/a.txt", "a\n")
put("out/secret.txt", "secret\n")
os.mkdir(kit.path("may"))
d = kit.Dispatcher()
w = kit.Daemon("worker", "--dispatcher", d.at, name="worker")
writers = {
    "cache_in_a_file": f'range(4).cache("{kit.path("c")}")',
    "cache_in_a_function": f'range(4).flat_map(x => range(2).cache("{kit.path("c")}"))',
    "cache_of_a_computed_name": f'range(4).flat_map(x => range(2).cache(join(["{kit.path("c")}", "1"])))',
    "cache_in_a_function_of_a_function":
        f'range(4).flat_map(x => range(2).interleave(y => range(2).cache("{kit.path("c")}")))',
    "save": f'range(4).save("{kit.path("s")}")',
    "snapshot": f'range(4).snapshot("{kit.path("s")}")',
    "snapshot_in_a_branch": f'zip([range(4), range(4).snapshot("{kit.path("s")}")])',
    "quarantine": f'tfrecord("{kit.path("in/a.txt")}", on_corrupt="skip", quarantine="{kit.path("q")}")',
    "quarantine_in_a_function":
        f'from_tensor_slices(["{kit.path("in/a.txt")}"]).flat_map(f => tfrecord(f, on_corrupt="skip", '
        f'quarantine="{kit.path("q")}"))',
    "upload": 'range(4).cache("s3://bucket/c")',
}
sentence("A worker refuses a graph that writes files: `cache(\"FILE\")`, `save`, `snapshot` and the `quarantine` of "
         "`tfrecord`, also in functions.")
before = everything()
for name, graph in writers.items():
    for match in ("worker", "client") if is_long else (random.choice(("worker", "client")),):
        refused(f"{name}_matched_by_the_{match}", show(graph, d.at, f'streams=1, match="{match}"'),
                "permission denied", "--allow-writes", "at worker")
check("and_nothing_is_written", everything() == before, str(everything()))
w.stop()

sentence("With `--allow-writes DIR`, graphs may write below that directory, and nowhere else.")
w = kit.Daemon("worker", "--dispatcher", d.at, "--root", kit.path("in"), "--allow-writes", kit.path("may"), name="writer")
os.symlink(kit.path("out"), kit.path("may/link"))
os.symlink(kit.path("out/new"), kit.path("may/dangling"))
for name, op in (("cache", "cache"), ("save", "save"), ("snapshot", "snapshot")):
    reads(f"{name}_below_it", show(f'range(4).{op}("{kit.path("may/" + name)}")', d.at, "streams=1"), ["0", "1", "2", "3"])
check("they_are_there", os.path.exists(kit.path("may/cache.cache")) and os.path.isdir(kit.path("may/save")), str(everything()))
reads("it_is_read_as_well", show(f'load("{kit.path("may/save")}")', d.at, "streams=1"), ["0", "1", "2", "3"])
before = everything()
for name, to in (("beside_it", kit.path("c")), ("next_to_it", kit.path("may-not")), ("in_the_root", kit.path("in/c")),
                 ("above_by_dots", kit.path("may/../c")), ("above_by_a_link", kit.path("may/link/c")),
                 ("by_dots_in_what_is_missing", kit.path("may/none/../../c")),
                 ("by_a_link_of_the_kernel", "/proc/self/cwd/c")):
    for op in ("cache", "save", "snapshot"):
        refused(f"{op}_{name}", show(f'range(4).{op}("{to}")', d.at, "streams=1"), "permission denied", "--allow-writes")
refused("save_through_a_link_to_nothing", show(f'range(4).save("{kit.path("may/dangling")}")', d.at, "streams=1"),
        "exists and is not a directory")
refused("an_upload", show('range(4).cache("s3://bucket/c")', d.at, "streams=1"), "a URL can be read but not written here")
p = run("worker", "--dispatcher", d.at, "--allow-writes", "s3://bucket/")
check("an_url_is_no_directory", p.returncode == 2 and "--allow-writes: s3://bucket/ is a URL" in p.stderr, p.stderr)
check("and_nothing_is_written", everything() == before, str(everything()))
w.stop()

# ---- files that are read
sentence("A worker with `--root` opens files and directories only below the directories that the option names, whatever "
         "path a graph uses, and it opens no devices, FIFOs or sockets there.")
root = kit.path("in")
os.symlink("../out/secret.txt", f"{root}/link")
os.symlink(kit.path("out"), f"{root}/folder")
os.symlink("/proc/self/environ", f"{root}/environ")
os.symlink("a.txt", f"{root}/good")
os.mkfifo(f"{root}/fifo")
door = socket.socket(socket.AF_UNIX)
door.bind(f"{root}/socket")
shutil.copytree(root, kit.path("in-not"), ignore=lambda d, names: [n for n in names if n != "a.txt"])
w = kit.Daemon("worker", "--dispatcher", d.at, "--root", root, name="rooted")
reads("a_file", show(f'text_line("{root}/a.txt")', d.at, "streams=1"), ['"a"'])
reads("a_link_that_stays", show(f'text_line("{root}/good")', d.at, "streams=1"), ['"a"'])
secret = kit.path("out/secret.txt")
paths = {
    "beside": secret, "next_to": kit.path("in-not/a.txt"), "by_dots": f"{root}/../out/secret.txt",
    "by_a_link": f"{root}/link", "by_a_linked_folder": f"{root}/folder/secret.txt",
    "by_dots_after_a_link": f"{root}/folder/../out/secret.txt", "by_a_link_to_the_kernel": f"{root}/environ",
    "by_the_kernels_root": f"/proc/self/root{secret}", "by_its_directory": "/proc/self/cwd/out/secret.txt",
    "by_a_thread": f"/proc/thread-self/root{secret}", "its_memory": "/proc/self/mem", "its_environment": "/proc/self/environ",
    "by_a_scheme": f"file://{secret}", "a_device": "/dev/zero", "missing": kit.path("out/none"),
    "missing_further": "/none/none/none", "by_slashes": f"//{secret}",
}
features = '{{"x": bytes}}'
readers = {
    "text_line": 'text_line("{}")', "tfrecord": 'tfrecord("{}")', "csv": f'csv("{{}}", {features}, header=false)',
    "jsonl": f'jsonl("{{}}", {features})', "fixed_length_record": 'fixed_length_record("{}", 1)',
    "in_a_function": 'from_tensor_slices(["{}"]).flat_map(f => text_line(f))',
    "by_a_computed_name": 'from_tensor_slices(["{}"]).interleave(f => text_line(join([f, ""])))',
    "read_file": 'from_tensor_slices(["{}"]).map(f => read_file(f))',
    "a_vocabulary": 'from_tensor_slices(["x"]).map(x => lookup(x, "{}"))',
}
for name, graph in readers.items():
    few = random.sample(sorted(paths), 1)
    for where in paths if is_long or name == "text_line" else [*few, "beside"]:
        p = show(graph.format(paths[where]), d.at, "streams=1")
        check(f"{name}_{where}", p.returncode == 1 and "secret" not in p.stdout and
              ("permission denied" in p.stderr or where == "by_a_scheme"), f"{p.stdout[-300:]}{p.stderr[-900:]}")
# Files whose types the client reads itself, from where it may.
data = os.path.join(source, "tests/compat/0.1/data")
for name in ("parquet", "arrow"):
    shutil.copy(f"{data}/{name}-00000-of-00002.{name}", kit.path(f"out/x.{name}"))
run("show", f'range(3).save("{kit.path("out/saved")}")')
with tarfile.open(kit.path("out/x.tar"), "w") as tar:
    tar.add(secret, "a.txt")
for npy in ("out/x.npy", "out/member.npy"):
    with open(kit.path(npy), "wb") as f:
        head = b"{'descr': '|u1', 'fortran_order': False, 'shape': (2,), }".ljust(117) + b"\n"
        f.write(b"\x93NUMPY\x01\x00" + len(head).to_bytes(2, "little") + head + b"ab")
with zipfile.ZipFile(kit.path("out/x.npz"), "w") as z:
    z.write(kit.path("out/member.npy"), "a.npy")
put("out/images/cat/a.png", "secret")
for name, file in (("parquet", "x.parquet"), ("arrow", "x.arrow"), ("tar", "x.tar"), ("npy", "x.npy"), ("npz", "x.npz"),
                   ("load", "saved"), ("image_folder", "images"), ("list_files", "images/cat/*")):
    for match in ("worker", "client"):
        p = show(f'{name}("{kit.path("out/" + file)}")', d.at, f'streams=1, match="{match}"')
        lists = match == "client" and name in ("list_files",)  # the client looked, not the worker
        check(f"{name}_matched_by_the_{match}", lists or p.returncode == 1 and not p.stdout and
              ("permission denied" in p.stderr or "no file matches" in p.stderr), f"{p.stdout[-300:]}{p.stderr[-900:]}")
for name, pattern in (("star", f"{kit.directory}/o*/*.txt"), ("in_a_link", f"{root}/folder/*"), ("of_all", f"{root}/../*/*.txt")):
    p = show(f'text_line("{pattern}")', d.at, "streams=1")
    check(f"pattern_{name}", "secret" not in p.stdout, p.stdout + p.stderr)
for name in ("fifo", "socket"):
    refused(name, show(f'text_line("{root}/{name}")', d.at, "streams=1"), "permission denied", "--root")

# A file that is swapped all the time for a link to another is one or refused, never the other.
stop = threading.Event()


def swap():
    n = 0
    while not stop.is_set():
        n += 1
        os.symlink(secret, f"{root}/new")
        os.replace(f"{root}/new", f"{root}/swapped")
        shutil.copy(f"{root}/a.txt", f"{root}/new")
        os.replace(f"{root}/new", f"{root}/swapped")


swapper = threading.Thread(target=swap, daemon=True)
swapper.start()
p = show(f'from_tensor_slices(["{root}/swapped"]).repeat(20000).flat_map(f => text_line(f)).ignore_errors()', d.at, "streams=2")
stop.set()
swapper.join()
check("a_race_is_lost", p.returncode == 0 and set(p.stdout.split()) <= {'"a"'} and p.stdout, p.stdout[-200:] + p.stderr[-500:])
w.stop()

# ---- memory and time
LIMIT = 64 << 20
sentence("A graph that needs more than `--memory-limit` fails with an error in its job, and the worker continues. It fails "
         "at the start if its parameters show what it needs, and otherwise when the limit is reached.")
w = kit.Daemon("worker", "--dispatcher", d.at, "--memory-limit", str(LIMIT), "--threads", "2", name="limited")
ever = "range(1000000000000)"
hungry = {
    "batch": f"{ever}.batch(1000000000000)",
    "shuffle": f"{ever}.shuffle(1000000000000)",
    "elements": "range(3).map(x => zeros([1000000000]))",
    "elements_of_computed_shapes": "range(3).map(x => zeros([x + 1, 1000000000]))",
    "padding": "range(3).map(x => zeros([x + 1])).padded_batch(3, padded_shapes=[1000000000])",
    "cache": f"{ever}.map(x => zeros([1000])).cache()",
    "window": f"{ever}.window(1000000000000).flat_map(x => x)",
    "interleave": f"{ever}.interleave(x => {ever}.map(y => zeros([100000])), cycle_length=100000)",
    "groups": f"{ever}.group_by_window(x => x % 3, (k, w) => w, 1000000000000)",
    "groups_of_a_large_batch": f"{ever}.group_by_window(x => x % 3, (k, w) => w.batch(1000000000000), 1000000000000)",
    "buckets": f"{ever}.bucket_by_sequence_length(x => 3, [10], [1000000000000, 1000000000000])",
    "values_seen": f"{ever}.unique().filter(x => x < 0)",
    "batch_in_a_function": f"range(3).flat_map(x => {ever}.batch(1000000000000))",
    "shuffle_in_a_function": f"range(3).interleave(x => {ever}.shuffle(1000000000000))",
    "window_in_a_function": f"range(3).flat_map(x => {ever}.window(1000000000000).flat_map(w => w))",
    "a_state_that_doubles": 'range(60).scan("aaaaaaaaaaaaaaaa", (s, x) => (join([s, s]), 0)).filter(x => x > 0)',
    "batches_of_batches": f"{ever}.batch(1000).batch(1000).batch(1000)",
    "a_line_without_an_end": 'text_line("/dev/zero")',
}
late = ["groups", "values_seen", "batch_in_a_function", "window_in_a_function"]
for name in hungry if is_long else [*random.sample(late, 2), *random.sample(sorted(set(hungry) - set(late)), 2)]:
    client = kit.start([kit.millrace, "show", f'{hungry[name]}.distribute("{d.at}", streams=1)'])
    most = 0
    while client.poll() is None:
        most = max(most, w.memory())
        time.sleep(0.02)
    said = client.stderr.read()
    check(f"{name}_fails", client.returncode == 1 and "resource exhausted" in said and "memory" in said, said[-700:])
    # An op doubles the arrays that it holds, and an element is not divided (docs/engine.md).
    check(f"{name}_is_bounded", most < 3 * LIMIT, f"{most >> 20} MiB")
reads("the_worker_goes_on", show("range(2)", d.at, "streams=1"), ["0", "1"])

sentence("A stream that produces no element, however long it runs, ends when its client leaves, and delays neither other "
         "streams nor the shutdown of the worker.")
endless = [
    f"{ever}.repeat().filter(x => x < 0)",
    f"{ever}.flat_map(a => {ever}.flat_map(b => {ever}.filter(c => c < 0)))",
    f"{ever}.repeat().map(x => x + 1).skip(1000000000000000)",
    f"zip([{ever}, {ever}.repeat().filter(x => x < 0)])",
    f"{ever}.repeat().map(x => x // 0).ignore_errors()",
]


def processor_time():
    """Of the worker, in hundredths of a second."""
    with open(f"/proc/{w.process.pid}/stat") as f:
        words = f.read().rsplit(")", 1)[1].split()
    return int(words[11]) + int(words[12])


def rests():
    before = processor_time()
    time.sleep(0.5)
    return processor_time() - before < 10


for last in (False, True):
    began = processor_time()
    clients = [kit.start([kit.millrace, "show", f'{graph}.distribute("{d.at}", streams=1)']) for graph in endless]
    check("they_run", kit.until(lambda: processor_time() - began > 20))
    reads("others_are_read", show("range(2)", d.at, "streams=1"), ["0", "1"])
    if last:
        check("the_worker_ends", w.stop() == 0, w.log()[-1000:])
    for client in clients:
        check("it_waits_for_its_elements", client.poll() is None, client.args[-1])
        client.kill()
        client.wait()
    check("they_end", last or kit.until(rests))
d.stop()


# ---- strangers
sentence("A peer that has neither the token nor a certificate of `--tls-client-ca` gets a refusal and nothing else from "
         "dispatchers and workers, whatever it sends.")
with open(os.path.join(source, "transport/wire/messages.proto")) as f:
    oneof = f.read().split("oneof body {")[1].split("}")[0]
KINDS = {name: int(number) for name, number in re.findall(r"(\w+) = (\d+);", oneof)}
HELLO, CHALLENGE, PROOF, REFUSAL = (KINDS[x] for x in ("hello", "challenge", "proof", "refusal"))
# Fields that are good in most messages: numbers, names and a job or a status; what is wrong is skipped or refused.
BODIES = [b"", field(1, 1) + field(2, b"status"), field(1, 1) + field(2, b"jobs") + field(3, b"job"),
          field(1, b"127.0.0.1:9"), field(1, 1) + field(2, 0) + field(3, 1) + field(4, 0) + field(5, 1 << 20)]


def answers(s):
    """The kinds of messages that come until the other side ends; "": something else came."""
    try:
        return [next(iter(parse(head)), "") if kind == 1 else "" for kind, head in frames(s)]
    except (IndexError, StopIteration):
        return [""]


def says_nothing(name, open_one, before):
    """Sends each message, alone and after what begins a handshake."""
    for kind, number in KINDS.items():
        wrong = []
        for body in BODIES if is_long else [random.choice(BODIES)]:
            for first in before if is_long else random.sample(before, 2):
                with open_one() as s:
                    send(s, first + frame(field(number, body)))
                    got = answers(s) if kind != "hello" or first else []
                    if any(x not in (CHALLENGE, REFUSAL) for x in got) or got.count(REFUSAL) > 1:
                        wrong.append((body, first[:30], got))
        check(f"{name}_{kind}", not wrong, str(wrong[:3]))


put("token", "open-sesame-of-the-test-of-rights")
with_token = ["--token-file", kit.path("token")]
guess = frame(field(PROOF, field(1, bytes(32))))
beginnings = [b"", hello(role=3), hello(role=2) + guess, hello(role=4) + frame(field(PROOF, b""))]
d = kit.Dispatcher(*with_token, name="with-token")
w = kit.Daemon("worker", "--dispatcher", d.at, *with_token, name="worker-with-token")


def jobs():
    return [run("service", what, "--dispatcher", d.at, "--json", *with_token).stdout for what in ("jobs", "workers")]


was = jobs()
for daemon, who in ((d, "dispatcher"), (w, "worker")):
    says_nothing(f"without_the_token_{who}", daemon.connect, beginnings)
    with daemon.connect() as s:
        send(s, hello(role=3) + guess)
        got = b"".join(head for _, head in frames(s))
        check(f"and_it_says_why_{who}", b"the tokens differ" in got, str(got))
check("nothing_has_happened", jobs() == was, f"{was}\n{jobs()}")
for name, words in (("a_client", ["show", f'range(3).distribute("{d.at}", connect_timeout=1)']),
                    ("a_tool", ["service", "jobs", "--dispatcher", d.at]), ("a_worker", ["worker", "--dispatcher", d.at])):
    refused(f"{name}_is_told", run(*words), "permission denied", "requires a token", "--token-file")
w.stop()
d.stop()

ca, other = Authority(kit.directory, "ours"), Authority(kit.directory, "theirs")
own = ca.issue("server")
tls = ["--tls-cert", own[0], "--tls-key", own[1], "--tls-client-ca", ca.pem]
d = kit.Dispatcher(*tls, name="mutual")
w = kit.Daemon("worker", "--dispatcher", d.at, *tls, "--tls-ca", ca.pem, name="mutual-worker")
strangers = {"no_certificate": None, "one_of_another_ca": other.issue("stranger", "DNS:client")}
for daemon, who in ((d, "dispatcher"), (w, "worker")):
    for name, pair in strangers.items():
        context = ssl.create_default_context(cafile=ca.pem)
        if pair:
            context.load_cert_chain(*pair)

        def secured():
            """It learns that it is refused only when it reads."""
            return context.wrap_socket(daemon.connect(), server_hostname="127.0.0.1")
        says_nothing(f"with_{name}_{who}", secured, beginnings[:2])
    says_nothing(f"without_tls_{who}", daemon.connect, beginnings[:2])
w.stop()
d.stop()


# ---- jobs that belong to names
sentence("With `--jobs-of-name-only` a job belongs to the name of the client that began it, which its token or "
         "certificate determines. Clients with other names cannot join, cancel, list or query it, and workers refuse them "
         "its blocks, even if they know its number.")
EVER = "range(1000000000000)"
secrets = {name: f"the-secret-of-{name}-in-the-test-of-rights" for name in ("worker", "alice", "bob")}
put("names", "# names\n# workers and operators first\n" + "".join(f"{n} {s}\n" for n, s in secrets.items()))
for name, secret in secrets.items():
    put(f"token-of-{name}", secret + "\n")


def by_token(name):
    return {"MILLRACE_TOKEN_FILE": kit.path(f"token-of-{name}")}


def lists(who, at, *words):
    """What `service jobs` shows them: job, owner."""
    p = run("service", "jobs", "--dispatcher", at, "--json", *words, **who)
    return sorted((j["job"], j["owner"]) for j in kit.json.loads(p.stdout)) if p.returncode == 0 else p.stderr


def begins(who, at, options):
    """A client that reads until it is killed, and the number of its job."""
    client = kit.start([kit.millrace, "show", f'{EVER}.distribute("{at}", {options})'], env={**os.environ, **who})

    def number():
        jobs = kit.json.loads(run("service", "jobs", "--dispatcher", at, "--json", **who).stdout)
        return next((j["id"] for j in jobs if j["elements"] > 0), None)
    return client, kit.until(number)


def sees_nothing(name, bob, at, number):
    """Of alice's job "train", which runs."""
    check(f"{name}_lists_no_job", lists(bob, at) == [], str(lists(bob, at)))
    for called in ("train", number):
        for verb in ("cancel", "streams"):
            refused(f"{name}_{verb}_{'by_name' if called == 'train' else 'by_number'}",
                    run("service", verb, called, "--dispatcher", at, **bob), f'there is no job "{called}"')


def shake_by(secret, s):
    """The handshake of a client with a token."""
    stream = frames(s)
    send(s, hello(role=3))
    challenge = parse(parse(next(stream)[1])[CHALLENGE])
    both = b"n" * 32 + challenge[3]
    send(s, frame(field(PROOF, field(1, hmac.digest(secret.encode(), b"connects".ljust(16, b"\0") + both, "sha256")))))
    next(stream)
    return stream


def heard(stream, what):
    """The next message of that kind; None: the other side ends, or says that it failed."""
    for kind, head in stream:
        got = parse(head)
        if kind == 1 and (what in got or KINDS["failed"] in got):
            return got.get(what), got.get(KINDS["failed"])
    return None, None


def join(s, stream, name, job_id, graph=b""):
    job = field(1, graph) + field(2, 1) + field(4, 1) + field(9, 1)  # dynamic, with lists
    send(s, frame(field(KINDS["join"], field(2, name) + field(3, job) + field(9, job_id) + field(10, 77))))
    return heard(stream, KINDS["joined"])


def opens(at, secret, job_id, key, for_block=False):
    """Asks a worker for the blocks of two streams in the first generations; the kinds that come at once, or until one
    is a block."""
    with kit.connect(at) as s:
        stream = shake_by(secret, s)
        for stream_number in range(2):
            for generation in range(4):
                send(s, frame(field(KINDS["open"], field(1, job_id) + field(2, stream_number) + field(3, generation) +
                                    field(5, 1 << 20) + (field(9, key) if key else b""))))
        send(s, frame(field(KINDS["pulse"], b"")))
        got, texts, end_at = [], b"", time.monotonic() + kit.PATIENCE
        for kind, head in stream:
            if kind == 1 and KINDS["pulse"] in parse(head):
                if not for_block or "block" in got or time.monotonic() > end_at:
                    break
                time.sleep(0.02)
                send(s, frame(field(KINDS["pulse"], b"")))
                continue
            got.append("block" if kind == 2 else "refusal" if KINDS["stream_error"] in parse(head) else "other")
            texts += head
        return got, texts


alice, bob, operator = by_token("alice"), by_token("bob"), by_token("worker")
tied = ["--token-file", kit.path("names"), "--jobs-of-name-only", "--operators", "worker"]
state = ["--state", kit.path("tied")]
d = kit.Dispatcher(*tied, *state, name="tied")
w = kit.Daemon("worker", "--dispatcher", d.at, "--token-file", kit.path("names"), name="worker-of-names")
client, number = begins(alice, d.at, 'streams=2, job_name="train"')
job_id = int(number, 16)
sees_nothing("by_token", bob, d.at, number)
check("its_owner_lists_it", lists(alice, d.at) == [("train", "alice")], str(lists(alice, d.at)))
check("an_operator_lists_it", lists(operator, d.at) == [("train", "alice")], str(lists(operator, d.at)))
# The same name is another job for bob: he cannot join hers, nor learn of it.
p = run("show", f'range(4).distribute("{d.at}", streams=1, job_name="train")', **bob)
reads("the_same_name_is_another_job", p, ["0", "1", "2", "3"])
check("both_are_listed", lists(operator, d.at) == [("train", "alice"), ("train", "bob")], str(lists(operator, d.at)))
reads("and_his_is_cancelled", run("service", "cancel", "train", "--dispatcher", d.at, **bob), [])
check("not_hers", lists(operator, d.at) == [("train", "alice")], str(lists(operator, d.at)))
with kit.connect(d.at) as s:
    joined, failed = join(s, shake_by(secrets["bob"], s), b"train", job_id)
    check("he_joins_by_its_number", joined is None and failed and b"is not of the name" in failed, f"{joined} {failed}")
for key in (b"", bytes(32), os.urandom(32)):
    got, text = opens(w.at, secrets["bob"], job_id, key)
    check(f"a_worker_refuses_{len(key)}_bytes", got and set(got) == {"refusal"} and b"key" in text, f"{got} {text}")
check("her_client_reads_on", client.poll() is None)
d.stop()
with contextlib.closing(sqlite3.connect(kit.path("tied/account.db"))) as account:
    job = parse(account.execute("SELECT job FROM jobs").fetchone()[0])
d = kit.Dispatcher(*tied, *state, listen=d.at, name="tied-again")
check("the_account_has_its_owner", job.get(19) == b"alice" and len(job.get(20, b"")) == 32, str(job))
check("her_client_reads_on_after_a_restart", client.poll() is None)
sees_nothing("after_a_restart", bob, d.at, number)
got, text = opens(w.at, secrets["bob"], job_id, bytes(32))
check("nor_after_a_restart", "block" not in got, f"{got} {text}")
# The attack is the right one: who has the key, which only her clients and the workers get, gets the blocks.
got, text = opens(w.at, secrets["bob"], job_id, job[20], for_block=True)
check("the_key_is_what_he_lacks", "block" in got, f"{got} {text}")
reads("she_cancels_it", run("service", "cancel", "train", "--dispatcher", d.at, **alice), [])
check("her_client_learns_it", client.wait(kit.PATIENCE) == 1 and "was cancelled" in client.stderr.read())
d.stop()
# Without an account a job is rebuilt for her client, with the key that the worker knows.
d = kit.Dispatcher(*tied, listen=d.at, name="tied-in-memory")
client, number = begins(alice, d.at, 'streams=2, job_name="train"')
d.stop(signal.SIGKILL)
d = kit.Dispatcher(*tied, listen=d.at, name="tied-in-memory-again")


def rebuilt():
    """How much of the rebuilt job was read."""
    jobs = kit.json.loads(run("service", "jobs", "--dispatcher", d.at, "--json", **alice).stdout)
    return next((j["elements"] for j in jobs if j["id"] == number), 0)


was = kit.until(rebuilt)
check("a_rebuilt_job_is_read_on", kit.until(lambda: rebuilt() > was) and client.poll() is None)
sees_nothing("rebuilt", bob, d.at, number)
got, text = opens(w.at, secrets["bob"], int(number, 16), bytes(32))
check("nor_its_blocks", "block" not in got and b"key" in text, f"{got} {text}")
client.kill()
client.wait()
w.stop()
d.stop()

own, pairs = ca.issue("operator"), {name: ca.issue(name, f"DNS:{name}") for name in ("alice", "bob")}
tls = ["--tls-cert", own[0], "--tls-key", own[1], "--tls-client-ca", ca.pem]
pairs["none"], pairs["two"] = ca.sign("none", "/O=operator"), ca.sign("two", "/CN=alice/CN=operator")
alice, bob, none, two = ({"MILLRACE_TLS_CERT": pairs[name][0], "MILLRACE_TLS_KEY": pairs[name][1], "MILLRACE_TLS_CA": ca.pem}
                         for name in ("alice", "bob", "none", "two"))
d = kit.Dispatcher(*tls, "--jobs-of-name-only", "--operators", "operator,other", name="tied-by-tls")
w = kit.Daemon("worker", "--dispatcher", d.at, *tls, "--tls-ca", ca.pem, name="worker-by-tls")
client, number = begins(alice, d.at, 'streams=2, job_name="train"')  # through shared memory
sees_nothing("by_certificate", bob, d.at, number)
check("the_certificate_says_whose_it_is", lists(alice, d.at) == [("train", "alice")], str(lists(alice, d.at)))
for name, who in (("without_a_name", none), ("with_two_names", two)):
    refused(f"a_certificate_{name}", run("show", f'range(3).distribute("{d.at}", job_name="train")', **who),
            "permission denied", "certificate needs a common name")
    sees_nothing(name, who, d.at, number)
    refused(f"no_operator_{name}", run("service", "status", "--dispatcher", d.at, **who), "permission denied", "--operators")
for name, transfer in (("train", "shared_memory"), ("tcp", "tcp")):
    reads(f"a_job_of_his_own_by_{transfer}",
          run("show", f'range(4).distribute("{d.at}", streams=1, job_name="{name}", transfer="{transfer}")', **bob),
          ["0", "1", "2", "3"])
reads("she_cancels_it_by_number", run("service", "cancel", number, "--dispatcher", d.at, **alice), [])
check("her_client_learns_it_by_tls", client.wait(kit.PATIENCE) == 1 and "was cancelled" in client.stderr.read())
w.stop()
d.stop()

sentence("With this option, only a name of `--operators` may be a worker, see or drain workers, move streams, see the state of the "
         "service, and see and cancel the jobs of others.")
alice, bob, operator = by_token("alice"), by_token("bob"), by_token("worker")
d = kit.Dispatcher(*tied, name="operated")
w = kit.Daemon("worker", "--dispatcher", d.at, "--token-file", kit.path("names"), name="operated-worker")
client, number = begins(alice, d.at, 'streams=2, job_name="train"')
for words in (["status"], ["workers"], ["drain", w.at], ["rebalance"], ["rebalance", "train"]):
    refused("_".join(["no", words[0], *words[1:2]]), run("service", *words, "--dispatcher", d.at, **bob), "permission denied",
            "--operators", '"bob"')
with kit.connect(d.at) as s:
    stream = shake_by(secrets["bob"], s)
    send(s, frame(field(KINDS["ask"], field(1, 1) + field(2, b"page"))))
    report = parse(heard(stream, KINDS["report"])[0])
    check("nor_the_page", 2 in report and not report.get(3), str(report))
other_worker = kit.start([kit.millrace, "worker", "--dispatcher", d.at], env={**os.environ, **bob})
line = other_worker.stderr.readline()
check("no_worker", "takes workers with a name of --operators only" in line, line)


def ask_as_operator(*words):
    return run("service", *words, "--dispatcher", d.at, "--json", **operator)


workers = kit.json.loads(ask_as_operator("workers").stdout)
check("an_operator_sees_the_workers", [x["worker"] for x in workers] == [w.at], str(workers))
other_worker.kill()
other_worker.wait()
check("and_the_state", kit.json.loads(ask_as_operator("status").stdout)["jobs"] == 1)
check("and_moves_streams", ask_as_operator("rebalance").returncode == 0)
check("her_job_runs", client.poll() is None)
reads("and_cancels_any_job", run("service", "cancel", "train", "--dispatcher", d.at, **operator), [])
check("her_client_learns_that", client.wait(kit.PATIENCE) == 1 and "was cancelled" in client.stderr.read())
check("and_drains_a_worker", ask_as_operator("drain", w.at).returncode == 0 and w.process.wait(kit.PATIENCE) == 0)
d.stop()
refused("a_clients_file_has_one_token", run("show", f'range(3).distribute("{d.at}", connect_timeout=1)',
                                           MILLRACE_TOKEN_FILE=kit.path("names")), "tokens with names")
names, flag = ["--token-file", kit.path("names")], "--jobs-of-name-only"
for name, words, text in (
        ("without_operators", [*names, flag], "needs operators"),
        ("without_names", ["--token-file", kit.path("token"), flag, "--operators", "worker"], "needs names"),
        ("operators_alone", [*names, "--operators", "worker"], "for a dispatcher with jobs_of_name_only"),
        ("with_an_open_page", [*names, flag, "--operators", "worker", "--status", "127.0.0.1:0"], "status_token_file")):
    p = run("dispatcher", "--listen", "127.0.0.1:0", *words)
    check(f"no_dispatcher_{name}", p.returncode == 2 and text in p.stderr, p.stderr)


# ---- the page says these sentences, and no others
def sentences_of_the_page():
    with open(os.path.join(source, "docs/service.md")) as f:
        section = f.read().split("\n## What a peer may do\n")[1].split("\n## ")[0]
    items = re.findall(r"^\* (.*(?:\n  .*)*)", section, re.M)
    return [" ".join(x.split()) for x in items]


SAID = sentences_of_the_page()
result("the_page_says_what_is_tested", SAID == SENTENCES, f"{[x for x in SAID if x not in SENTENCES]} are not tested, "
       f"{[x for x in SENTENCES if x not in SAID]} not said")
kit.end()
