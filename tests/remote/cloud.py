# SPDX-License-Identifier: Apache-2.0
"""A cloud of one process: stores with XML interfaces that verify signatures and tokens, and the servers that give
credentials. A store accepts what `keys` and `bearers` have; what the others give is planned by the test.

    cloud = Cloud()
    cloud.put("bucket", "a.txt", b"...")
    cloud.keys["ID1"] = ("secret1", "token1")
    cloud.routes["/latest/api/token"] = lambda h: h.answer(200, b"session")"""
import datetime
import hashlib
import hmac
import http.server
import threading
import time
import urllib.parse
import xml.sax.saxutils

PAGE = 1000


def digest(data):
    return f'"{hashlib.md5(data).hexdigest()}"'


def expiration(seconds):
    at = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds)
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


class Cloud:
    def __init__(self, page=PAGE):
        cloud = self
        self.objects, self.keys, self.bearers, self.routes, self.requests = {}, {}, set(), {}, []
        self.anonymous = False  # everyone may read
        self.refused = None  # (status, code) for credentials that are not accepted
        self.page = page
        self.generations = True  # listings and answers have them
        self.etags = True
        self.lock = threading.Lock()

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def handle_any(self):
                self.body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                self.where, _, self.query = self.path.partition("?")
                self.words = dict(urllib.parse.parse_qsl(self.query, keep_blank_values=True))
                with cloud.lock:
                    cloud.requests.append((self.command, self.path, dict(self.headers), self.body, time.monotonic()))
                route = cloud.routes.get(self.where) or cloud.routes.get(self.command + " " + self.where)
                if route:
                    route(self)
                else:
                    cloud.serve(self)

            do_GET = do_PUT = do_POST = do_HEAD = handle_any

            def answer(self, status, body=b"", **headers):
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name.replace("_", "-"), value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

        class Threads(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, *_):
                pass

        self.http = Threads(("127.0.0.1", 0), Handler)
        self.port = self.http.server_port
        self.address = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def put(self, bucket, key, data):
        self.objects[bucket, key] = data

    def take(self):
        """The requests since the last call: (method, path, headers, body, time)."""
        with self.lock:
            now, self.requests = self.requests, []
        return now

    # ---- who may read
    def signed_by(self, h, service):
        """The id whose secret has made the signature; None if it is wrong."""
        text = h.headers.get("Authorization", "")
        if not text.startswith("AWS4-HMAC-SHA256 "):
            return None
        parts = dict(p.strip().split("=", 1) for p in text.split(" ", 1)[1].split(","))
        who, day, region, of, _ = parts["Credential"].split("/")
        secret, token = self.keys.get(who, (None, None))
        if secret is None or of != service or h.headers.get("x-amz-security-token") != token:
            return None
        names = parts["SignedHeaders"].split(";")
        assert "host" in names and (token is None or "x-amz-security-token" in names)
        payload = h.headers.get("x-amz-content-sha256") or hashlib.sha256(h.body).hexdigest()
        query = "&".join(sorted(h.query.split("&"))) if h.query else ""
        canonical = "\n".join([h.command, h.where, query,
                               *[f"{n}:{' '.join(h.headers[n].split())}" for n in names], "", ";".join(names), payload])
        at = h.headers["x-amz-date"]
        text = "\n".join(["AWS4-HMAC-SHA256", at, f"{day}/{region}/{of}/aws4_request",
                          hashlib.sha256(canonical.encode()).hexdigest()])
        key = ("AWS4" + secret).encode()
        for part in (day, region, of, "aws4_request"):
            key = hmac.digest(key, part.encode(), "sha256")
        return who if hmac.new(key, text.encode(), "sha256").hexdigest() == parts["Signature"] else None

    def may_read(self, h):
        text = h.headers.get("Authorization")
        if text is None:
            return self.anonymous
        return text.removeprefix("Bearer ") in self.bearers if text.startswith("Bearer ") else bool(self.signed_by(h, "s3"))

    # ---- the store
    def fail(self, h, status, code, said="said so"):
        h.answer(status, f"<Error><Code>{code}</Code><Message>{said}</Message><RequestId>r1</RequestId></Error>".encode())

    def serve(self, h):
        if h.command == "PUT":  # tests fill it so: /BUCKET/KEY
            bucket, _, key = urllib.parse.unquote(h.where[1:]).partition("/")
            self.put(bucket, key, h.body)
            return h.answer(200)
        if not self.may_read(h):
            status, code = self.refused or (403, "InvalidAccessKeyId")
            # Some stores repeat what they were sent.
            return self.fail(h, status, code, f"no {h.headers.get('Authorization')} {h.headers.get('x-amz-security-token')}")
        bucket, _, key = urllib.parse.unquote(h.where[1:]).partition("/")
        if key:
            return self.send(h, bucket, key)
        return self.list(h, bucket)

    def send(self, h, bucket, key):
        data = self.objects.get((bucket, key))
        if data is None:
            return self.fail(h, 404, "NoSuchKey")
        more = {"Last_Modified": "Sat, 01 Jan 2022 00:00:00 GMT"}
        generation = str(int(hashlib.md5(data).hexdigest()[:12], 16))
        if self.etags:
            more["ETag"] = digest(data)
        if self.generations:
            more["x_goog_generation"] = generation
        wanted = h.headers.get("If-Match", more.get("ETag")), h.headers.get("x-goog-if-generation-match", generation)
        if wanted != (more.get("ETag"), generation):
            return self.fail(h, 412, "PreconditionFailed")
        text = h.headers.get("Range")
        if not text:
            return h.answer(200, data, **more)
        first, _, last = text.removeprefix("bytes=").partition("-")
        first, last = int(first), min(int(last) if last else len(data) - 1, len(data) - 1)
        if first >= len(data):
            return h.answer(416, Content_Range=f"bytes */{len(data)}")
        return h.answer(206, data[first:last + 1], Content_Range=f"bytes {first}-{last}/{len(data)}", **more)

    def list(self, h, bucket):
        prefix, after = h.words.get("prefix", ""), h.words.get("continuation-token", "")
        names = sorted((k for b, k in self.objects if b == bucket and k.startswith(prefix)), key=lambda k: k.encode())
        if h.words.get("delimiter"):
            names = [k for k in names if "/" not in k[len(prefix):]]
        names = [k for k in names if k > after]
        page = names[:min(self.page, int(h.words.get("max-keys", PAGE)))]
        rows = []
        for k in page:
            data = self.objects[bucket, k]
            rows.append(f"<Contents><Key>{urllib.parse.quote(k)}</Key>"
                        + (f"<Generation>{int(hashlib.md5(data).hexdigest()[:12], 16)}</Generation>" if self.generations else "")
                        + (f"<ETag>{xml.sax.saxutils.escape(digest(data))}</ETag>" if self.etags else "")
                        + f"<Size>{len(data)}</Size></Contents>")
        more = len(names) > len(page)
        h.answer(200, ("<ListBucketResult><EncodingType>url</EncodingType>" + "".join(rows)
                       + f"<IsTruncated>{'true' if more else 'false'}</IsTruncated>"
                       + (f"<NextContinuationToken>{xml.sax.saxutils.escape(page[-1])}</NextContinuationToken>" if more else "")
                       + "</ListBucketResult>").encode())
