#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# tier: plain=full asan=long
"""Datasets of a hub: revisions, listings in pages, large files in another store, tokens. The hub is imitated."""
import os

import kit
from hub import Hub
from kit import Run, directory, result, show

if not kit.has_libcurl():
    kit.skip_all("built without libcurl")
hub = Hub(page=3)
os.environ["HF_ENDPOINT"] = hub.address + "/"
LINES = [f'"{i}"' for i in range(8)]
for i in range(8):
    hub.put("owner/name", f"train/f-{i}", b"%d\n" % i, large=i % 2 == 1)
hub.put("owner/name", "train/deep/f-9", b"9\n")
hub.put("owner/name", "top.txt", b"top\n")
for key in ("a b", "a+b", "a%20b", "ä", "a?b=c", "x;y@:$!()"):
    hub.put("owner/odd", "odd/" + key, key.encode() + b"\n")
COMMIT = hub.commit("owner/name")
HEAD = "hf://datasets/owner/name"
TRAIN = HEAD + "/train/f-*"
outputs, secrets = [], ["hf_MadeToken01", "hf_MadeToken02", "hf_WrongToken", "made-"]


def read(url=TRAIN, **environment):
    hub.take()
    hub.store.take()
    run = show(f'text_line("{url}")', "-v", MILLRACE_LOG="debug", **environment)
    outputs.append((run.stdout.decode(), run.stderr))
    return run, hub.take(), hub.store.take()


def reads(name, want=LINES, url=TRAIN, **environment):
    run, seen, stored = read(url, **environment)
    result(name, run.status == 0 and run.lines == want, f"{run}\n{[r[:2] for r in seen + stored]}")
    return seen, stored


def fails(name, *words, url=TRAIN, **environment):
    run, seen, stored = read(url, **environment)
    result(name, run.status == 1 and not run.lines and all(w in run.stderr for w in words),
           f"{run}\n{[r[:2] for r in seen + stored]}")
    return seen


# ---- a public dataset
seen, stored = reads("a_pattern")
paths = [r[1] for r in seen]
result("the_revision_is_resolved_once", paths.count("/api/datasets/owner/name/revision/main") == 1 and
       all(COMMIT in p for p in paths if "/revision/" not in p), str(paths))
result("pages", len([p for p in paths if p.startswith(f"/api/datasets/owner/name/tree/{COMMIT}/train?recursive=false")]) == 3, str(paths))
result("each_file_once", len([p for p in paths if p.startswith("/datasets/")]) == 8 and len(stored) == 4 and
       all(r[0] == "GET" for r in seen + stored), str([r[:2] for r in seen + stored]))
result("no_token_is_sent", all("Authorization" not in r[2] for r in seen + stored), "")
seen, _ = reads("deeper_files", ['"9"'], HEAD + "/*/deep/f-*")
result("recursively", any("recursive=true" in r[1] for r in seen), str([r[:2] for r in seen]))
reads("files_at_the_top", ['"top"'], HEAD + "/*.txt")
reads("odd_names", [f'"{k}"' for k in sorted(("a b", "a+b", "a%20b", "ä", "a?b=c", "x;y@:$!()"), key=str.encode)],
      "hf://datasets/owner/odd/odd/*")
reads("a_small_file", ['"2"'], HEAD + "/train/f-2")
seen, stored = reads("a_large_file", ['"3"'], HEAD + "/train/f-3")
hub.weak = True
reads("weak_etags_of_small_files")
hub.weak = False
state = os.path.join(directory.name, "state")
first = show(f'text_line("{TRAIN}")', "--save-after", "3", "--state", state)
rest = show(f'text_line("{TRAIN}")', "--restore", state)
result("a_position", first.lines + rest.lines == LINES, f"{first}\n{rest}")
explained = Run(["explain", f'text_line("{TRAIN}")'])
result("explain_counts_them", b"8" in explained.stdout and b"16" in explained.stdout, f"{explained}\n{explained.stdout}")
big = b"".join(b"%015d\n" % i for i in range(1 << 20))  # 16 MiB: several ranges
hub.put("owner/name", "big.txt", big, large=True)
lengthy = show(f'text_line("{HEAD}/big.txt").skip({(1 << 20) - 1})')
result("a_file_of_several_ranges", lengthy.lines == [f'"{(1 << 20) - 1:015d}"'], str(lengthy))
written = Run(["write", "--out", os.path.join(directory.name, "t"), "--shards", "2", "--expr", 'range(900).map(i => {"a": i})'])
for name in sorted(os.listdir(directory.name)):
    if name.startswith("t-"):
        Run(["index", os.path.join(directory.name, name)])
        for file in (name, name + ".idx"):
            with open(os.path.join(directory.name, file), "rb") as f:
                hub.put("owner/name", "table/" + file, f.read(), large=not file.endswith("idx"))
graph = 'tfrecord("{}").global_shuffle(seed=3).map(x => parse_example(x, a=int64)).batch(100)'
local, remote = show(graph.format(os.path.join(directory.name, "t-*"))), show(graph.format(HEAD + "/table/t-*"))
result("global_shuffle", local.status == 0 and local.stdout == remote.stdout, f"{local}\n{remote}")

# ---- revisions
OTHER = "0123456789abcdef" * 2 + "01234567"
hub.heads["owner/name"].update({"v1.0": OTHER, "refs/convert/parquet": OTHER, "refs/pr/7": OTHER, "a/b": OTHER})
for name, revision, resolved in (("a_tag", "v1.0", 1), ("a_reference", "refs/pr/7", 1), ("the_converted_one", "refs/convert/parquet", 1),
                                 ("its_short_name", "~parquet", 1), ("an_encoded_name", "a%2Fb", 1), ("a_commit", OTHER, 0)):
    seen, _ = reads(f"a_revision_that_is_{name}", url=f"{HEAD}@{revision}/train/f-*")
    paths = [r[1] for r in seen]
    result(f"the_commit_of_{name}", len([p for p in paths if "/revision/" in p]) == resolved and
           all(OTHER in p for p in paths if "/revision/" not in p), str(paths))

moved = []


def move_on(h):
    """The branch moves while it is read."""
    hub.heads["owner/name"]["main"] = OTHER
    moved.append(h.path)
    hub.serve(h)


hub.routes[f"/datasets/owner/name/resolve/{COMMIT}/train/f-0"] = move_on
hub.heads["owner/name"]["old"] = COMMIT
seen, _ = reads("a_branch_that_moves")
result("is_read_at_its_commit", moved and all(COMMIT in r[1] for r in seen if "/revision/" not in r[1]), str([r[:2] for r in seen]))
hub.heads["owner/name"]["main"] = COMMIT
hub.routes.clear()

# ---- what is wrong
fails("no_match", "not found", "train/x-*", url=HEAD + "/train/x-*")
fails("no_folder", "not found", "none/x-*", url=HEAD + "/none/x-*")
fails("no_file", "not found", "EntryNotFound", url=HEAD + "/none.txt")
fails("no_revision", "not found", "revision v9", "RevisionNotFound", "Root=1", url=HEAD + "@v9/train/f-*")
fails("no_dataset", "permission denied", "RepoNotFound", "no credentials were sent", "HF_TOKEN", url="hf://datasets/owner/none/f-*")
for url in ("hf://owner/name/f", "hf://datasets/owner/f", "hf://datasets/owner/name", "hf://datasets/owner/name/",
            "hf://datasets/owner/name@/f", "hf://datasets//name/f", "hf://datasets/owner/na me/f", "hf://spaces/owner/name/f",
            "hf://datasets/owner/../f", "hf://datasets/owner/name@v1"):
    fails(f"not_a_name_{url[5:].replace('/', '_')}", "hf://datasets/OWNER/NAME[@REVISION]/path", url=url)
for name, body in (("not_json", b"<html>"), ("no_commit", b'{"sha": "x"}'), ("no_object", b"[]")):
    hub.routes["/api/datasets/owner/name/revision/main"] = lambda h, body=body: h.answer(200, body)
    fails(f"an_answer_that_is_{name}", "data loss", "HF_ENDPOINT")
hub.routes.clear()
for name, body in (("an_object", b"{}"), ("numbers", b"[1]"), ("without_sizes", b'[{"type":"file","path":"train/f-1","oid":"1"}]')):
    hub.routes[f"/api/datasets/owner/name/tree/{COMMIT}/train"] = lambda h, body=body: h.answer(200, body)
    fails(f"a_tree_that_is_{name}", "data loss", "HF_ENDPOINT")
hub.routes[f"/api/datasets/owner/name/tree/{COMMIT}/train"] = lambda h: h.answer(
    200, b"[]", Link=f'<http://x/y?{h.query}>; rel="next"')
fails("a_tree_that_leads_to_itself", "data loss")
hub.routes.clear()
hub.routes[f"/datasets/owner/name/resolve/{COMMIT}/train/f-3"] = lambda h: h.answer(
    302, Location=f"{hub.store.address}/large/x", X_Linked_ETag='"other"')
hub.store.put("large", "x", b"x\n")
run, _, _ = read()
result("a_file_that_is_another_one", run.status == 1 and "failed precondition" in run.stderr and run.lines == LINES[:3], str(run))
hub.routes.clear()

# ---- tokens
hub.private.add("owner/name")
hub.token = "hf_MadeToken01"
fails("a_private_dataset", "permission denied", "RepoNotFound", "no credentials were sent", "HF_TOKEN", "HF_HOME")
fails("a_wrong_token", "permission denied", "401", "those of HF_TOKEN", HF_TOKEN="hf_WrongToken")
seen, stored = reads("a_token", HF_TOKEN=hub.token)
result("it_stays_with_the_hub", all(r[2].get("Authorization") == f"Bearer {hub.token}" for r in seen) and len(stored) == 4 and
       all("Authorization" not in r[2] for r in stored), str([r[2] for r in stored]))
reads("the_old_variable", HUGGING_FACE_HUB_TOKEN=hub.token)
for name, folder, environment in (("in_the_home", ".cache/huggingface", {}), ("in_hf_home", "h", {"HF_HOME": "h"}),
                                  ("in_the_cache", "c/huggingface", {"XDG_CACHE_HOME": "c"}),
                                  ("by_its_path", "p", {"HF_TOKEN_PATH": "p/token"})):
    os.makedirs(os.path.join(directory.name, folder))
    path = os.path.join(directory.name, folder, "token")
    with open(path, "w", encoding="ascii") as f:
        f.write(hub.token + "\n")
    reads(f"a_token_{name}", **{k: os.path.join(directory.name, v) for k, v in environment.items()})
    os.remove(path)
with open(os.path.join(directory.name, "h", "token"), "w", encoding="ascii") as f:
    f.write(hub.token)


def change_token(h):
    hub.token = "hf_MadeToken02"
    with open(os.path.join(directory.name, "h", "token"), "w", encoding="ascii") as out:
        out.write(hub.token)
    hub.routes.clear()
    hub.serve(h)


hub.routes[f"/datasets/owner/name/resolve/{COMMIT}/train/f-2"] = change_token
reads("a_token_that_is_changed_while_reading", HF_HOME=os.path.join(directory.name, "h"))
found = [(s, o) for s in secrets for o in outputs if s in o[0] or s in o[1]]
result("no_secret_is_printed", not found and len(outputs) > 40, str(found[:3]))
kit.end()
