#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# tier: plain=full asan=full
"""What is printed and stored of URLs with passwords, tokens and signatures; and reading on with another signature."""
import json
import os
import subprocess
import threading

import kit
from kit import Run, directory, result, show, status

if not kit.has_libcurl():
    kit.skip_all("built without libcurl")
server = kit.Server()
lines = b"".join(b"%d\n" % i for i in range(100))
accepted = "5ec2e7a"


def check(s, h, path):
    """A store that takes only the newest signature."""
    if f"X-Amz-Signature={accepted}" in h.path:
        s.send(h, path)
    else:
        status(403)(s, h, path)


here = server.put("/private/a.txt", lines)
server.always["/private/a.txt"] = check
server.put("/other/b.txt", lines)


def presigned():
    return f"{here}?versionId=3&X-Amz-Credential=5ec2e7c&X-Amz-Signature={accepted}"


web = server.address.replace("//", "//user:5ec2e7p@") + "/other/b.txt?a=1&token=5ec2e7t"
where = os.path.join(directory.name, "stored")
os.mkdir(where)
said = []


def keep(run):
    said.append(run.stdout + run.stderr.encode())
    return run


def both(then=""):
    return f'text_line("{presigned()}").concatenate(text_line("{web}")){then}'


def renew(signature):
    global accepted
    accepted = signature
    server.take()


def asked(path):
    return [r for r in server.take() if r[0].startswith(path)]


# ---- files of elements
cached = f'.cache("{where}/elements")'
first = keep(show(both(cached)))
renew("5ec2e7b")
again = keep(show(both(cached)))
result("a_cache_is_read_with_another_signature", first.status == 0 and again.status == 0 and again.lines == first.lines and
       len(first.lines) == 200, f"{first} | {again}")
result("and_its_object_is_looked_at", len(asked("/private/a.txt")) == 1)
server.put("/private/a.txt", lines[:-3], '"2"')
stale = keep(show(both(cached)))
result("a_replaced_object_makes_it_stale", stale.status != 0 and "failed precondition" in stale.stderr and "a.txt" in stale.stderr, str(stale))
server.put("/private/a.txt", lines)

kept = f'.snapshot("{where}/snapshots")'
first = keep(show(both(kept)))
renew("5ec2e7d")
again = keep(show(both(kept)))
result("a_snapshot_is_read_with_another_signature", first.status == 0 and again.lines == first.lines and len(asked("/private/a.txt")) <= 1 and
       len(os.listdir(f"{where}/snapshots")) == 1, f"{first} | {again} {os.listdir(where + '/snapshots')}")
other = keep(show(both(kept).replace("versionId=3", "versionId=4")))
result("another_version_is_another_graph", other.status == 0 and len(os.listdir(f"{where}/snapshots")) == 2, str(other))

# ---- positions and ledgers
position, ledger = f"{where}/position", f"{where}/ledger"
first = keep(show(both(), "--save-after", "30", "--state", position, "--ledger", ledger))
renew("5ec2e7e")
rest = keep(show(both(), "--restore", position))
result("a_position_continues_with_another_signature", first.status == 0 and len(first.lines) == 30 and rest.status == 0 and
       len(rest.lines) == 170, f"{first} | {rest}")
elastic = f"{where}/elastic"
job = ["--replicas", "1", "--elastic", "2"]
whole = keep(show(both(".batch(10)"), *job))
first = keep(show(both(".batch(10)"), *job, "--save-after", "3", "--state", elastic))
renew("5ec2e7g")
rest = keep(show(both(".batch(10)"), *job, "--restore", elastic))
result("so_does_that_of_an_elastic_job", first.status == 0 and rest.status == 0 and len(first.lines) == 3 and
       len(rest.lines) == len(whole.lines) - 3, f"{whole} | {first} | {rest}")
result("why_names_files_without_them", b"a.txt" in keep(Run(["why", ledger, "--element", "3"])).stdout)

# ---- what programs print
for arguments in (["explain"], ["explain", "--json"], ["bench", "--trace", f"{where}/trace"], ["show", "-v", "--cache-dir", f"{where}/objects"],
                  ["show", "--limit", "-1"], ["inspect"]):
    run = keep(Run([arguments[0], both() if arguments[0] != "inspect" else presigned(), *arguments[1:]]))
    good = arguments[0] != "inspect" and "--limit" not in arguments  # the file has no records
    result(f"runs: {' '.join(arguments[:2])}", (run.status == 0) == good, f"{run}")
keep(Run(["cache", f"{where}/objects", "--json"]))
for wrong in (".foo()", ".batch(0)", ", 3", f'.map(x => nothing("{presigned()}"))', f'.batch("{web}")', f'.take("{presigned()}"'):
    run = keep(show(both() + wrong))
    result(f"refused: {wrong[:8]}", run.status != 0)
for arguments in (["ops", both()], [presigned()], ["show", "--limit", presigned(), "range(3)"], ["index", presigned()],
                  ["write", "--out", presigned(), "--expr", "range(3)"], ["uploads", presigned()], ["train", "--data", both(), "--steps", web]):
    run = keep(Run(arguments))
    result(f"a_wrong_place: {arguments[0][:6]}", run.status != 0, str(run))
accepted = "none"
keep(show(f'text_line("{here}?X-Amz-Signature=5ec2e7a")'))
accepted = "5ec2e7f"

stalled, go_on = threading.Event(), threading.Event()


def stall(s, h, path):
    stalled.set()
    go_on.wait(300)
    check(s, h, path)


server.plan("/private/a.txt", stall)
process = subprocess.Popen([kit.millrace, "show", both()], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
stalled.wait(300)
top = keep(Run(["top", str(process.pid), "--once", "--json"]))
keep(Run(["top", str(process.pid), "--once"]))
go_on.set()
said.extend(process.communicate(timeout=300))
result("top_shows_the_graph", "concatenate" in json.dumps(json.loads(top.stdout)) and process.returncode == 0, str(top))

# ---- none of it has a secret
result("nothing_printed_has_a_secret", b"5ec2e7" not in b"".join(said), next((s for s in said if b"5ec2e7" in s), b"").decode()[:3000])
found = []
for folder, _, names in os.walk(where):
    for name in names:
        with open(os.path.join(folder, name), "rb") as f:
            if b"5ec2e7" in f.read():
                found.append(name)
result("nothing_stored_has_a_secret", not found, str(found))
kit.end()
