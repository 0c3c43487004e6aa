# SPDX-License-Identifier: Apache-2.0
"""A server between the program and a store, which counts requests, fails some, and loses answers."""
import http.client
import threading
import urllib.parse

import kit


class Forwarder:
    """Passes requests on, unless `hook` (handler) returns True: it has called handler.answer(), or answers nothing."""

    def __init__(self, port):
        self.requests, self.hook, self.lock = [], None, threading.Lock()
        forwarder = self

        class Handler(kit.QuietHandler):
            def forward(self):
                to = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
                to.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
                for name, value in self.headers.items():
                    if name.lower() != "expect":
                        to.putheader(name, value)
                to.endheaders(self.body)
                answer = to.getresponse()
                body = answer.read()
                to.close()
                return answer, body

            def serve(self):
                self.body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                with forwarder.lock:
                    forwarder.requests.append((self.command, self.path, len(self.body)))
                if forwarder.hook and forwarder.hook(self):
                    return
                answer, body = self.forward()
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name.lower() not in ("transfer-encoding", "content-length", "connection"):
                        self.send_header(name, value)
                length = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(body))
                self.send_header("Content-Length", length or "0")
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = serve

            def answer(self, status, body=b"", **headers):
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name.replace("_", "-"), value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
                return True

            def hang_up(self):
                self.close_connection = True
                return True

        self.http = kit.serve(Handler)
        self.endpoint = f"http://127.0.0.1:{self.http.server_port}"

    def take(self):
        with self.lock:
            now, self.requests = self.requests, []
        return now


def kind(h):
    """What a request is, in a word."""
    query = urllib.parse.urlparse(h.path).query
    if h.command == "POST":
        return "begin" if "uploads" in query else "complete"
    if h.command == "PUT":
        return "part" if "partNumber" in query else "put"
    if h.command == "DELETE":
        return "abort" if "uploadId" in query else "delete"
    return "head" if h.command == "HEAD" else "list" if "list-type" in query else "get"
