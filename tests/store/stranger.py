"""What somebody without keys and certificate gets at each of the eight ports of a store: prints a line per port, and fails if it is more than a refusal."""
import socket
import ssl
import subprocess
import sys

first = int(sys.argv[1])
LIMIT = 3


def send(port, data, context=None):
    """Sends bytes and returns what comes, or why nothing did."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=LIMIT) as plain:
            stream = context.wrap_socket(plain) if context else plain
            stream.sendall(data)
            came = b""
            while len(came) < 4096:
                part = stream.recv(4096)
                if not part:
                    break
                came += part
            return came
    except (ssl.SSLError, ConnectionError, TimeoutError, OSError) as error:
        return f"{type(error).__name__}: {error}"


def get(path, method="GET", body=b""):
    return f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def refusal(came):
    """Whether it is a refusal."""
    if isinstance(came, str) or not came:
        return True
    status = came.split(b"\r\n")[0].split(b" ")
    return came.startswith(b"HTTP/1") and status[1] in (b"400", b"401", b"403", b"404", b"405")


def own_pair():
    """A certificate of one's own."""
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "key.pem", "-out", "cert.pem", "-days",
                    "2", "-subj", "/CN=gpucl object store"], check=True, capture_output=True)


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\0\0\0\4\0\0\0\0\0"
PATHS = ["/", "/ray", "/ray?list-type=2", "/dir/assign", "/dir/status", "/cluster/status", "/vol/status", "/buckets/", "/buckets/ray/?pretty=y", "/1,01", "/metrics",
         "/debug/pprof/", "/ui/index.html", "/stats/health", "/?Action=ListUsers&Version=2010-05-08"]
own_pair()
bad = []
for port in range(first, first + 8):
    seen = set()
    for named in (None, "none", "own"):
        context = None
        if named:
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            if named == "own":
                context.load_cert_chain("cert.pem", "key.pem")
        requests = [get(path) for path in PATHS] + [get("/ray/x", "PUT", b"x"), get("/submit", "POST", b"x"), get("/buckets/ray/x", "POST", b"x"), PREFACE]
        for request in requests:
            came = send(port, request, context)
            seen.add((named or "plain", str(came[:60])))
            if not refusal(came):
                bad.append((port, named, request[:60], came[:200]))
    print("port", port - first, "refuses", len(seen), "kinds:", sorted(seen)[:3])
assert not bad, bad
