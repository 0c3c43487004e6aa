# SPDX-License-Identifier: Apache-2.0
"""A hub of datasets, and the store of large files to which it redirects.

    hub = Hub()
    hub.put("owner/name", "train/a.txt", b"...", large=True)
    os.environ["HF_ENDPOINT"] = hub.address"""
import hashlib
import json
import urllib.parse

from cloud import Cloud


class Hub(Cloud):
    def __init__(self, page=1000):
        super().__init__()
        self.page = page
        self.files, self.heads, self.private, self.token = {}, {}, set(), None
        self.store = Cloud()  # of large files
        self.store.anonymous = True
        self.store.etags = False
        self.weak = False  # ETags of small files are weak

    def commit(self, repository):
        return self.heads.setdefault(repository, {"main": hashlib.sha1(repository.encode()).hexdigest()})["main"]

    def put(self, repository, path, data, large=False):
        self.commit(repository)
        self.files[repository, path] = data, large
        if large:
            self.store.put("large", hashlib.sha256(data).hexdigest(), data)

    def refuse(self, h, status, code, message):
        h.answer(status, json.dumps({"error": message}).encode(), X_Error_Code=code, X_Error_Message=message, X_Request_Id="Root=1")

    def may_read(self, h):
        return True

    def serve(self, h):
        parts = [urllib.parse.unquote(p) for p in h.where.split("/")]
        if h.command == "PUT":  # tests fill it so: /OWNER/NAME/path
            self.put("/".join(parts[1:3]), "/".join(parts[3:]), h.body, large=len(h.body) % 2 == 1)
            return h.answer(200)
        api = parts[1] == "api"
        parts = parts[2:] if api else parts[1:]
        if parts[0] != "datasets" or len(parts) < 5:
            return self.refuse(h, 404, "", "Page not found")
        repository, what, revision, path = "/".join(parts[1:3]), parts[3], parts[4], "/".join(parts[5:])
        if repository not in self.heads or (repository in self.private and
                                            h.headers.get("Authorization") != f"Bearer {self.token}"):
            return self.refuse(h, 401, "RepoNotFound", f"Repository Not Found {h.headers.get('Authorization')}")
        heads = self.heads[repository]
        if revision not in heads and revision not in heads.values():
            return self.refuse(h, 404, "RevisionNotFound", f"Invalid rev id: {revision}")
        if api and what == "revision":
            return h.answer(200, json.dumps({"id": repository, "sha": heads.get(revision, revision)}).encode())
        if api and what == "tree":
            return self.tree(h, repository, path)
        if not api and what == "resolve":
            return self.resolve(h, repository, path)
        return self.refuse(h, 404, "", "Page not found")

    def tree(self, h, repository, folder):
        below = folder + "/" if folder else ""
        rows, folders = [], set()
        for (where, path), (data, large) in self.files.items():
            if where != repository or not path.startswith(below):
                continue
            rest = path[len(below):]
            parts = rest.split("/")
            folders |= {below + "/".join(parts[:n]) for n in range(1, len(parts))}
            if len(parts) > 1 and h.words.get("recursive") != "true":
                continue
            row = {"type": "file", "oid": hashlib.sha1(data).hexdigest(), "size": len(data), "path": path}
            if large:
                row["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}
            rows.append(row)
        if not rows and not folders:
            return self.refuse(h, 404, "EntryNotFound", f"{folder} does not exist on \"main\"")
        rows += [{"type": "directory", "oid": "0" * 40, "size": 0, "path": p} for p in sorted(folders)
                 if h.words.get("recursive") == "true" or "/" not in p[len(below):]]
        first = int(h.words.get("cursor", "0"))
        more = {}
        if first + self.page < len(rows):
            # The real one names its own host, whatever the client called it.
            more["Link"] = f"<https://hub.invalid{h.where}?recursive={h.words['recursive']}&cursor={first + self.page}>; rel=\"next\""
        return h.answer(200, json.dumps(rows[first:first + self.page]).encode(), **more)

    def resolve(self, h, repository, path):
        data, large = self.files.get((repository, path), (None, False))
        if data is None:
            return self.refuse(h, 404, "EntryNotFound", "Entry not found")
        if large:
            name = hashlib.sha256(data).hexdigest()
            return h.answer(302, Location=f"http://localhost:{self.store.port}/large/{name}?X-Amz-Signature=made-{name[:8]}",
                            X_Linked_ETag=f'"{name}"', X_Linked_Size=str(len(data)), ETag='"of-the-answer"')
        text, tag = h.headers.get("Range"), f'"{hashlib.sha1(data).hexdigest()}"'
        tag = "W/" + tag if self.weak else tag
        if not text:
            return h.answer(200, data, ETag=tag)
        first, _, last = text.removeprefix("bytes=").partition("-")
        first, last = int(first), min(int(last) if last else len(data) - 1, len(data) - 1)
        if first >= len(data):
            return h.answer(416, Content_Range=f"bytes */{len(data)}")
        return h.answer(206, data[first:last + 1], Content_Range=f"bytes {first}-{last}/{len(data)}", ETag=tag)
