#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# tier: plain=full asan=full
"""Reading from web servers that fail: what is delivered, what is said, and how often is asked."""
import io
import os
import socket
import subprocess
import tarfile
import time
import zipfile

import kit
from kit import fault, redirect, result, show, status

if not kit.has_libcurl():
    kit.skip_all("built without libcurl")

server = kit.Server()
LINES = [f"line {i} of a file that is longer than one answer" for i in range(20000)]
TEXT = ("\n".join(LINES) + "\n").encode()
WANT = [f'"{line}"' for line in LINES]


def reads(name, path="/a.txt", requests=None, contents=TEXT, want=WANT, etag='"1"', warns="", **environment):
    """The whole file arrives; `requests`: how many it takes at most."""
    url = server.put(path, contents, etag)
    server.take()
    run = show(f'text_line("{url}")', **environment)
    seen = server.take()
    good = run.status == 0 and run.lines == want and (requests is None or len(seen) <= requests) and warns in run.stderr
    result(name, good, f"{run}\n{len(seen)} requests: {[r[1] for r in seen]}")
    return run, seen


def fails(name, words, path="/a.txt", requests=None, contents=TEXT, expression='text_line("{}")', after=None,
          status_wanted=1, **environment):
    """The read fails with these words; `after`: the number of elements delivered before."""
    url = server.put(path, contents)
    server.take()
    run = show(expression.format(url), **environment)
    seen = server.take()
    words = [words] if isinstance(words, str) else words
    good = run.status == status_wanted and all(w in run.stderr for w in words)
    good = good and (requests is None or len(seen) == requests) and (after is None or len(run.lines) == after)
    result(name, good, f"{run}\n{len(run.lines)} lines, {len(seen)} requests: {[r[1] for r in seen]}")
    return run, seen


# ---- good servers of all kinds
reads("a_good_server", requests=1)
reads("an_empty_file", contents=b"", want=[])
reads("one_byte", contents=b"x", want=['"x"'])
server.always["/a.txt"] = fault(ranges=False)
reads("no_ranges", requests=1)
server.always["/a.txt"] = fault(ranges=False, length=False)
reads("no_ranges_and_no_length", requests=1)
server.always["/a.txt"] = fault(etag='W/"1"')
run, seen = reads("a_weak_etag", requests=1)
server.always["/a.txt"] = fault(etag="", modified="")
reads("no_etag_and_no_time_is_warned_of", requests=1, warns="cannot be noticed", MILLRACE_LOG="warning")
server.always.clear()
big = b"".join(b"%015d\n" % i for i in range(2 << 20))  # 32 MiB: four ranges
url = server.put("/big.txt", big)
LAST = f'"{(2 << 20) - 1:015d}"'
run = show(f'text_line("{url}").skip({(2 << 20) - 1})')
result("several_ranges", run.status == 0 and run.lines == [LAST], str(run))
server.always["/big.txt"] = fault(ranges=False)
run = show(f'text_line("{url}").skip({(2 << 20) - 1})')
result("a_long_stream_that_pauses", run.status == 0 and run.lines == [LAST], str(run))
server.always.clear()
server.take()

# ---- faults that pass
for after in (0, 1, 1000, len(TEXT) - 1):
    server.plan("/a.txt", fault(cut=after, reset=True))
    run, seen = reads(f"reset_after_{after}_bytes", requests=2)
    server.plan("/a.txt", fault(cut=after))
    run, seen = reads(f"a_body_that_ends_after_{after}_bytes", requests=2)
    if after > 1:
        result(f"it_continues_after_byte_{after}", seen[1][1] and seen[1][1].startswith(f"bytes={after}-"), str(seen))
        result(f"if_match_is_sent_after_{after}", seen[1][2].get("If-Match") == '"1"', str(seen))
server.plan("/a.txt", fault(ranges=False, cut=5000), fault(ranges=False))
reads("a_stream_without_ranges_is_read_again", requests=2)
for code in (408, 429, 500, 502, 503, 504):
    server.plan("/a.txt", status(code), status(code))
    reads(f"status_{code}_twice", requests=3)
server.plan("/a.txt", status(503, Retry_After="1"))
run, seen = reads("retry_after", requests=2)
result("retry_after_is_honoured", len(seen) == 2 and seen[1][3] - seen[0][3] >= 1, str(seen))
for name, after, least in (("date", 3, 1), ("date_in_the_past", -100, 0)):
    server.plan("/a.txt", lambda s, h, p, after=after: s.refuse(h, 503, Retry_After=kit.http_date(time.time() + after)))
    run, seen = reads(f"retry_after_a_{name}", requests=2)
    result(f"a_{name}_is_honoured", len(seen) == 2 and seen[1][3] - seen[0][3] >= least, str(seen))
server.plan("/a.txt", status(503, Retry_After="100000"))
fails("retry_after_more_than_five_minutes", ["unavailable", "503", "gave up after 1 try"], requests=1)
server.always["/a.txt"] = fault(most=300000)
reads("ranges_shorter_than_asked_for", requests=4)
server.always.clear()
server.plan("/a.txt", fault(cut=400000), fault(shift=7))
reads("another_range_once", requests=3)

for more in (5, -5):
    server.plan("/a.txt", fault(more=more))
    reads(f"a_length_that_is_not_that_of_the_range_{more}", requests=2)
server.always["/a.txt"] = fault(total="*")
run, seen = reads("ranges_of_an_unknown_whole", requests=2)
result("the_whole_is_asked_for", [r[1] for r in seen] == ["bytes=0-8388607", None], str(seen))
server.plan("/a.txt", fault(total="*"), fault(cut=70000, reset=True))
reads("and_read_again_after_a_reset", requests=4)
server.always.clear()


def no_http(s, h, path):
    h.wfile.write(b"\0nonsense\r\n")
    h.close_connection = True


def chunks(s, h, path):
    """All of the contents, and then nonsense in place of the next chunk."""
    h.send_response(206)
    h.send_header("Content-Range", f"bytes 0-{len(TEXT) - 1}/{len(TEXT)}")
    h.send_header("ETag", '"1"')
    h.send_header("Transfer-Encoding", "chunked")
    h.end_headers()
    h.wfile.write(b"%x\r\n%s\r\nzz\r\n" % (len(TEXT), TEXT))
    h.close_connection = True


server.plan("/a.txt", no_http)
reads("an_answer_that_is_not_http", requests=2)
server.plan("/a.txt", chunks)
reads("nonsense_after_the_last_byte", requests=1)

# ---- faults that stay
server.always["/not-http"] = no_http
fails("never_http", ["unavailable", "gave up after 2 tries"], path="/not-http", requests=2, MILLRACE_REMOTE_RETRIES="2")
server.always["/length"] = fault(more=3)
fails("another_length_forever", ["data loss", "announced"], path="/length", requests=2, MILLRACE_REMOTE_RETRIES="2")
server.always["/503"] = status(503)
fails("status_503_forever", ["unavailable", "503", "gave up after 3 tries"], path="/503", requests=3,
      MILLRACE_REMOTE_RETRIES="3")
fails("no_retry_storm", "gave up after 8 tries", path="/503", requests=8)
fails("not_found", ["not found", "404", "/none"], path="/gone", expression='text_line("{}/none")', requests=1)
for code, words in ((401, "permission denied"), (403, "permission denied"), (410, "not found"), (400, "invalid argument")):
    server.always["/s"] = status(code)
    fails(f"status_{code}", [words, str(code), "/s"], path="/s", requests=1)

server.always["/cut"] = fault(ranges=False, cut=100)
fails("a_file_without_ranges_that_ends_early_is_lost", ["data loss", "100 bytes"], path="/cut", requests=4, MILLRACE_REMOTE_RETRIES="3")
server.always["/less"] = lambda s, h, p: s.send(h, p, total=100)
reads("a_total_smaller_than_the_range", path="/less", requests=2)


def endless(s, h, path, head=True):
    if head:
        h.send_response(404)
        h.end_headers()
    try:
        while True:
            h.wfile.write(b"not here " * 1000)
    except OSError:
        h.close_connection = True


def endless_head(s, h, path):
    h.wfile.write(b"HTTP/1.1 206 Partial Content\r\nX-Long: ")
    endless(s, h, path, head=False)


server.always["/s"] = endless_head
fails("a_head_without_an_end", ["resource exhausted", "the head of the answer is too large"], path="/s", requests=1)
server.always["/s"] = endless
fails("an_error_without_an_end", ["not found", "404", "/s"], path="/s", requests=1)
server.always["/cut"] = lambda s, h, p: s.send(h, p, cut=100 if not h.headers["Range"].startswith("bytes=100-") else 0)
fails("a_file_that_ends_early_is_lost", ["data loss", "100 bytes"], path="/cut", requests=4, MILLRACE_REMOTE_RETRIES="3")
server.always["/shift"] = lambda s, h, p: s.send(h, p, shift=5)
fails("another_range_forever", ["data loss", "asked for"], path="/shift", requests=2, MILLRACE_REMOTE_RETRIES="2")
with socket.socket() as s:
    s.bind(("127.0.0.1", 0))
    run = show(f'text_line("http://127.0.0.1:{s.getsockname()[1]}/a")', MILLRACE_REMOTE_RETRIES="2")
result("connection_refused", run.status == 1 and "unavailable" in run.stderr and "2 tries" in run.stderr and
       "Connection refused" in run.stderr, str(run))
run = show('text_line("http://no-such-host.invalid/a")')
result("a_name_that_does_not_resolve", run.status == 1 and "unavailable" in run.stderr and "resolved" in run.stderr,
       str(run))

# ---- what ignore_errors skips: damaged files, not a network that fails
fails("an_outage_is_not_ignored", ["unavailable", "503"], path="/503", expression='text_line("{}").ignore_errors()',
      MILLRACE_REMOTE_RETRIES="2")
cut_short = show(f'text_line("{server.address}/cut").ignore_errors()', MILLRACE_REMOTE_RETRIES="2")
result("a_file_cut_short_is_ignored", cut_short.status == 0 and "1 element failed" in cut_short.stderr, str(cut_short))
gone = [fault(cut=400000), status(404)]
server.plan("/deleted", *gone)
fails("a_file_deleted_while_reading_is_not_ignored", ["not found", "404"], path="/deleted",
      expression='text_line("{}").ignore_errors()')

# ---- replaced files
for name, later in (("etag", fault(etag='"2"')), ("etag_of_a_server_without_conditions", fault(etag='"2"', conditions=False)),
                    ("weak_etag", fault(etag='W/"2"', conditions=False)),
                    ("time", fault(modified="Sun, 02 Jan 2022 00:00:00 GMT"))):
    server.plan("/r.txt", fault(cut=400000), later)
    fails(f"another_{name}_while_reading", ["failed precondition", "replaced", "/r.txt"], path="/r.txt")


def replaced(s, h, path):
    s.put(path, TEXT + b"more\n", "")
    s.send(h, path, etag="", modified="")


server.plan("/r.txt", fault(cut=400000, etag="", modified=""), replaced)
fails("another_size_while_reading", ["failed precondition", "replaced"], path="/r.txt")

# ---- a proxy, which looks names up itself
for proxied in ("http://a-host.invalid/a.txt", "http://a-host.invalid/503"):
    server.put(proxied, TEXT)
    server.always[proxied] = server.always.get(proxied[len("http://a-host.invalid"):])
run = show('text_line("http://a-host.invalid/a.txt")', http_proxy=server.address)
result("a_proxy", run.lines == WANT, str(run))
run = show('text_line("http://a-host.invalid/503")', http_proxy=server.address, MILLRACE_REMOTE_RETRIES="2")
result("a_server_that_fails_behind_a_proxy", run.status == 1 and "503" in run.stderr, str(run))
run = show('text_line("https://a-host.invalid/a.txt")', https_proxy=server.address, MILLRACE_REMOTE_RETRIES="2")
result("a_proxy_that_makes_no_connections", run.status == 1 and "unavailable" in run.stderr and
       "the proxy answered 501" in run.stderr, str(run))
run = show('text_line("http://a-host.invalid/a.txt")', http_proxy="http://no-such-proxy.invalid:1")
result("a_proxy_that_does_not_resolve", run.status == 1 and "name of the proxy" in run.stderr, str(run))

# ---- redirections
server.always["/to"] = redirect("/a.txt")
server.put("/a.txt", TEXT)
run = show(f'text_line("{server.address}/to")')
result("a_redirection_is_followed", run.lines == WANT, str(run))
server.always["/loop"] = redirect("/loop")
fails("more_than_ten_redirections", ["failed precondition", "more than 10 redirections"], path="/loop", requests=11)
server.always["/file"] = redirect("file:///etc/passwd")
run, seen = fails("a_redirection_to_a_file_is_refused", "/file", path="/file")
result("and_nothing_of_the_file_is_read", b"root" not in run.stdout, str(run))

# ---- writing
for name, arguments in (("write", ["write", "--out", server.address + "/w", "--expr", "range(3)"]),
                        ("cache", ["show", f'range(3).cache("{server.address}/w")']),
                        ("snapshot", ["show", f'range(3).snapshot("{server.address}/w")'])):
    server.take()
    written = kit.Run(arguments)
    result(f"{name}_of_a_url_is_refused", written.status == 1 and "can be read but not written" in written.stderr and
           not server.take(), str(written))

# ---- secrets
secret = "X-Amz-Credential=AKID%2F2022&X-Amz-Signature=5ec2e7&sig=5ec2e7&plain=seen"
for name, path in (("not_found", "/none"), ("unavailable", "/503")):
    run = show(f'text_line("{server.address.replace("//", "//user:5ec2e7@")}{path}?{secret}")', "-v",
               MILLRACE_REMOTE_RETRIES="1")
    result(f"signatures_are_hidden_{name}", run.status == 1 and "5ec2e7" not in run.stderr and "AKID" not in run.stderr and
           "plain=seen" in run.stderr, str(run))

# ---- cancelling
server.put("/slow", TEXT)
server.always["/slow"] = fault(cut=1000, pause=3600)
listing = {"AWS_ENDPOINT_URL": server.address, "AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s"}
server.always["/bucket"] = lambda s, h, p: time.sleep(3600)
for name, url in (("a_stalled_transfer", server.address + "/slow"), ("a_retry", server.address + "/503"),
                  ("a_connection", "http://192.0.2.1/a"), ("a_listing", "s3://bucket/a-*")):
    process = subprocess.Popen([kit.millrace, "show", f'text_line("{url}")'], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, env={**os.environ, **listing})
    kit.interrupt(process)
    try:  # without the signal it would wait for as long as the server does, or try again
        process.communicate(timeout=300)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
    result(f"interrupting_{name}", process.returncode == 130, f"status {process.returncode}")

# ---- positions in objects that no listing had: each reader, in order and by number
server.always.clear()
made = os.path.join(kit.directory.name, "made")
for form in ("tfrecord", "parquet", "npy", "arrow", "jsonl"):
    kit.Run(["write", "--out", f"{made}-{form}", "--format", form, "--expr", "range(3000)" if form == "npy" else 'range(3000).map(i => {"a": i})'])
    made_file = f"{made}-{form}-00000-of-00001.{form}"
    if form == "tfrecord":
        kit.Run(["index", made_file])
    for ending in (".idx", "") if form == "tfrecord" else ("",):
        with open(made_file + ending, "rb") as f:
            server.put(f"/p.{form}{ending}", f.read())
packed = io.BytesIO()
with zipfile.ZipFile(packed, "w") as z:
    z.writestr("x.npy", server.files["/p.npy"])
server.put("/p.npz", packed.getvalue())
packed = io.BytesIO()
with tarfile.open(fileobj=packed, mode="w") as t:
    for i in range(1000):
        t.addfile(tarfile.TarInfo(f"{i:04}.txt"))
server.put("/p.tar", packed.getvalue())
server.put("/p.csv", b"".join(b"%d,%d\n" % (i, i * i) for i in range(3000)))
server.put("/p.txt", TEXT)
for ending in ("", ".idx"):
    server.put("/first" + ending, server.files["/p.tfrecord" + ending])
state = os.path.join(kit.directory.name, "place")
AT = {"text_line": ("/p.txt", 'text_line("{}")'), "computed": ("/p.txt", 'from_tensor_slices(["{}"]).flat_map(f => text_line(f))'),
      "tar": ("/p.tar", 'tar("{}", members=["txt"])'), "csv": ("/p.csv", 'csv("{}", [int64, int64], header=false)'),
      "npz": ("/p.npz", 'npz("{}")'), "jsonl": ("/p.jsonl", 'jsonl("{}", {{"a": int64}})')}
BY_NUMBER = {"tfrecord": ("/p.tfrecord", 'tfrecord("{}")'), "fixed": ("/p.npy", 'fixed_length_record("{}", 8)')}
BY_NUMBER.update((form, (f"/p.{form}", f'{form}("{{}}")')) for form in ("parquet", "npy", "arrow"))
AT.update(BY_NUMBER)
AT.update((f"{name}_shuffled", (path, text + ".global_shuffle(seed=1)")) for name, (path, text) in BY_NUMBER.items())
AT["a_range"] = "/p.tfrecord", 'tfrecord("{}", record_range=[1, 2])'
AT["second"] = "/p.tfrecord", f'tfrecord("{server.address}/first", "{{}}").global_shuffle(seed=1)'
for name, (path, text) in AT.items():
    expression = text.format(server.put(path, server.files[path]))
    whole, begun = show(expression), show(expression, "--save-after", "700", "--state", state)
    rest = show(expression, "--restore", state)
    show(expression, "--restore", state, "--save-after", "0", "--state", state)
    server.put(path, server.files[path], '"2"')
    other = show(expression, "--restore", state)
    result(f"a_place_in_{name}", begun.status == 0 and len(begun.lines) == 700 and begun.lines + rest.lines == whole.lines and other.status == 1 and
           not other.lines and all(w in other.stderr for w in ("failed precondition", path, "replaced since the position")),
           f"{whole}\n{begun}\n{rest}\n{other}")

# ... and while they are open: each answer but the first ones is of the other object
class Later:
    def __init__(self, first):
        self.first, self.n = first, 0

    def __call__(self, s, h, path):
        with s.lock:
            self.n += 1
            other = self.n > self.first
        s.send(h, path, etag='"2"' if other else '"1"', conditions=False)


for name, (path, text) in BY_NUMBER.items():
    expression = text.format(server.put(path, server.files[path])) + ".global_shuffle(seed=1)"
    all_old = server.always[path] = Later(1000000)
    whole = show(expression)
    last = server.always[path] = Later(all_old.n - 1)
    other = show(expression)
    result(f"{name}_replaced_between_lookups", other.status == 1 and other.lines == whole.lines[:len(other.lines)] and
           all(w in other.stderr for w in ("failed precondition", path, "replaced")), f"{all_old.n} requests\n{whole}\n{other}")
for name, text in (("lookup", 'tfrecord("{}").global_shuffle(seed=1)'), ("range", 'tfrecord("{}", record_range=[1, 2])'),
                   ("skip", 'tfrecord("{}").skip(1500)')):

    def read(s, h, path):  # what the index is compared with is not as long
        first, last = s.range_of(h, len(s.files[path]))
        s.send(h, path, etag='"2"' if last - first > 100 else '"1"', conditions=False)

    server.always["/p.tfrecord"] = read
    fails(f"replaced_after_the_index_of_a_{name}", ["failed precondition", "/p.tfrecord", "replaced"], path="/p.tfrecord",
          contents=server.files["/p.tfrecord"], expression=text, after=0)
server.always.clear()
server.always["/p.txt"] = fault(etag="")
expression = AT["text_line"][1].format(server.address + "/p.txt")
show(expression, "--save-after", "700", "--state", state)
server.always["/p.txt"] = fault(etag="", modified="Sat, 01 Jan 2022 00:00:01 GMT")
other = show(expression, "--restore", state)
result("a_place_in_a_file_with_a_time_alone", other.status == 1 and "replaced since the position" in other.stderr, str(other))
kit.end()
