"""Passes HTTP requests on to llama.cpp's server, with one fault, until its parent has ended. Arguments: ADDRESS FAULT.

Faults of `/completion`: `redirect` (to a path that would answer), `busy` (every second request), `quoted` (an error with
the request's credentials), `counts`, `cut` (no last event) and `error` (as the second event). Of `/metrics`:
`late`.
"""

import itertools
import json
import os
import sys
import threading
import time
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

address, fault = sys.argv[1], sys.argv[2]
parent = os.getppid()
count = itertools.count()


def spoiled(event):
    """Returns the last event, or the answer, with the fault."""
    if fault == "counts":
        return event | {"tokens_evaluated": event["tokens_evaluated"] - 1}
    return event


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"

    def log_message(self, *_):
        pass

    def answer(self, status, data, headers=()):
        self.send_response(status)
        for name, value in headers:
            self.send_header(name, value)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def refuse(self):
        """Answers with a fault instead of the engine. Returns whether it did."""
        if fault == "redirect" and self.path == "/completion":
            self.answer(307, b"", [("location", f"http://{self.headers['host']}/other/completion")])
        elif fault == "busy" and self.path == "/completion" and next(count) % 2 == 1:
            self.answer(503, b"busy")
        elif fault == "quoted" and self.path == "/completion":
            self.answer(400, json.dumps({"error": {"message": f"not with {self.headers['authorization']}"}}).encode())
        else:
            return False
        return True

    def handle_request(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        if self.refuse():
            return
        if fault == "late" and self.path == "/metrics":
            time.sleep(5)
        engine = HTTPConnection(address)
        engine.request(self.command, self.path.removeprefix("/other"), body, {"content-type": "application/json"})
        response = engine.getresponse()
        self.send_response(response.status)
        self.send_header("content-type", response.headers["content-type"])
        self.end_headers()
        if "event-stream" in response.headers["content-type"]:
            self.pass_events(response)
        elif self.path == "/completion" and response.status == 200:
            self.wfile.write(json.dumps(spoiled(json.load(response))).encode())
        else:
            self.wfile.write(response.read())

    def pass_events(self, response):
        events = (json.loads(line.removeprefix(b"data: ")) for line in response if line.startswith(b"data: "))
        for at, event in enumerate(events):
            if event.get("stop"):
                event = spoiled(event)
            if fault == "error" and at == 1:
                event = {"error": {"code": 500, "message": "it failed"}}
            if not (fault == "cut" and event.get("stop")):
                self.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\n")
                self.wfile.flush()

    do_GET = do_POST = handle_request


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
print("faulty-engine listening on", f"127.0.0.1:{server.server_port}", flush=True)
while os.getppid() == parent:
    time.sleep(0.5)
