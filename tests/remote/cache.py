#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# tier: plain=full
"""The cache of remote objects: what is fetched once, and what is left after kills, damage and full disks."""
import fcntl
import glob
import json
import os
import random
import shutil
import stat
import subprocess
import threading

import kit
from kit import Run, directory, fault, millrace, result, show, status

if not kit.has_libcurl():
    kit.skip_all("built without libcurl")
root = directory.name
MIB = 1 << 20
server = kit.Server()


def text(seed, size):
    """Lines of 1,000 digits or so."""
    draw = random.Random(seed)
    line = b"%0999d\n"
    return b"".join(line % draw.getrandbits(64) for _ in range(size // 1000))


def bodies(requests):
    """The ranges of contents that were asked for; one byte shows what an object is."""
    return sorted((path.split("?")[0], span) for path, span, _, _ in requests if span != "bytes=0-0")


def pieces(path, size):
    """The ranges of an object's pieces."""
    return sorted((path, f"bytes={at}-{min(at + 8 * MIB, size) - 1}") for at in range(0, size, 8 * MIB))


def listing(cache, *arguments):
    run = Run(["cache", cache, "--json", *arguments])
    return json.loads(run.stdout) if run.status == 0 else {"error": run.stderr}


def files(cache, pattern="*"):
    return sorted(glob.glob(os.path.join(cache, "objects", pattern)))


def used(cache):
    return sum(os.path.getsize(f) for f in glob.glob(os.path.join(cache, "**"), recursive=True) if os.path.isfile(f))


def lines_of(data):
    return [b'"' + line + b'"' for line in data.splitlines()]


def reads(run, data):
    return run.status == 0 and run.stdout.splitlines() == lines_of(data)


big = text(1, 20 * MIB + 12345)
small = [text(i, 300_000) for i in range(8)]
big_url = server.put("/big.txt", big)
small_urls = [server.put(f"/small-{i}.txt", data, f'"s{i}"') for i, data in enumerate(small)]
graph = f'text_line("{big_url}")'
of_small = f"text_line({json.dumps(small_urls)})"

# ---- epochs
cache = os.path.join(root, "new", "cache")
first = show(graph, "--cache-dir", cache)
seen = bodies(server.take())
result("the_first_epoch_fetches_each_piece_once", reads(first, big) and seen == pieces("/big.txt", len(big)), f"{first}\n{seen}")
second = show(graph, MILLRACE_CACHE_DIR=cache)
seen = bodies(server.take())
result("the_second_epoch_makes_no_requests_for_bodies", second.stdout == first.stdout and not seen, f"{second}\n{seen}")
offline = show(graph, "--cache-dir", cache, "--offline")
seen = server.take()
result("offline", offline.stdout == first.stdout and not seen and offline.stderr == "", f"{offline}\n{seen}")
repeated = show(f'text_line("{big_url}").repeat(2).with_options(cache_dir="{cache}2")')
seen = bodies(server.take())
result("two_epochs_of_one_run", repeated.stdout == 2 * first.stdout and seen == pieces("/big.txt", len(big)), f"{repeated}\n{seen}")
without = show(graph)
result("without_a_cache", without.stdout == first.stdout and bodies(server.take()) != [] and not os.path.exists(os.path.join(root, "objects")), str(without))
shown = listing(cache)
want = [{"url": big_url, "etag": '"1"', "size": len(big), "cached_bytes": len(big), "complete": True}]
result("the_listing", list(shown) == ["directory", "bytes", "limit", "objects"] and shown["directory"] == cache and
       shown["objects"] == want and len(big) <= shown["bytes"] <= shown["limit"], str(shown))
for_people = Run(["cache", cache])
result("the_listing_for_people", big_url.encode() in for_people.stdout and b"incomplete" not in for_people.stdout, f"{for_people}\n{for_people.stdout!r}")
modes = {stat.S_IMODE(os.stat(f).st_mode) for f in files(cache) + [os.path.join(cache, "millrace-cache")]}
folders = {stat.S_IMODE(os.stat(f).st_mode) for f in (cache, os.path.join(cache, "objects"))}
result("the_rights_are_the_users_alone", modes == {0o600} and folders == {0o700}, f"{modes} {folders}")
part = show(f'text_line("{big_url}").take(1)', "--cache-dir", cache + "3")
shown = listing(cache + "3")["objects"]
result("what_is_left_early", part.lines == [first.lines[0]] and all(not o["complete"] for o in shown) and not files(cache + "3", "*.part"), f"{part}\n{shown}")
missing = show(graph, "--cache-dir", cache + "3", "--offline")
result("offline_without_a_part", missing.status == 1 and "failed precondition" in missing.stderr and big_url in missing.stderr, str(missing))
never = show(of_small, "--cache-dir", cache, "--offline")
result("offline_without_any", never.status == 1 and "never listed" in never.stderr and small_urls[0] in never.stderr, str(never))
nowhere = show(of_small, "--offline")
result("offline_without_a_cache", nowhere.status == 1 and "MILLRACE_CACHE_DIR" in nowhere.stderr, str(nowhere))
empty = server.put("/empty.txt", b"", '"e"')
empties = [show(f'text_line("{empty}")', "--cache-dir", cache, *more) for more in ([], ["--offline"])]
result("an_empty_object", all(r.status == 0 and not r.lines for r in empties), f"{empties[0]}\n{empties[1]}")
server.take()

# ---- processes
def start(expression, cache_dir, *arguments, **options):
    return subprocess.Popen([millrace, "show", expression, "--cache-dir", cache_dir, *arguments], stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, **options)


shared = os.path.join(root, "shared")
everything = f"text_line({json.dumps([big_url, *small_urls])})"
all_data = big + b"".join(small)
running = [start(everything, shared) for _ in range(8)]
ends = []
threads = [threading.Thread(target=lambda p=p: ends.append((p.communicate(timeout=300), p.wait()))) for p in running]
for t in threads:
    t.start()
for t in threads:
    t.join()
seen = bodies(server.take())
want = sorted(pieces("/big.txt", len(big)) + [p for i in range(8) for p in pieces(f"/small-{i}.txt", len(small[i]))])
result("eight_processes_fetch_each_piece_once", len(ends) == 8 and all(code == 0 and out[0].splitlines() == lines_of(all_data) for out, code in ends) and
       seen == want, f"{[(code, out[1], len(out[0])) for out, code in ends]}\n{seen}")
killed = os.path.join(root, "killed")
draw = random.Random(5)
wrong = []
for turn in range(6):
    # All processes die at a request, or in the middle of a body, as the turn wants it.
    group = [start(everything, killed) for _ in range(3)]
    left, cuts = [draw.randrange(1, 6)], draw.random() < 0.5

    def die(s, h, path, group=group, left=left, cuts=cuts):
        left[0] -= 1
        if left[0] == 0:
            if cuts:
                s.send(h, path, cut=draw.randrange(1, 3 * MIB))
            for p in group:
                p.kill()
        else:
            s.send(h, path)

    server.always = {path: die for path in server.files}
    for p in group:
        out = p.communicate(timeout=300)[0]
        whole = out[:out.rfind(b"\n") + 1].splitlines()
        if whole != lines_of(all_data)[:len(whole)]:
            wrong.append((turn, len(whole)))
    server.always = {}
listed = listing(killed)
after = show(everything, "--cache-dir", killed)
again = show(everything, "--cache-dir", killed, "--offline")
result("after_kills_nothing_looks_whole_that_is_not", not wrong and reads(after, all_data) and reads(again, all_data) and
       all(o["cached_bytes"] <= o["size"] for o in listed["objects"]) and after.stderr == "", f"{wrong} {after}\n{again}\n{listed}")
result("after_kills_nothing_is_left_over", not files(killed, "*.part") and listing(killed)["bytes"] <= listing(killed)["limit"], str(files(killed)))
server.take()

# ---- the limit
limited = os.path.join(root, "limited")
most = []
stop = threading.Event()


def watch():
    while not stop.wait(0.02):
        try:
            with open(os.path.join(limited, "millrace-cache"), "rb") as f:
                fcntl.flock(f, fcntl.LOCK_EX)  # under which files grow and get their names
                most.append(used(limited))
        except FileNotFoundError:
            pass  # not made yet


watcher = threading.Thread(target=watch)
watcher.start()
run = show(everything, "--cache-dir", limited, "--cache-limit", "18M")
stop.set()
watcher.join()
shown = listing(limited)
result("the_limit_is_hard", reads(run, all_data) and most and max(most) <= 18 * MIB and 0 < shown["bytes"] <= shown["limit"] == 18 * MIB, f"{run}\n{most[-3:]} {shown}")
show(of_small, "--cache-dir", limited)
result("the_limit_is_stored", listing(limited)["limit"] == 18 * MIB, str(listing(limited)))
show(of_small, "--cache-dir", limited, "--cache-limit", "1500K")
shown = listing(limited)
result("a_new_limit", shown["bytes"] <= shown["limit"] == 1500 << 10 and used(limited) <= 1500 << 10, str(shown))
recent = os.path.join(root, "recent")
for url in (small_urls[0], small_urls[1], small_urls[2], small_urls[0], small_urls[3]):
    show(f'text_line("{url}")', "--cache-dir", recent, "--cache-limit", "1M")
names = [o["url"] for o in listing(recent)["objects"]]
result("the_least_recently_used_go_first", small_urls[0] in names and small_urls[3] in names and small_urls[1] not in names, str(names))
tiny = show(graph, "--cache-dir", os.path.join(root, "tiny"), "--cache-limit", "1M")
result("a_limit_below_a_piece", reads(tiny, big), str(tiny))
pruned = listing(recent, "--prune", "400K")
result("prune", 0 < pruned["bytes"] <= 400 << 10 and pruned["limit"] == MIB, str(pruned))
none = Run(["cache", root])
result("not_a_cache", none.status == 1 and "not a cache" in none.stderr, str(none))
result("no_directory", Run(["cache", root + "/gone"]).status == 1 and Run(["cache"]).status == 2, "")
for arguments, environment in ((["--cache-limit", "much"], {}), ([], {"MILLRACE_CACHE_LIMIT": "much"})):
    bad = show(of_small, "--cache-dir", limited, *arguments, **environment)
    result(f"a_limit_that_is_none_{'in_the_environment' if environment else 'given'}", bad.status in (1, 2) and "much" in bad.stderr, str(bad))

# ---- damage
server.take()
for name, damage in (("a_changed_byte", lambda f: (f.seek(os.path.getsize(f.name) - 77), f.write(b"?"))),
                     ("a_damaged_head", lambda f: (f.seek(20), f.write(b"?"))),
                     ("a_piece_cut_short", lambda f: f.truncate(5000)),
                     ("an_empty_piece", lambda f: f.truncate(0))):
    with open(max(files(cache, "*.piece"), key=os.path.getsize), "r+b") as f:
        damage(f)
    refused = show(graph, "--cache-dir", cache, "--offline")
    run = show(graph, "--cache-dir", cache)
    seen = bodies(server.take())
    result(name, reads(run, big) and len(seen) == 1 and run.stderr.count("damaged") == 1, f"{run}\n{seen}")
    result(name + "_offline", refused.status == 1 and "data loss" in refused.stderr and "damaged" in refused.stderr, str(refused))
odd = max(files(cache, "*.piece"), key=os.path.getsize)
os.remove(odd)
os.mkfifo(odd)
run = show(graph, "--cache-dir", cache)
result("a_fifo_in_the_place_of_a_piece", reads(run, big) and run.stderr.count("damaged") == 1, str(run))
repaired = show(graph, "--cache-dir", cache, "--offline")
result("repaired", reads(repaired, big) and repaired.stderr == "", str(repaired))
for name in files(cache, "*.list"):
    with open(name, "r+b") as f:
        f.seek(30)
        f.write(b"??")
lists = show(graph, "--cache-dir", cache, "--offline")
result("a_damaged_list", lists.status == 1 and "never listed" in lists.stderr and reads(show(graph, "--cache-dir", cache), big), str(lists))
with open(os.path.join(cache, "millrace-cache"), "w", encoding="ascii") as f:
    f.write("?")
lost = show(graph, "--cache-dir", cache)
result("a_damaged_state", reads(lost, big) and listing(cache)["bytes"] >= len(big), str(lost))
with open(os.path.join(cache, "millrace-cache"), "w", encoding="ascii") as f:
    f.write("millrace cache 2\nlimit 5\n")
later = show(graph, "--cache-dir", cache)
result("a_later_version", later.status == 1 and "later version" in later.stderr, str(later))

# ---- directories that cannot be used
strange = os.path.join(root, "strange")
os.mkdir(strange, 0o700)
if os.geteuid() == 0:
    os.chown(strange, 65534, 65534)
refused = show(of_small, "--cache-dir", strange if os.geteuid() == 0 else "/usr")
result("another_users_directory", refused.status == 1 and "permission denied" in refused.stderr and "another user" in refused.stderr, str(refused))
os.mkdir(os.path.join(root, "open"))
os.chmod(os.path.join(root, "open"), 0o777)
refused = show(of_small, "--cache-dir", os.path.join(root, "open"))
result("a_directory_that_others_may_write_to", refused.status == 1 and "permission denied" in refused.stderr and "chmod" in refused.stderr, str(refused))
with open(os.path.join(root, "file"), "w", encoding="ascii") as f:
    f.write("x")
refused = show(of_small, "--cache-dir", os.path.join(root, "file"))
result("a_file_in_its_place", refused.status == 1 and os.path.join(root, "file") in refused.stderr, str(refused))
local = os.path.join(root, "local.txt")
with open(local, "wb") as f:
    f.write(small[0])
result("local_files_need_no_cache", reads(show(f'text_line("{local}")', "--cache-dir", strange), small[0]), "")


def in_mounts(script):
    """Runs a script where it may mount. None: it may not."""
    if os.geteuid() != 0 or not shutil.which("unshare"):
        return None
    probe = subprocess.run(["unshare", "-m", "sh", "-c", f"mount -t tmpfs tmpfs {root}/open"], capture_output=True, check=False)
    if probe.returncode:
        return None
    return subprocess.run(["unshare", "-m", "sh", "-ec", script], capture_output=True, check=False, timeout=300)


disk = os.path.join(root, "disk")
os.mkdir(disk, 0o700)
full = in_mounts(f"mount -t tmpfs -o size=10m,mode=700 tmpfs {disk}; {millrace} show '{everything}' --cache-dir {disk} --cache-limit 1G; "
                 f"ls {disk}/objects >&2")
if full is None:
    print("skipped: a full disk and a read-only one, since nothing can be mounted here")
else:
    lines = full.stderr.decode().splitlines()
    warnings = [x for x in lines if "warning" in x]
    result("a_full_disk", full.returncode == 0 and full.stdout.splitlines() == lines_of(all_data) and len(warnings) == 1 and "is full" in warnings[0] and
           not any(x.endswith(".part") for x in lines), str(full.stderr))
    server.take()
    fixed = in_mounts(f"mount --bind {shared} {disk}; mount -o remount,ro,bind {disk}; {millrace} show '{everything}' --cache-dir {disk}")
    seen = bodies(server.take())
    result("a_read_only_disk_is_read", fixed.returncode == 0 and fixed.stdout.splitlines() == lines_of(all_data) and not seen and
           fixed.stderr.count(b"warning") == 1 and b"cannot be written" in fixed.stderr, f"{fixed.stderr}\n{seen}")
    fixed = in_mounts(f"mount --bind {recent} {disk}; mount -o remount,ro,bind {disk}; {millrace} show '{everything}' --cache-dir {disk}")
    result("a_read_only_disk_without_pieces", fixed.returncode == 0 and fixed.stdout.splitlines() == lines_of(all_data) and
           fixed.stderr.count(b"warning") == 1, str(fixed.stderr))
    whole = in_mounts(f"mount --bind {shared} {disk}; mount -o remount,ro,bind {disk}; {millrace} cache {disk} --json")
    result("a_read_only_disk_is_listed", whole.returncode == 0 and len(json.loads(whole.stdout)["objects"]) == 9, str(whole.stderr))

# ---- what identifies an object
server.take()
named = os.path.join(root, "named")
server.put("/big.txt", small[0], '"2"')
one, two = (show(graph, "--cache-dir", named) for _ in range(2))
server.put("/big.txt", small[1], '"3"')
three = show(graph, "--cache-dir", named)
result("a_replaced_object_is_read_anew", reads(one, small[0]) and reads(two, small[0]) and reads(three, small[1]) and
       [(o["url"], o["etag"]) for o in listing(named)["objects"]] == [(big_url, '"2"'), (big_url, '"3"')], f"{three}\n{listing(named)}")
server.take()
signed = [show(f'text_line("{small_urls[2]}?X-Amz-Date=2026&X-Amz-Signature={s}&X-Amz-Credential=5ec2e7")', "--cache-dir", named)
          for s in ("5ec2e7a", "5ec2e7b")]
seen = bodies(server.take())
stored = b"".join(open(f, "rb").read() for f in files(named)) + json.dumps(listing(named)).encode()
result("a_presigned_url_is_known_again", all(reads(r, small[2]) for r in signed) and seen == pieces("/small-2.txt", len(small[2])) and
       small_urls[2] in [o["url"] for o in listing(named)["objects"]], f"{signed[0]}\n{seen}")
result("no_signature_is_stored", b"5ec2e7" not in stored and b"X-Amz" not in stored, "")
again = show(f'text_line("{small_urls[2]}?X-Amz-Signature=5ec2e7c")', "--cache-dir", named, "--offline")
result("a_presigned_url_offline", reads(again, small[2]), str(again))
position, ledger = os.path.join(root, "position"), os.path.join(root, "ledger")
first = show(f'text_line("{small_urls[2]}?X-Amz-Signature=5ec2e7a")', "--save-after", "4", "--state", position, "--ledger", ledger)
rest = show(f'text_line("{small_urls[2]}?X-Amz-Signature=5ec2e7b")', "--restore", position, "--cache-dir", named)
result("a_position_continues_with_another_signature", first.stdout + rest.stdout == signed[0].stdout, f"{first}\n{rest}")
stored = b"".join(open(f, "rb").read() for f in (position, ledger))
result("no_signature_is_in_positions_and_ledgers", small_urls[2].encode() in stored and b"5ec2e7" not in stored, "")
server.take()
numbered = [show(f'text_line("{small_urls[3]}?id={i}&sig=5ec2e7")', "--cache-dir", named) for i in (1, 2)]
result("other_parameters_tell_objects_apart", all(reads(r, small[3]) for r in numbered) and len(bodies(server.take())) == 2, "")
for name, options in (("a_weak_etag", {"etag": 'W/"1"'}), ("no_etag", {"etag": ""}), ("neither_etag_nor_time", {"etag": "", "modified": ""})):
    server.always["/small-4.txt"] = fault(**options)
    runs = [show(f'text_line("{small_urls[4]}")', "--cache-dir", named) for _ in range(2)]
    seen = bodies(server.take())
    result(name + "_is_not_cached", all(reads(r, small[4]) and "no strong ETag" in r.stderr for r in runs) and len(seen) >= 2 and
           small_urls[4] not in [o["url"] for o in listing(named)["objects"]], f"{runs[0]}\n{seen}")
server.always = {"/small-5.txt": fault(ranges=False), "/huge.txt": fault(ranges=False)}
runs = [show(f'text_line("{small_urls[5]}")', "--cache-dir", named, *more) for more in ([], ["--offline"])]
result("a_small_object_without_ranges", all(reads(r, small[5]) for r in runs), f"{runs[0]}\n{runs[1]}")
huge = server.put("/huge.txt", big, '"h"')
run = show(f'text_line("{huge}")', "--cache-dir", named)
result("a_large_object_without_ranges", reads(run, big) and huge not in [o["url"] for o in listing(named)["objects"]], str(run))
server.always = {}

# ---- faults of the server
faulty = os.path.join(root, "faulty")
url = server.put("/f.txt", big, '"f"')


def second_piece(step):
    """Does it for the piece at byte 8 Mi, and answers well else."""
    return lambda s, h, path: (step if h.headers.get("Range", "").startswith("bytes=8388608-") else fault())(s, h, path)


server.always["/f.txt"] = second_piece(status(403))
run = show(f'text_line("{url}")', "--cache-dir", faulty)
result("an_error_of_the_server", run.status == 1 and "permission denied" in run.stderr and run.lines and
       run.stdout.splitlines() == lines_of(big)[:len(run.lines)], str(run))
server.always["/f.txt"] = second_piece(fault(cut=0, reset=True))
run = show(f'text_line("{url}")', "--cache-dir", faulty, MILLRACE_REMOTE_RETRIES="2")
result("a_piece_that_never_comes_whole", run.status == 1 and not files(faulty, "*.part") and
       all(not o["complete"] for o in listing(faulty)["objects"]), str(run))
server.always = {}
server.plan("/f.txt", fault(), *[fault(cut=300_000, reset=True)] * 2)
run = show(f'text_line("{url}")', "--cache-dir", faulty)
result("resets_are_retried", reads(run, big), str(run))
server.take()
arrived, go_on = threading.Event(), threading.Event()


def stall(s, h, path):
    if h.headers.get("Range") != "bytes=0-0":
        arrived.set()
        go_on.wait(300)
    else:
        s.send(h, path)


url = server.put("/stall.txt", big, '"stall"')
server.always["/stall.txt"] = stall
waiting = [start(f'text_line("{url}")', faulty) for _ in range(2)]
arrived.wait(300)
for p in waiting:
    kit.interrupt(p)
ends = [p.communicate(timeout=300) and p.returncode for p in waiting]
go_on.set()
server.always = {}
result("interrupted", ends == [130, 130] and not files(faulty, "*.part"), f"{ends} {files(faulty)}")

# ---- random access
out = os.path.join(root, "t")
made = Run(["write", "--out", out, "--shards", "2", "--expr", 'range(20000).map(i => {"a": i, "b": zeros([100], "float32")})'])
Run(["index", *sorted(glob.glob(out + "-*.tfrecord"))])
for name in glob.glob(out + "-*"):
    with open(name, "rb") as f:
        server.put("/" + os.path.basename(name), f.read(), f'"{os.path.basename(name)}"')
mixed = 'tfrecord(["{0}/t-00000-of-00002.tfrecord", "{0}/t-00001-of-00002.tfrecord"]).global_shuffle(seed=3).map(x => parse_example(x, a=int64)).batch(100)'
here = show(mixed.format(root))
server.take()
random_cache = os.path.join(root, "random")
there = [show(mixed.format(server.address), "--cache-dir", random_cache, *more) for more in ([], [], ["--offline"])]
seen = [r for r in bodies(server.take()) if r[0].endswith(".tfrecord")]
want = sorted(p for i in range(2) for p in pieces(f"/t-0000{i}-of-00002.tfrecord", len(server.files[f"/t-0000{i}-of-00002.tfrecord"])))
server.take()
plain = server.put("/plain.tfrecord", server.files["/t-00000-of-00002.tfrecord"], '"p"')
skipping = [show(f'tfrecord("{plain}").skip(9000).map(x => parse_example(x, a=int64))', "--cache-dir", random_cache, *more)
            for more in ([], ["--offline"])]
result("an_index_that_is_not_there_offline", skipping[0].status == 0 and skipping[1].stdout == skipping[0].stdout and skipping[1].stderr == "",
       f"{skipping[0]}\n{skipping[1]}")
result("global_shuffle", made.status == 0 and here.status == 0 and all(r.stdout == here.stdout for r in there) and seen == want,
       f"{made} {here}\n{there[0]}\n{there[1]}\n{there[2]}\n{seen}")
kit.end()
