# SPDX-License-Identifier: Apache-2.0
# tier: plain=full
"""The dispatcher's status page as browsers, Prometheus and strangers meet it."""
import concurrent.futures
import fcntl
import http.client
import http.server
import json
import os
import pty
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import termios
import threading
import time

import kit
from kit import result

hostile = '<script>alert(1)</script>"\'&\\\n\x01\x7f'


def get(at, path, method="GET", headers={}):
    end = time.monotonic() + kit.PATIENCE
    while True:
        c = http.client.HTTPConnection(*kit.address(at), timeout=kit.PATIENCE)
        try:
            c.request(method, path, headers=headers)
            r = c.getresponse()
            if r.status != 503 or time.monotonic() > end:  # a busy machine had no report ready in time
                return r.status, dict(r.getheaders()), r.read()
        finally:
            c.close()
        time.sleep(0.2)


def text(at, path):
    return get(at, path)[2].decode()


def shown(name, look, *conditions):
    """A result: what `look` gives meets all conditions, at once. On a busy machine a worker of the load may be silent
    for longer than a dispatcher waits, and is lost until it is heard again: it is looked at until all is well."""
    seen = []

    def good():
        seen[:] = [look()]
        return all(condition(seen[0]) for condition in conditions)

    result(name, kit.until(good), "" if not seen else seen[0])
    return seen[0]


def has(pattern):
    return lambda text: re.search(pattern, text, re.M)


def raw(at, data, wait=True):
    """The whole answer to these bytes; b"" where the connection is just closed."""
    with kit.connect(at) as s:
        got = b""
        try:
            s.sendall(data)
            s.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # closed already
        try:
            while part := s.recv(65536):
                got += part
        except ConnectionError:
            pass
        return got


d = kit.Dispatcher("--status", "127.0.0.1:0", "--state", "state")
at = d.page

# ---- nothing there yet
empty = text(at, "/")
result("a_page_without_jobs", "There are no jobs" in empty and "No worker has connected" in empty, empty)
result("health", get(at, "/healthz")[::2] == (200, b"ok\n"))

# ---- jobs, one of them with a hostile name
load = kit.load(d.at, jobs=3, streams=4, workers=2, every=5)
odd = kit.load(d.at, jobs=1, streams=2, workers=1, every=50, name=hostile, worker="<b>evil</b>")


def all_run():
    global report
    report = json.loads(text(at, "/status.json"))
    status = report["status"]
    return (status["elements_per_second"] > 0 and [status[x] for x in ("jobs", "streams", "workers")] == [4, 14, 3] and
            {j["state"] for j in report["jobs"]} == {"running"} and
            all(s["worker"] in [w["worker"] for w in report["workers"]] for s in report["streams"]))


ready = kit.until(all_run)
result("jobs_in_json", ready and report["status"]["jobs"] == 4 and report["status"]["streams"] == 14 and
       report["status"]["workers"] == 3 and {j["state"] for j in report["jobs"]} == {"running"}, str(report))
result("where_streams_live", len(report["streams"]) == 14 and
       all(s["worker"] in [w["worker"] for w in report["workers"]] for s in report["streams"]), str(report))
result("events", any("serves" in e["event"] and e["seconds_ago"] >= 0 for e in report["events"]), str(report))
result("json_has_the_name", hostile + "-0" in [j["job"] for j in report["jobs"]], str(report["jobs"]))
result("rates_add_up", abs(sum(j["elements_per_second"] for j in report["jobs"]) -
                           report["status"]["elements_per_second"]) < 1e-6, str(report))
more = kit.until(lambda: json.loads(text(at, "/status.json"))["status"]["elements"] > report["status"]["elements"])
result("numbers_move", more)

# ---- the page
status, headers, body = get(at, "/")
page = body.decode()
result("page_for_people", status == 200 and headers["Content-Type"].startswith("text/html") and
       all(f"<h2>{x}</h2>" in page for x in ("Jobs", "Streams and their workers", "Workers", "Last events")) and
       "load-0" in page and "exactly_once" in page, page)
# Tags of ours only: what came from outside is text.
tags = set(re.findall(r"<\s*/?\s*([a-zA-Z]+)", page))
result("what_comes_from_outside_is_text", "&#60;script&#62;alert(1)" in page and "&#60;b&#62;evil" in page and
       page.count("<script") == 1 and "b" not in tags and "\x01" not in page and "\x7f" not in page, str(tags) + page)
result("nothing_from_elsewhere", not re.search(r"""(src|href|action)\s*=\s*["']?\s*(https?:)?//""", page) and
       "http" not in text(at, "/page.js") + text(at, "/page.css"), page)
result("it_may_load_nothing_else", "default-src 'none'" in headers["Content-Security-Policy"] and
       "unsafe" not in headers["Content-Security-Policy"], str(headers))
result("page_without_scripts_is_loaded_again", '<noscript><meta http-equiv="refresh"' in page)
for path, kind in (("/page.css", "text/css"), ("/page.js", "text/javascript")):
    status, headers, body = get(at, path)
    result("what_the_page_loads " + path, status == 200 and headers["Content-Type"] == kind and len(body) > 100)

# ---- metrics
status, headers, body = get(at, "/metrics")
result("metrics_are_text", status == 200 and headers["Content-Type"].startswith("text/plain; version=0.0.4"))
metrics = shown("metrics", lambda: text(at, "/metrics"), has(r"^millrace_dispatcher_jobs 4$"),
                has(r'^millrace_dispatcher_job_elements_total\{job="load-0",id="[0-9a-f]{16}"\} [0-9]+$'),
                has(r'^millrace_dispatcher_worker_serving\{worker="127.0.0.1:20000"\} 1$'))
result("labels_are_escaped", 'job="<script>alert(1)</script>\\"\'&\\\\\\n\x01\x7f-0"' in metrics, metrics)
samples = [x.rsplit(" ", 1)[0] for x in metrics.splitlines() if not x.startswith("#")]
result("each_sample_once", len(samples) == len(set(samples)), metrics)
if shutil.which("promtool"):
    p = subprocess.run(["promtool", "check", "metrics"], input=metrics, capture_output=True, text=True,
                       timeout=kit.PATIENCE)
    result("promtool", p.returncode == 0 and not p.stdout + p.stderr, p.stdout + p.stderr)
else:
    kit.skip("promtool", "promtool is not installed (package prometheus)")

# ---- the same on a terminal
status_words = [kit.millrace, "service", "status", "--dispatcher", d.at, "--timeout", str(kit.PATIENCE)]


def status_text():
    p = subprocess.run(status_words, capture_output=True, text=True, timeout=2 * kit.PATIENCE)
    return p.stdout + p.stderr


printed = shown("as_text", status_text, has("^jobs 4, workers 3, streams 14$"),
                has(r"^load-0 .* exactly_once +running +0 of 4 +[0-9,]+ +[0-9,.]+/s$"),
                has(r"^load-0 +3  [^ ]+ +[0-9]+ +[0-9,]+  no$"), has(r"^127.0.0.1:20001 +serving +[0-9]+$"),
                has("^[0-9:]+ UTC  info +worker [^ ]+ serves$"))
result("text_has_no_control_bytes", not re.search(r"[\x00-\x09\x0b-\x1f\x7f]", printed) and
       "alert(1)</script>\"'&\\\\x0a\\x01\\x7f-0" in printed, printed)
terminal, side = pty.openpty()
fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 20, 70, 0, 0))
watch = subprocess.Popen([*status_words, "--watch"], stdin=side, stdout=side, stderr=side)
os.close(side)
on_terminal, screens, numbers = b"", [], [0]
end = time.monotonic() + kit.PATIENCE
while (len(screens) < 3 or numbers[-1] == numbers[0]) and time.monotonic() < end:
    if select.select([terminal], [], [], 1)[0]:
        on_terminal += os.read(terminal, 65536)
    screens = [s.replace("\r", "") for s in on_terminal.decode(errors="replace").split("\x1b[2J")][1:-1]
    numbers = [int(s.replace(",", "")) for s in re.findall("^([0-9,]+) elements", "\n".join(screens), re.M)] or [0]
result("watched_numbers_move", len(numbers) == len(screens) > 2 and numbers[0] < numbers[-1] and
       numbers == sorted(numbers), str(screens))
result("a_watched_screen_fits", all(s.count("\n") < 20 and max(map(len, s.split("\n"))) <= 70 for s in screens) and
       has("^and [0-9]+ more$")(screens[0]), "\n".join(screens))
watch.send_signal(signal.SIGINT)
try:
    status = watch.wait(kit.PATIENCE)  # before its terminal goes, which it may still write to
except subprocess.TimeoutExpired:
    watch.kill()
    status = None
os.close(terminal)
result("watching_ends_on_ctrl_c", status == 130, str(status))

# ---- wrong paths, methods and requests
for path in ("/nothing", "/metrics/", "//", "/../etc/passwd", "/%2e%2e/", "/" + "a" * 4000):
    status, _, body = get(at, path)
    result("no_such_path " + path[:20], status == 404 and b"/metrics" in body and b"aaaa" not in body, f"{status} {body}")
result("a_query_changes_nothing", get(at, "/healthz?verbose=1")[0] == 200)
for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS", "BREW"):
    status, headers, _ = get(at, "/", method)
    result("no_such_method " + method, status == 405 and headers["Allow"] == "GET, HEAD", f"{status} {headers}")
for path in ("/", "/healthz", "/metrics", "/status.json"):
    status, headers, body = get(at, path, "HEAD")
    result("head " + path, status == 200 and body == b"" and int(headers["Content-Length"]) > 0, f"{status} {headers}")
    result("one_request_a_connection " + path, headers["Connection"].lower() == "close", str(headers))
garbage, pool = [], concurrent.futures.ThreadPoolExecutor(16)  # some are closed after 10 s
for name, data in (("garbage", b"\x00\xff" * 500), ("no_http", b"hello\r\n\r\n"), ("nothing", b""),
                   ("tls", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x55" * 300),
                   ("a_huge_header", b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"a" * 300000 + b"\r\n\r\n"),
                   ("many_headers", b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 30000 + b"\r\n"),
                   ("a_body_that_never_ends", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999\r\n\r\nx"),
                   ("a_frame_of_the_service", b"MRF1\x01\x00\x00\x00" + b"\x00" * 100)):
    garbage.append((name, pool.submit(raw, at, data)))
result("it_serves_on_after_garbage", get(at, "/healthz")[0] == 200)

# ---- connections that say nothing, by the hundred; slow ones
idle = [kit.connect(at) for _ in range(100)]
begin = time.monotonic()
good = [get(at, "/healthz")[0] for _ in range(20)]
result("a_hundred_half_open_connections", good == [200] * 20 and kit.ask(d.at, "status") is not None,
       f"{good}: {time.monotonic() - begin} s")
storm = [kit.connect(at) for _ in range(500)]
result("connections_are_bounded", kit.until(lambda: d.connections() < 300), str(d.connections()))
result("served_in_a_storm", [get(at, "/healthz")[0] for _ in range(20)] == [200] * 20)
drips = []
for s in [kit.connect(at) for _ in range(100)]:
    try:
        s.sendall(b"GET / HTTP/1.1\r\nHost:")
        drips.append(s)
    except OSError:
        pass
result("served_beside_slow_ones", [get(at, "/healthz")[0] for _ in range(20)] == [200] * 20)
readers = []
for s in [kit.connect(at) for _ in range(60)]:
    readers.append(s)
    try:
        s.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")  # and does not read
    except OSError:
        pass  # it was closed: this took longer than ten seconds
result("served_beside_those_that_do_not_read", [get(at, "/")[0] for _ in range(20)] == [200] * 20)
for s in idle + storm + drips + readers:
    s.close()


def trickles():
    """Whether a client that sends a byte of its request now and then is cut off."""
    begin = time.monotonic()
    with kit.connect(at) as s:
        try:
            s.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nX: ")
            while time.monotonic() - begin < kit.PATIENCE:
                s.sendall(b"x")
                if select.select([s], [], [], 0.2)[0] and not s.recv(1):
                    return True
        except OSError:
            return True
    return False


result("a_request_that_trickles_is_cut_off", trickles())
result("closed_connections_are_gone", kit.until(lambda: d.connections() < 40), str(d.connections()))
result("each_is_a_line_of_the_log", kit.until(lambda: "the status page: the connection from 127.0.0.1" in d.log()),
       d.log()[-2000:])
moved = kit.until(lambda: json.loads(text(at, "/status.json"))["status"]["elements"] > report["status"]["elements"])
result("jobs_went_on", moved and load.poll() is None and odd.poll() is None)

# ---- a browser
chromium = shutil.which("chromium")


browsed = 0


def browse(where, *options):
    """What it prints; where it does not start, or hangs, as browsers on busy machines do, another one is tried."""
    global browsed
    for last in (False, False, True):
        browsed += 1
        Watched.seen = []
        try:
            p = subprocess.run([chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                                "--user-data-dir=" + kit.path(f"browser-{browsed}"), "--window-size=1200,1000", *options,
                                f"http://{where}/"], capture_output=True, timeout=kit.PATIENCE / 4)
            status, out, err = p.returncode, p.stdout, p.stderr
        except subprocess.TimeoutExpired as e:
            status, out, err = None, e.stdout or b"", e.stderr or b""
        if status == 0 or last:
            return out.decode(errors="replace"), f"status {status}: {err.decode(errors='replace')}"


class Watched(http.server.BaseHTTPRequestHandler):
    """The page as the browser asks for it: what each answer to / was for, and what it showed. The first answer is
    `early`, all others are `late`: two reports of the dispatcher's, between which the numbers moved."""
    seen, lock, early, late = [], threading.Lock(), None, None

    def do_GET(self):
        with Watched.lock:
            if self.path != "/":
                status, headers, body = get(at, self.path)
            else:
                status, headers, body = Watched.late if Watched.seen else Watched.early
                Watched.seen.append((self.headers["Sec-Fetch-Dest"], elements_of(body)))
        self.send_response(status)
        for name in ("Content-Type", "Content-Security-Policy"):
            self.send_header(name, headers[name])
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def number(dom, title):
    found = re.search(rf"<dt>{title}</dt><dd>([0-9,]+)</dd>", dom)
    return int(found[1].replace(",", "")) if found else -1


def elements_of(body):
    return number(body.decode(), "Elements since the start")


def later_than(n):
    Watched.late = get(at, "/")
    return elements_of(Watched.late[2]) > n


if chromium:
    Watched.early = get(at, "/")
    kit.until(lambda: later_than(elements_of(Watched.early[2])))
    between = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Watched)
    threading.Thread(target=between.serve_forever, daemon=True).start()
    dom, err = browse("%s:%d" % between.server_address, "--virtual-time-budget=5000", "--dump-dom")
    between.shutdown()
    result("browser_shows_jobs", "load-0" in dom and "exactly_once" in dom and "127.0.0.1:20000" in dom and
           "alert(1)&lt;/script&gt;" in dom, dom + err)
    # One document, and what it shows at the end is what its script was given later.
    documents = [n for why, n in Watched.seen if why == "document"]
    later = [n for why, n in Watched.seen if why == "empty"]
    at_the_end = number(dom, "Elements since the start")
    result("numbers_move_without_loading_again", len(documents) == 1 and at_the_end in later and
           at_the_end > documents[0] > 0, f"{Watched.seen}: {at_the_end}\n{dom}{err}")
    _, err = browse(at, "--screenshot=" + kit.path("page.png"), "--hide-scrollbars")
    image = b""
    if os.path.exists(kit.path("page.png")):
        with open(kit.path("page.png"), "rb") as f:
            image = f.read()
    result("browser_draws_it", image[:8] == b"\x89PNG\r\n\x1a\n" and len(image) > 20000, err)
else:
    kit.skip("browser", "chromium is not installed")

for name, answer in garbage:
    # An error, or nothing; never a report.
    got = answer.result()
    result("garbage_gets_no_report " + name, not got or re.match(rb"HTTP/1\.[01] [45]", got), str(got[:200]))

# ---- a worker's page, while it is read
worker = kit.Daemon("worker", "--dispatcher", d.at, "--listen", "127.0.0.1:0", "--status", "127.0.0.1:0", name="worker")
read = subprocess.Popen([kit.millrace, "show", 'range(100000000).batch(10).distribute("%s", streams=2, job_name="real")' % d.at],
                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
for _ in range(2000):
    read.stdout.readline()
shown("a_worker's_report", lambda: json.loads(text(worker.page, "/status.json"))["status"],
      lambda s: s["elements"] >= 1000 and s["bytes"] > 8000 and s["connected"] and s["dispatcher"] == d.at)
show = text(worker.page, "/")
result("a_worker's_page", f"Millrace worker {worker.at}" in show and "Streams that are read here" in show, show)
metrics = shown("a_worker's_metrics", lambda: text(worker.page, "/metrics"),
                has("^millrace_worker_sent_elements_total [1-9]"), has("^millrace_worker_connected 1$"))
result("a_worker's_health", get(worker.page, "/healthz")[0] == 200)
if shutil.which("promtool"):
    p = subprocess.run(["promtool", "check", "metrics"], input=metrics, capture_output=True, text=True,
                       timeout=kit.PATIENCE)
    result("a_worker's_promtool", p.returncode == 0 and not p.stdout + p.stderr, p.stdout + p.stderr)
result("the_job_is_on_the_dispatcher's", kit.until(lambda: '<td>real</td>' in text(at, "/")), text(at, "/"))
read.kill()
read.communicate()
result("a_worker_ends_with_its_page", worker.stop() == 0, worker.log())

# ---- a dispatcher that does not answer: it is stopped, and continues
d.process.send_signal(signal.SIGSTOP)
d.process.send_signal(signal.SIGCONT)
result("it_goes_on_after_a_stop", get(at, "/healthz")[0] == 200)
load.kill()
odd.kill()
result("lost_workers_are_shown", kit.until(lambda: "lost" in text(at, "/")) and kit.until(
    lambda: re.search(r'worker_serving\{worker="127.0.0.1:20000"\} 0', text(at, "/metrics"))), text(at, "/"))
result("who_waits_is_shown", kit.until(lambda: "waits for a client" in text(at, "/")), text(at, "/"))
result("it_ends_with_connections_open", d.stop() == 0, d.log())
kit.end()
