"""A stand-in of Ray for tests: the part of its HTTP API and the one command that the guard uses.

    python3 ray.py PORT-FILE            prints its port to the file, and serves until it is ended
    python3 ray.py drain URL WORDS…     is `ray` with these words, of which it knows `drain-node`

`POST /-/control` sets nodes, jobs and what is refused; `GET /-/seen` says what it was asked for. Without the token it
answers 401. A job that is stopped ends, unless it is named in `ignoring`: that one takes `ends_s` seconds.
"""

import json
import os
import socketserver
import sys
import threading
import time
import urllib.request
from http.server import BaseHTTPRequestHandler

TOKEN = "the-token"
LOCK = threading.RLock()
STATE = {"nodes": {"head": "ALIVE", "w0": "ALIVE", "w1": "ALIVE"}, "jobs": {}, "refuse": False, "ignoring": {}, "dies": True}
SEEN = {"drained": [], "stopped": []}
ENDS = {}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def answer(self, status, value):
        body = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.serve()

    def do_POST(self):
        self.serve()

    def serve(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        with LOCK:
            if self.path.startswith("/-/"):
                return self.control(body)
            if self.headers.get("Authorization") != "Bearer " + TOKEN:
                return self.answer(401, "no token")
            if STATE["refuse"]:
                return self.answer(503, "not now")
            for job, when in list(ENDS.items()):
                if time.monotonic() >= when:
                    STATE["jobs"][job] = "STOPPED"
                    del ENDS[job]
            if self.path.startswith("/api/v0/nodes"):
                nodes = [{"node_id": name, "state": state, "is_head_node": name == "head"} for name, state in STATE["nodes"].items()]
                return self.answer(200, {"result": True, "data": {"result": {"result": nodes}}})
            if self.path == "/api/jobs/":
                return self.answer(200, [{"submission_id": job, "status": status} for job, status in STATE["jobs"].items()])
            if self.path.startswith("/api/jobs/") and self.path.endswith("/stop"):
                job = self.path.split("/")[3]
                SEEN["stopped"].append(job)
                ENDS[job] = time.monotonic() + STATE["ignoring"].get(job, 0)
                return self.answer(200, {"stopped": True})
            return self.answer(404, "what?")

    def control(self, body):
        if self.path == "/-/drained":
            given = json.loads(body)
            SEEN["drained"].append(given)
            if STATE["dies"]:
                STATE["nodes"][given["node"]] = "DEAD"
            return self.answer(200, {})
        if self.path == "/-/control":
            STATE.update(json.loads(body))
            return self.answer(200, {})
        return self.answer(200, {**STATE, **SEEN})


def drain(url, words):
    """What `ray drain-node` does with these words."""
    assert words[0] == "drain-node", words
    given = dict(zip(words[1::2], words[2::2]))
    assert given["--reason"] == "DRAIN_NODE_REASON_PREEMPTION" and given["--address"], given
    with open(os.environ["RAY_AUTH_TOKEN_PATH"]) as file:
        assert os.environ["RAY_AUTH_MODE"] == "token" and file.read().strip() == TOKEN
    value = {"node": given["--node-id"], "left": int(given["--deadline-remaining-seconds"]), "why": given["--reason-message"]}
    urllib.request.urlopen(urllib.request.Request(url + "/-/drained", json.dumps(value).encode())).read()


def main():
    if sys.argv[1] == "drain":
        return drain(sys.argv[2], sys.argv[3:])
    socketserver.ThreadingTCPServer.daemon_threads = True
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler)
    with open(sys.argv[1] + ".new", "w") as file:
        file.write(str(server.server_address[1]))
    os.replace(sys.argv[1] + ".new", sys.argv[1])
    server.serve_forever()


if __name__ == "__main__":
    main()
