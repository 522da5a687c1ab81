"""scan: what is there of the processes and files below a folder, and what of it answers another user of the machine.
usage: scan.py find FOLDER PID...     as the owner: JSON of ports, sockets and files
       scan.py try                    as the other user, with that JSON on stdin: a JSON object per line, one for each thing that was tried
It takes the standard library only, and sends to the loopback addresses that it is given."""
import json
import os
import re
import socket
import stat
import struct
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

LIMIT, MOST = 2.0, 65536
# Sent with every request: what the other one has, in lower case.
HEADERS = []
PAGES = ["/", "/metrics", "/api/version", "/nodes?view=summary", "/api/jobs/", "/api/cluster_status", "/api/v0/actors", "/api/serve/applications/",
         "/api/prometheus/sd", "/logical/actors", "/log_proxy?url=x", "/logs", "/api/gcs_healthz", "/api/healthz", "/api/local_raylet_healthz",
         "/api/authentication_mode", "/get_runtime_envs_info", "/control/snapshot", "/control/keys", "/control/instances", "/control/credentials",
         "/api/v1/instances", "/api/v1/ssh-keys", "/identity", "/identity/v3", "/identity/v3/auth/catalog", "/reservation/v1/leases", "/compute/v2.1/servers",
         "/image/v2/images", "/network/v2.0/networks", "/healthz", "/status", "/ray?list-type=2", "/dir/assign", "/dir/status", "/cluster/status",
         "/buckets/", "/ui/index.html", "/health", "/version", "/api/3.0/mlflow/server-info", "/api/2.0/mlflow/experiments/get?experiment_id=0",
         "/static-files/index.html", "/signup", "/graphql", "/-/routes", "/-/healthz", "/app"]
POSTS = [("/api/jobs/", {"entrypoint": "id"}), ("/control/advance", {"seconds": 1}), ("/control/foreign", {"count": 1}),
         ("/api/v1/ssh-keys", {"name": "mine", "public_key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAICN+lJwsONkwrdsSnQsu1ydUkIuIg5oOC+Eslvmtt60T me"}),
         ("/api/v1/instance-operations/launch", {"region_name": "us-east-1", "instance_type_name": "gpu_1x_a10", "ssh_key_names": ["mine"]}),
         ("/get_or_create_runtime_env", {}), ("/identity/v3/auth/tokens", {"auth": {"identity": {"methods": ["password"]}}})]
CALLS = ["/grpc.health.v1.Health/Check", "/ray.rpc.NodeInfoGcsService/GetAllNodeInfo", "/ray.rpc.NodeInfoGcsService/CheckAlive",
         "/ray.rpc.JobInfoGcsService/GetAllJobInfo", "/ray.rpc.ActorInfoGcsService/GetAllActorInfo", "/ray.rpc.InternalKVGcsService/InternalKVKeys",
         "/ray.rpc.NodeResourceInfoGcsService/GetAllResourceUsage", "/ray.rpc.autoscaler.AutoscalerStateService/GetClusterStatus",
         "/ray.rpc.NodeManagerService/GetNodeStats", "/ray.rpc.NodeManagerService/GetSystemConfig", "/ray.rpc.NodeManagerService/RequestWorkerLease",
         "/ray.rpc.CoreWorkerService/GetCoreWorkerStats", "/ray.rpc.CoreWorkerService/PushTask", "/ray.rpc.ObjectManagerService/Pull",
         "/ray.rpc.ReporterService/GetTraceback", "/ray.rpc.LogService/ListLogs", "/ray.rpc.RayletDriver/ClusterInfo",
         "/ray.rpc.RuntimeEnvService/GetRuntimeEnvsInfo"]


def read(path):
    try:
        with open(path, "rb") as f:
            return f.read().decode(errors="replace")
    except OSError:
        return ""


def parent(pid):
    text = read("/proc/%d/stat" % pid)
    return int(text[text.rfind(")") + 1:].split()[1]) if text else 0


def family(folder, begun):
    """Who has the folder in environment or arguments, what descends from it, and what was begun by hand."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    ours = {p for p in pids if folder in read("/proc/%d/environ" % p) or folder in read("/proc/%d/cmdline" % p)} | set(begun)
    grown = True
    while grown:
        more = {p for p in pids if p not in ours and parent(p) in ours}
        ours |= more
        grown = bool(more)
    return ours - {os.getpid()}


def name_of(pid):
    # A raylet's arguments contain the commands of other programs: only the start of a command line identifies it.
    command = " ".join(read("/proc/%d/cmdline" % pid).split("\0")[:4]).strip()
    known = [("gpucl sandbox lambda", r"gpucl sandbox lambda"), ("gpucl sandbox chameleon", r"gpucl sandbox chameleon"), ("gpucl dashboard", r"gpucl dashboard"),
             ("supervisor", r"/host\.py"), ("reaper", r"/reaper\.py"), ("object store", r"/bin/weed "), ("MLflow", r"/environments/mlflow-"), ("proxy of Serve", r"ray::.*ProxyActor|ray::SERVE_PROXY"), ("host of a stand-in", r"sshd"), ("GCS", r"gcs_server"), ("raylet", r"raylet/raylet"), ("runtime environment agent", r"runtime_env/agent|RuntimeEnvAgent"),
             ("dashboard agent", r"dashboard/agent\.py|DashboardAgent"), ("dashboard", r"dashboard/dashboard\.py|ray::Dashboard|dashboard-"),
             ("Ray client's server", r"util\.client\.server"), ("autoscaler", r"autoscaler|monitor\.py"), ("log monitor", r"log_monitor"),
             ("worker process", r"default_worker|ray::"), ("job", r"python -c|import ray")]
    for name, pattern in known:
        if re.search(pattern, command):
            return name
    return command[:80]


def address(text, family):
    ip, port = text.split(":")
    raw = bytes.fromhex(ip)
    # Words of four bytes, each in the order of this machine.
    raw = b"".join(raw[at:at + 4][::-1] for at in range(0, len(raw), 4)) if sys.byteorder == "little" else raw
    return socket.inet_ntop(family, raw), int(port, 16)


def find(folder, begun):
    ours = family(folder, begun)
    holders, files = {}, set()
    # The test inherited its own open files from its caller.
    inherited = {os.readlink("/proc/%d/fd/%s" % (os.getppid(), fd)) for fd in os.listdir("/proc/%d/fd" % os.getppid())}
    texts = " ".join(read("/proc/%d/cmdline" % pid) + read("/proc/%d/environ" % pid) for pid in ours)
    for pid in ours:
        fds = "/proc/%d/fd" % pid
        for fd in os.listdir(fds) if os.path.isdir(fds) else []:
            try:
                to = os.readlink(os.path.join(fds, fd))
            except OSError:
                continue
            if to.startswith("socket:["):
                holders.setdefault(to[8:-1], pid)
            elif to not in inherited and to.startswith(("/tmp/", "/dev/shm/", "/run/", folder)) and os.path.exists(to):
                files.add(to)
    ports = []
    for kind, family_ in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6), ("udp", socket.AF_INET), ("udp6", socket.AF_INET6)):
        for line in read("/proc/net/" + kind).splitlines()[1:]:
            words = line.split()
            # 0A listens; a UDP socket that is bound and not connected is 07.
            if words[3] == ("0A" if kind.startswith("tcp") else "07") and words[9] in holders:
                ip, port = address(words[1], family_)
                ports.append({"kind": kind[:3], "ip": ip, "port": port, "pid": holders[words[9]], "of": name_of(holders[words[9]])})
    sockets = []
    for line in read("/proc/net/unix").splitlines()[1:]:
        words = line.split(None, 7)
        if len(words) == 8 and words[6] in holders:
            sockets.append({"path": words[7], "of": name_of(holders[words[6]])})
    for top in [folder] + ["/tmp/" + n for n in os.listdir("/tmp") if n.startswith("gpucl-") and "/tmp/" + n in texts]:
        for at, folders, names in os.walk(top):
            files.add(at)
            files.update(os.path.join(at, name) for name in folders + names)
    unique = {json.dumps(s, sort_keys=True) for s in sockets}
    return {"ports": sorted(ports, key=lambda p: (p["of"], p["port"])), "sockets": [json.loads(s) for s in sorted(unique)], "files": sorted(files),
            "processes": sorted({"%s" % name_of(p) for p in ours})}


# What the other user does from here on.


def exchange(ip, port, data):
    """What came; None when it was refused."""
    family_ = socket.AF_INET6 if ":" in ip else socket.AF_INET
    ip = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(ip, ip)
    came, s = b"", socket.socket(family_, socket.SOCK_STREAM)
    s.settimeout(LIMIT)
    try:
        s.connect((ip, port))
        if data:
            s.sendall(data)
        while len(came) < MOST:
            part = s.recv(MOST)
            if not part:
                break
            came += part
            if done(came):
                break
    except ConnectionRefusedError:
        return None
    except OSError:
        pass
    finally:
        s.close()
    return came


def done(came):
    if is_http2(came):
        # The stream has ended, was reset, or all of the connection is over.
        return any((kind in (0, 1) and flags & 1) or kind in (3, 7) for kind, flags, _ in frames(came))
    head, found, body = came.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
    return bool(came.startswith(b"HTTP/1") and found and length and len(body) >= int(length.group(1)))


def http(method, path, ip, port, body=b""):
    host = "[%s]:%d" % (ip, port) if ":" in ip else "%s:%d" % (ip, port)
    head = "%s %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\nContent-Type: application/json\r\nContent-Length: %d\r\n" % (method, path, host, len(body))
    return (head + "".join("%s: %s\r\n" % pair for pair in HEADERS) + "\r\n").encode() + body


def frame(kind, flags, stream, body):
    return struct.pack(">I", len(body))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + body


def call(path, host):
    """The preface of HTTP/2, and a call with an empty message."""
    def pair(name, value):
        return b"\0" + bytes([len(name)]) + name + (bytes([len(value)]) if len(value) < 127 else b"\x7f" + bytes([len(value) - 127])) + value
    headers = b"".join(pair(n.encode(), v.encode()) for n, v in [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", host),
                                                                ("content-type", "application/grpc"), ("te", "trailers"), *HEADERS])
    return b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4, 0, 0, b"") + frame(1, 4, 1, headers) + frame(0, 1, 1, b"\0\0\0\0\0")


def frames(came):
    at = 0
    while at + 9 <= len(came):
        size = int.from_bytes(came[at:at + 3], "big")
        yield came[at + 3], came[at + 4], came[at + 9:at + 9 + size]
        at += 9 + size


def is_http2(came):
    # The first frame of a server is its settings, of stream 0.
    return len(came) >= 9 and came[3] == 4 and came[5:9] == b"\0\0\0\0" and int.from_bytes(came[:3], "big") < 200


def described(came):
    """What came, in a line, and whether it is more than a refusal."""
    if came is None:
        return "connection refused", False
    if not came:
        return "closed or silent, without a byte", False
    if is_http2(came):
        kinds = [kind for kind, _, _ in frames(came)]
        data = sum(len(body) for kind, _, body in frames(came) if kind == 0)
        page = next((http2_status(body) for kind, _, body in frames(came) if kind == 1), 200)
        if page != 200:
            return "HTTP/2 %d, %d bytes" % (page, data), not 400 <= page < 500
        status = re.search(rb"grpc-status.(\d+)", came)
        status = " grpc-status " + status.group(1).decode() if status else ""
        # A call that is granted has a message; one that is refused has headers only.
        return "HTTP/2 frames %s%s%s" % (kinds, status, ", %d bytes of a message" % data if data else ", no message"), data > 0
    head, _, body = came.partition(b"\r\n\r\n")
    line = head.split(b"\r\n")[0].decode(errors="replace")
    status = re.match(r"HTTP/1\.[01] (\d{3})", line)
    if status:
        text = "%s | %s" % (line, body[:60].decode(errors="replace").replace("\n", " "))
        return text, not 400 <= int(status.group(1)) < 500
    error = re.search(rb"<p>Error code: (\d{3})</p>", came)
    if error:
        # Python's own server, to a request of no version that it knows.
        return "a page: error %s" % error.group(1).decode(), not 400 <= int(error.group(1)) < 506
    return repr(came[:60]), True


def http2_status(block):
    """The status of an answer: one of a table, or three digits by themselves or in Huffman's code."""
    known = {0x88: 200, 0x89: 204, 0x8a: 206, 0x8b: 304, 0x8c: 400, 0x8d: 404, 0x8e: 500}
    while block and block[0] & 0xe0 == 0x20:
        # The size of a table that we have not.
        block = block[1:]
    if block[0] in known:
        return known[block[0]]
    text = block[2:2 + (block[1] & 0x7f)]
    if block[1] & 0x80:
        bits, digits = "".join("{:08b}".format(b) for b in text), ""
        while len(digits) < 3:
            size = 5 if bits[:5] < "00011" else 6
            digits, bits = digits + str(int(bits[:5], 2) if size == 5 else int(bits[:6], 2) - 22), bits[size:]
        return int(digits)
    return int(text)


def try_port(port):
    ip, number = port["ip"], port["port"]
    if port["kind"] == "udp":
        return [{"what": "udp", "sent": "nothing", "came": "a port of UDP is bound", "answers": True, **port}]
    sent = [("nothing", b"")] + [("GET " + path, http("GET", path, ip, number)) for path in PAGES]
    sent += [("POST " + path, http("POST", path, ip, number, json.dumps(body).encode())) for path, body in POSTS]
    first = exchange(ip, number, b"")
    if first and first.startswith(b"SSH-2.0-"):
        # It says so to whoever connects, whatever is sent.
        return [{"what": "port", "sent": "SSH", "came": repr(first[:60]), "answers": True, **port}]
    results, plain = [], exchange(ip, number, sent[1][1])
    if plain is not None and (is_http2(plain) or not plain.startswith(b"HTTP/1")):
        sent = sent[:3] + [("gRPC " + path, call(path, "%s:%d" % (ip, number))) for path in CALLS]
    elif plain and plain.startswith(b"HTTP/1"):
        # aiohttp and hyper have no HTTP/2; one call shows it.
        sent.append(("gRPC " + CALLS[0], call(CALLS[0], "%s:%d" % (ip, number))))
    for what, data in sent:
        came, answers = described(exchange(ip, number, data))
        if answers and "| # HELP " in came:
            # A server of metrics gives them whatever page it is asked for.
            what = "metrics as " + what
        results.append({"what": "port", "sent": what, "came": came, "answers": answers, **port})
    return results


def try_socket(one):
    path = one["path"]
    s = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    s.settimeout(LIMIT)
    try:
        s.connect("\0" + path[1:] if path.startswith("@") else path)
        came, answers = "connected", True
    except OSError as e:
        came, answers = e.strerror or str(e), False
    finally:
        s.close()
    return {"what": "socket", "sent": "connect " + path, "came": came, "answers": answers, **one}


def try_file(path):
    found = []
    try:
        seen = os.stat(path, follow_symlinks=False)
    except FileNotFoundError:
        return None
    except OSError as e:
        return {"what": "file", "sent": path, "came": e.strerror, "answers": False, "of": "a file"}
    if stat.S_ISDIR(seen.st_mode):
        if os.access(path, os.W_OK):
            found.append("a folder that can be written into")
        if os.access(path, os.R_OK):
            found.append("a folder that can be listed")
    elif stat.S_ISREG(seen.st_mode):
        for flags, what in ((os.O_RDONLY, "read"), (os.O_WRONLY, "written")):
            try:
                os.close(os.open(path, flags | os.O_NOFOLLOW))
                found.append("a file that can be " + what)
            except OSError:
                pass
    # It may be seen that something has this name: that is what the mode of the folder above says.
    return {"what": "file", "sent": path, "came": ", ".join(found) or "permission denied", "answers": bool(found), "of": "a file"}


def try_all(found):
    lock = threading.Lock()

    def say(results):
        with lock:
            for one in results:
                print(json.dumps(one), flush=True)
    with ThreadPoolExecutor(24) as pool:
        for results in pool.map(try_port, found["ports"]):
            say(results)
    say([try_socket(one) for one in found["sockets"]])
    say([one for one in map(try_file, found["files"]) if one])
    say([{"what": "who", "sent": "", "came": "%d:%d %s" % (os.geteuid(), os.getegid(), os.getgroups()), "answers": False, "of": "the scan"}])


if __name__ == "__main__":
    if sys.argv[1] == "find":
        print(json.dumps(find(sys.argv[2], [int(pid) for pid in sys.argv[3:]])))
    else:
        try_all(json.load(sys.stdin))
