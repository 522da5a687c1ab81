"""A package index of one folder on the loopback, behind a login, which answers as a proxy too. Prints its port.

usage: index.py FOLDER NAME PASSWORD
"""

import base64
import http.server
import pathlib
import sys
import urllib.parse

folder, login = pathlib.Path(sys.argv[1]), base64.b64encode(f"{sys.argv[2]}:{sys.argv[3]}".encode()).decode()


class Index(http.server.BaseHTTPRequestHandler):
    def answer(self, status: int, kind: str, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        if status == 401:
            self.send_header("WWW-Authenticate", 'Basic realm="index"')
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_GET(self) -> None:
        # What a client asks a proxy for is a whole URL.
        name = urllib.parse.unquote(urllib.parse.urlsplit(self.path).path)
        file = folder / pathlib.PurePosixPath(name).name
        if self.headers.get("Authorization") != f"Basic {login}":
            self.answer(401, "text/plain", b"who are you?")
        elif name == "/simple/gpucl/":
            links = "".join(f'<a href="/files/{wheel.name}">{wheel.name}</a>' for wheel in folder.glob("*.whl"))
            self.answer(200, "text/html", f"<!DOCTYPE html><html><body>{links}</body></html>".encode())
        elif name.startswith("/files/") and file.is_file():
            self.answer(200, "application/octet-stream", file.read_bytes())
        else:
            self.answer(404, "text/plain", b"there is no such file")

    do_HEAD = do_GET

    def log_message(self, *_: object) -> None:
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Index)
print(server.server_port, flush=True)
server.serve_forever()
