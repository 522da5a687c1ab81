"""front: a proxy behind which hosts of Chameleon are stand-ins on this machine: encrypted, with Keystone at /v3.
usage: front PEM HOST=PORT...
Prints its port, then each host that somebody asks for. Ends with its stdin."""
import http.client
import os
import socketserver
import ssl
import sys
import threading

PORTS = dict(pair.split("=") for pair in sys.argv[2:])
CONTEXT = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
CONTEXT.load_cert_chain(sys.argv[1])
SAYING = threading.Lock()
HOP = {"connection", "host", "content-length", "transfer-encoding", "keep-alive"}


def read_head(stream):
    first = stream.readline(8000).decode("latin-1").split()
    headers = {}
    while True:
        line = stream.readline(8000).decode("latin-1").strip()
        if not line:
            return first, headers
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()


class Front(socketserver.StreamRequestHandler):
    def handle(self):
        first, _ = read_head(self.rfile)
        if len(first) < 2:
            return
        host = first[1].rsplit(":", 1)[0]
        with SAYING:
            print(host, flush=True)
        if first[0] != "CONNECT" or host not in PORTS:
            self.wfile.write(b"HTTP/1.1 403 Forbidden\r\n\r\n")
            return
        self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
        try:
            with CONTEXT.wrap_socket(self.connection, server_side=True) as inner, inner.makefile("rwb") as stream:
                self.forward(stream, int(PORTS[host]))
        except OSError:
            pass

    def forward(self, stream, port):
        """One request for each connection."""
        first, headers = read_head(stream)
        if len(first) < 2:
            return
        body = stream.read(int(headers.get("content-length", "0")))
        path = "/identity" + first[1] if first[1].startswith("/v3") else first[1]
        there = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
        there.request(first[0], path, body, {n: v for n, v in headers.items() if n not in HOP})
        answer = there.getresponse()
        data = answer.read()
        lines = ["HTTP/1.1 %d %s" % (answer.status, answer.reason)]
        lines += ["%s: %s" % (n, v) for n, v in answer.getheaders() if n.lower() not in HOP]
        lines += ["content-length: %d" % len(data), "connection: close", "", ""]
        stream.write("\r\n".join(lines).encode("latin-1") + data)
        stream.flush()


class Server(socketserver.ThreadingMixIn, socketserver.TCPServer):
    daemon_threads = True


with Server(("127.0.0.1", 0), Front) as server:
    print(server.server_address[1], flush=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()
    os._exit(0)
