# SPDX-License-Identifier: Apache-2.0
"""A server between the program and a store, which counts requests, fails some, and loses answers."""
import http.client
import http.server
import threading
import urllib.parse


class Forwarder:
    """Passes requests on; `hook` (handler, send) -> True: it has answered, by send() or not at all."""

    def __init__(self, port):
        self.requests, self.hook, self.lock = [], None, threading.Lock()
        forwarder = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

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

            def answer(self, status, body=b""):
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)
                return True

            def hang_up(self):
                self.close_connection = True
                return True

        class Threads(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 128

            def handle_error(self, *_):
                pass

        self.http = Threads(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.http.serve_forever, daemon=True).start()
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
