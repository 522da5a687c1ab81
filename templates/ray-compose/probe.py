"""Checks a cluster from inside its containers. Standard library only, except `client`, which needs Ray.

    python3 probe.py gpu JSON               uses every GPU of this container through the driver's own library
    python3 probe.py client JSON            joins the cluster as a client, and runs a task on each worker
    python3 probe.py cluster JSON           nodes, tokens, buckets
    python3 probe.py services JSON          services with passwords, from a container that no job shares
    python3 probe.py wait JSON              waits until the services answer, and makes the buckets

Except `wait`, they print a line for each check, and end with 0 even when a check failed:

    ::check {"check": "gpu", "target": "worker-0", "ok": true, "saw": "...", "gpus": ["GPU-..."]}
"""

import configparser
import ctypes
import datetime
import glob
import hashlib
import hmac
import json
import os
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request

SECRETS = os.environ.get("GPUCL_SECRETS", "/run/gpucl/secrets")
OPENER = urllib.request.build_opener(urllib.request.ProxyHandler({}))
LOCK = threading.Lock()
# How long Ray may list a node as alive that was killed, in seconds: 15, and more where packets to it get no answer.
DEAD_IN_S = 40


def say(check, target, ok, saw, gpus=(), **more):
    """Prints the result of a check."""
    line = {"check": check, "target": target, "ok": bool(ok), "saw": " ".join(str(saw).split())[:600], "gpus": list(gpus), **more}
    with LOCK:
        sys.stdout.write(f"::check {json.dumps(line)}\n")
        sys.stdout.flush()


def read(path):
    """Returns a file's text, stripped."""
    with open(path, encoding="utf-8") as file:
        return file.read().strip()


class Unredirected(urllib.request.HTTPRedirectHandler):
    """Follows no redirect: it would take a login to another server."""

    def redirect_request(self, *_):
        return None


DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}), Unredirected)


def request(url, headers=None, method="GET", body=None, timeout=10, opener=OPENER):
    """Sends an HTTP request; returns status and body, status 0 when nothing answered."""
    made = urllib.request.Request(url, data=body, method=method, headers=headers or {})
    try:
        with opener.open(made, timeout=timeout) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()
    except (OSError, ValueError) as error:
        return 0, str(getattr(error, "reason", error)).encode()


def as_json(body):
    """Parses the body as JSON; None if it is not."""
    try:
        return json.loads(body)
    except ValueError:
        return None


# --- GPUs -------------------------------------------------------------------------------------------------------------


class Refused(Exception):
    """A failed call of the driver's library, as text. `is_full`: since others use the GPU or its memory."""

    def __init__(self, text, code=0):
        super().__init__(text)
        # Out of memory, in CUDA and HIP.
        self.code, self.is_full = code, code == 2


class Driver:
    """A driver's library: a call that does not return 0 raises `Refused` with the error's name."""

    def __init__(self, names, error_name):
        self.library, why = None, ""
        for name in names:
            try:
                self.library = ctypes.CDLL(name)
                break
            except OSError as error:
                why = why or str(error)
        if self.library is None:
            raise Refused(f"the driver's library cannot be loaded: {why}")
        self.error_name = error_name

    def has(self, name):
        return hasattr(self.library, name)

    def __call__(self, name, *arguments):
        function = getattr(self.library, name)
        function.restype = ctypes.c_int
        code = function(*arguments)
        if code:
            raise Refused(f"{name}: {self.error_name(self.library, code)} ({code})", code)


def cuda_error(library, code):
    text = ctypes.c_char_p()
    known = {802: "CUDA_ERROR_SYSTEM_NOT_READY", 803: "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH", 100: "CUDA_ERROR_NO_DEVICE"}
    try:
        if library.cuGetErrorName(code, ctypes.byref(text)) == 0 and text.value:
            known[code] = text.value.decode()
    except AttributeError:
        pass
    more = " - is the fabric manager running, with the driver's exact version?" if code == 802 else ""
    return known.get(code, "error") + more


def hip_error(library, code):
    try:
        library.hipGetErrorName.restype = ctypes.c_char_p
        return (library.hipGetErrorName(ctypes.c_int(code)) or b"error").decode()
    except AttributeError:
        return "error"


def has_open(pid, device):
    """Whether a process has this device open; False for one that has ended, or is another user's."""
    try:
        entries = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return False
    for entry in entries:
        try:
            if os.readlink(f"/proc/{pid}/fd/{entry}") == device:
                return True
        except OSError:  # closed meanwhile
            pass
    return False


def users(device):
    """Returns the other processes here that have this device open; in a container, they are the worker's own."""
    pids = (int(name) for name in os.listdir("/proc") if name.isdigit())
    return sorted(pid for pid in pids if pid != os.getpid() and has_open(pid, device))


def in_use(error, gpu, device, is_only):
    """Says which of the worker's own processes use the GPU, if they leave no room for a check. Any other error is raised.

    A process that computes has the device open, but not which of several GPUs it uses is known, so only a worker's only GPU
    is taken for in use by them."""
    pids = users(device) if error.is_full and is_only else []
    if pids:
        return f"its memory is in use by this worker's own processes {', '.join(map(str, pids))}"
    more = "; processes that are not this worker's use it: see nvidia-smi or rocm-smi on the host" if error.is_full and is_only else ""
    raise Refused(f"{gpu}: {error}{more}") from error


def use_nvidia():
    """Allocates memory, copies there and back, and compares, on each GPU of CUDA. Returns the id and name of each, and who
    uses it if there was no room."""
    cuda = Driver(["libcuda.so.1", "libcuda.so"], cuda_error)
    cuda("cuInit", ctypes.c_uint(0))
    count = ctypes.c_int()
    cuda("cuDeviceGetCount", ctypes.byref(count))
    seen = []
    for index in range(count.value):
        device = ctypes.c_int()
        cuda("cuDeviceGet", ctypes.byref(device), ctypes.c_int(index))
        raw = (ctypes.c_ubyte * 16)()
        cuda("cuDeviceGetUuid_v2" if cuda.has("cuDeviceGetUuid_v2") else "cuDeviceGetUuid", ctypes.byref(raw), device)
        name = ctypes.create_string_buffer(256)
        cuda("cuDeviceGetName", name, ctypes.c_int(256), device)
        text = bytes(raw).hex()
        uuid = "GPU-" + "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
        context, memory = ctypes.c_void_p(), ctypes.c_uint64()
        size = 1 << 20
        sent, back = os.urandom(size), ctypes.create_string_buffer(size)
        try:
            cuda("cuCtxCreate_v2", ctypes.byref(context), ctypes.c_uint(0), device)
            cuda("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(size))
            cuda("cuMemcpyHtoD_v2", memory, sent, ctypes.c_size_t(size))
            cuda("cuMemcpyDtoH_v2", back, memory, ctypes.c_size_t(size))
            if back.raw != sent:
                raise Refused("what came back from its memory is not what was sent")
            cuda("cuMemFree_v2", memory)
            cuda("cuCtxDestroy_v2", context)
            busy = ""
        except Refused as error:
            # In the mode 3 only one process may use the GPU, and 46 says that another does; else it is broken.
            mode = ctypes.c_int()
            if error.code == 46 and cuda.has("cuDeviceGetAttribute"):
                cuda("cuDeviceGetAttribute", ctypes.byref(mode), ctypes.c_int(20), device)
                error.is_full = mode.value == 3
            busy = in_use(error, uuid, "/dev/nvidia-uvm", count.value == 1)
        seen.append((uuid, name.value.decode(errors="replace"), busy))
    return seen


def use_amd():
    """Does the same through HIP; a GPU's id is its PCI address."""
    places = ["libamdhip64.so", *sorted(glob.glob("/opt/rocm*/lib/libamdhip64.so*") + glob.glob("/opt/rocm/*/lib/libamdhip64.so*"))]
    hip = Driver([*places, "libamdhip64.so.7", "libamdhip64.so.6"], hip_error)
    hip("hipInit", ctypes.c_uint(0))
    count = ctypes.c_int()
    hip("hipGetDeviceCount", ctypes.byref(count))
    seen = []
    for index in range(count.value):
        address, name = ctypes.create_string_buffer(64), ctypes.create_string_buffer(256)
        hip("hipDeviceGetPCIBusId", address, ctypes.c_int(64), ctypes.c_int(index))
        if hip.has("hipDeviceGetName"):
            hip("hipDeviceGetName", name, ctypes.c_int(256), ctypes.c_int(index))
        pci = address.value.decode().lower()
        size = 1 << 20
        sent, back, memory = os.urandom(size), ctypes.create_string_buffer(size), ctypes.c_void_p()
        try:
            if hip.has("hipSetDevice"):
                hip("hipSetDevice", ctypes.c_int(index))
            hip("hipMalloc", ctypes.byref(memory), ctypes.c_size_t(size))
            # 1: to the device, 2: from the device.
            hip("hipMemcpy", memory, sent, ctypes.c_size_t(size), ctypes.c_int(1))
            hip("hipMemcpy", back, memory, ctypes.c_size_t(size), ctypes.c_int(2))
            if back.raw != sent:
                raise Refused("what came back from its memory is not what was sent")
            hip("hipFree", memory)
            busy = ""
        except Refused as error:
            busy = in_use(error, pci, "/dev/kfd", count.value == 1)
        seen.append((pci, name.value.decode(errors="replace"), busy))
    return seen


def run(*command):
    """Runs a tool; returns its exit code and its output."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return 127, str(error)
    return done.returncode, done.stdout or done.stderr


def tool_nvidia():
    """Returns names by id from nvidia-smi, and an error text; nvidia-smi prints errors on stdout."""
    code, text = run("nvidia-smi", "--query-gpu=uuid,name", "--format=csv,noheader")
    rows = [line.split(",", 1) for line in text.splitlines() if line.startswith("GPU-")]
    listed = {uuid.strip(): name.strip() for uuid, name in rows if len((uuid, name)) == 2}
    return listed, "" if listed and code == 0 else f"nvidia-smi: {text.strip() or 'nothing'} (exit code {code})"


def tool_amd():
    """Returns names by PCI address from rocm-smi. It lists all of the host's GPUs, so its count proves nothing."""
    for tool in ("rocm-smi", *sorted(glob.glob("/opt/rocm*/bin/rocm-smi")), *sorted(glob.glob("/opt/rocm/*/bin/rocm-smi"))):
        code, text = run(tool, "--showproductname", "--showuniqueid", "--showbus", "--json")
        start = text.find("{")
        cards = as_json(text[start:]) if code == 0 and start >= 0 else None
        if not isinstance(cards, dict):
            continue
        listed = {}
        for card in cards.values():
            if not isinstance(card, dict):
                continue
            fields = {key.lower(): value for key, value in card.items()}
            name = next((fields[key] for key in ("card series", "device name", "card model") if fields.get(key, "N/A") != "N/A"), "")
            listed[str(fields.get("pci bus", "")).lower()] = name
        return listed, ""
    return {}, ""


def gpu(want):
    """Checks that this container has exactly its assigned GPUs, and uses each."""
    target, expected = want["target"], want.get("ids", [])
    is_amd = want["vendor"] == "amd"
    listed, trouble = tool_amd() if is_amd else tool_nvidia()
    library = "HIP" if is_amd else "CUDA"
    by_tool = ", ".join(f"{name} {uuid}" for uuid, name in listed.items()) if not is_amd else ""
    try:
        used = use_amd() if is_amd else use_nvidia()
    except Refused as error:
        said = f"nvidia-smi says {by_tool or 'no GPU'}, but " if not is_amd else ""
        say("gpu", target, False, f"{said}{library} says {error}", product=", ".join(sorted(set(listed.values()))), proof=f"{library}: {error}")
        return
    host = want.get("host", "")
    ids = [f"{host}/{uuid}" if is_amd else uuid for uuid, _, _ in used]
    names = [f"{listed.get(uuid) or name or 'GPU'} {uuid}" for uuid, name, _ in used]
    wrong = ""
    if len(used) != want["count"]:
        wrong = f"{library} shows {len(used)} of {want['count']} GPUs: {', '.join(names) or 'none'}"
    elif expected and sorted(uuid for uuid, _, _ in used) != sorted(expected):
        wrong = f"{library} shows {', '.join(names)}, and the worker was given {', '.join(expected)}"
    elif trouble:
        wrong = trouble
    elif not is_amd and sorted(listed) != sorted(uuid for uuid, _, _ in used):
        wrong = f"nvidia-smi shows {by_tool}, CUDA {', '.join(names)}"
    tool = f"nvidia-smi: {by_tool}; " if not is_amd else ""
    busy = "; ".join(busy for _, _, busy in used if busy)
    result = f"{library}: {busy or '1 MiB written and read back'}"
    product = ", ".join(sorted({listed.get(uuid) or name or "GPU" for uuid, name, _ in used}))
    done = f"{tool}{result}{', on' if busy else ' on'} {', '.join(names)}"
    say("gpu", target, not wrong, wrong or done, ids, product=product, proof=f"{library}: {wrong}" if wrong else result)


# --- Ray --------------------------------------------------------------------------------------------------------------


def human(size):
    """Formats a number of bytes."""
    return f"{size / (1 << 30):.1f} GiB" if size >= 1 << 30 else f"{size / (1 << 20):.0f} MiB"


def nodes(want, token):
    """Checks that every node is alive in Ray, with its promised resources and labels."""
    url = f"{want['dashboard']}/api/v0/nodes?detail=1&limit=1000"
    end = time.monotonic() + want.get("patience_s", 30)
    while True:
        status, body = request(url, {"Authorization": f"Bearer {token}"})
        answer = as_json(body) or {}
        rows = ((answer.get("data") or {}).get("result") or {}).get("result") or []
        alive = {}
        for row in rows:
            if row.get("state") == "ALIVE":
                for name in row.get("resources_total") or {}:
                    alive.setdefault(name, []).append(row)
        # Ray lists a node that was killed as alive for some time. Jobs that it sends there are lost.
        found = [len(alive.get(node["resource"], [])) for node in want["nodes"]]
        if time.monotonic() > (end + DEAD_IN_S if all(found) else end) or all(number == 1 for number in found):
            break
        time.sleep(1)
    for node in want["nodes"]:
        found = alive.get(node["resource"], [])
        if not found:
            say("node alive", node["target"], False, f"Ray lists {len(rows)} nodes, and this one is not alive (HTTP {status})")
            continue
        row = max(found, key=lambda row: row.get("start_time_ms") or 0)
        total = row.get("resources_total") or {}
        has = {name: total.get(name, 0) for name in ("CPU", "GPU", "memory", "object_store_memory")}
        saw = (
            f"ALIVE with {has['CPU']:g} CPU, {has['GPU']:g} GPU, {human(has['memory'])} for tasks, "
            f"{human(has['object_store_memory'])} for objects"
        )
        short = [name for name in has if abs(has[name] - node[name]) > max(1, node[name] * 0.001)]
        wrong = [f"{name} is {has[name]:g}, promised was {node[name]:g}" for name in short]
        # Ray counts in ten-thousandths.
        odd = {name: amount for name, amount in (node.get("resources") or {}).items() if abs(total.get(name, 0) - amount) > 1e-3}
        wrong += [f"promised {amount:g} {name}, Ray has {total.get(name, 0):g}" for name, amount in odd.items()]
        labels = row.get("labels") or {}
        wrong += [f"the label {name}={value} is missing" for name, value in (node.get("labels") or {}).items() if labels.get(name) != value]
        if len(found) > 1:
            wrong.append(f"Ray still sends tasks to {len(found) - 1} that ran before it")
        say("node alive", node["target"], not wrong, saw if not wrong else f"{saw}: {', '.join(wrong)}")


def tokens(want, token):
    """Checks that the dashboard, and the given agents of nodes, refuse requests with a missing or wrong token."""
    url = f"{want['dashboard']}/api/version"
    seen = [request(url)[0], request(url, {"Authorization": "Bearer " + "0" * 48})[0]]
    seen.append(request(url, {"Authorization": f"Bearer {token}"})[0])
    say("token enforced", "dashboard", seen == [401, 403, 200], "without: {}, wrong: {}, right: {}".format(*seen))
    # A node is alive in Ray some seconds before its agent listens.
    end = time.monotonic() + want.get("patience_s", 30)
    for agent in want.get("agents", []):
        while not (bare := request(agent["url"])[0]) and time.monotonic() < end:
            time.sleep(1)
        seen = [bare, request(agent["url"], {"Authorization": "Bearer " + "0" * 48})[0]]
        refused = all(status in (401, 403) for status in seen)
        say("token enforced", agent["target"], refused, "without: {}, wrong: {}".format(*seen))


def client(want):
    """Connects with Ray's client, as Jupyter does, and runs a task on each worker."""
    pending = [("client", want["target"]), *(("task ran", node["target"]) for node in want["workers"])]

    one_at_a_time, begun = threading.Lock(), time.monotonic()

    def result(check, target, ok, saw):
        with one_at_a_time:
            pending.remove((check, target))
            say(check, target, ok, saw)

    def fail(saw):
        with one_at_a_time:
            # Without a client there are no tasks.
            for check, target in pending[:1] if pending[:1] == [("client", want["target"])] else pending:
                say(check, target, False, saw)
            os._exit(0)

    # From the beginning: on a busy host, the import alone takes many seconds.
    limit = threading.Timer(want["timeout_s"], fail, [f"no answer within {want['timeout_s']} s"])
    limit.daemon = True
    limit.start()
    import ray

    try:
        ray.init(os.environ.get("RAY_ADDRESS") or want["address"], logging_level="ERROR", log_to_driver=False)
        result("client", want["target"], True, f"ray.init reached the cluster: {len(ray.nodes())} nodes, Ray {ray.__version__}")

        @ray.remote(num_cpus=0, max_retries=0)
        def look():
            import os
            import socket

            import ray

            return socket.gethostname(), os.getpid(), ray.get_runtime_context().get_node_id()

        running = {look.options(resources={worker["resource"]: 0.001}).remote(): worker for worker in want["workers"]}
        answered = {}
        while running or answered:
            for reference in ray.wait(list(running), timeout=0.5)[0] if running else []:
                worker = running.pop(reference)
                try:
                    host, pid, node = ray.get(reference)
                    answered[worker["target"]] = (worker["resource"], node, f"a task ran as process {pid} of {host}")
                except Exception as error:
                    result("task ran", worker["target"], False, f"{type(error).__name__}: {error}")
            rows = [row for row in ray.nodes() if row["Alive"]] if answered else []
            is_last = time.monotonic() > begun + want["timeout_s"] - 5
            for target, (resource, node, saw) in list(answered.items()):
                alive = {row["NodeID"] for row in rows if resource in row["Resources"]}
                # Ray lists a node that was killed as alive for some time. Jobs that it sends there are lost.
                if alive == {node}:
                    result("task ran", target, True, saw)
                elif node not in alive and alive and not is_last:
                    # Another node has taken its place meanwhile: that one is asked.
                    again = look.options(resources={resource: 0.001}).remote()
                    running[again] = {"target": target, "resource": resource}
                elif node not in alive:
                    result("task ran", target, False, f"{saw}, and that node has ended since")
                elif is_last:
                    result("task ran", target, False, f"{saw}, but Ray still sends tasks to {len(alive) - 1} that ran before it")
                else:
                    continue
                del answered[target]
            if answered and not running:
                time.sleep(0.5)
    except Exception as error:
        fail(f"{type(error).__name__}: {error}")


# --- Object store -----------------------------------------------------------------------------------------------------


class Store:
    """A minimal S3 client with path-style addresses: four calls need no library."""

    def __init__(self, want):
        self.endpoint, self.region = want["endpoint"].rstrip("/"), want["region"]
        credentials = configparser.ConfigParser(interpolation=None)
        credentials.read(f"{SECRETS}/aws_credentials")
        section = credentials["default"]
        self.key, self.secret = section["aws_access_key_id"], section["aws_secret_access_key"]
        self.session = section.get("aws_session_token")

    def call(self, method, path, body=b"", signed=True):
        """Sends a request; returns status and body."""
        url = f"{self.endpoint}{urllib.parse.quote(path)}"
        headers = {}
        if signed:
            now = datetime.datetime.now(datetime.timezone.utc)
            stamp, day = now.strftime("%Y%m%dT%H%M%SZ"), now.strftime("%Y%m%d")
            digest = hashlib.sha256(body).hexdigest()
            headers = {"host": urllib.parse.urlsplit(url).netloc, "x-amz-content-sha256": digest, "x-amz-date": stamp}
            if self.session:
                headers["x-amz-security-token"] = self.session
            names = ";".join(sorted(headers))
            lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
            canonical = f"{method}\n{urllib.parse.quote(path)}\n\n{lines}\n{names}\n{digest}"
            scope = f"{day}/{self.region}/s3/aws4_request"
            text = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
            key = f"AWS4{self.secret}".encode()
            for part in scope.split("/"):
                key = hmac.new(key, part.encode(), hashlib.sha256).digest()
            signature = hmac.new(key, text.encode(), hashlib.sha256).hexdigest()
            headers["authorization"] = (
                f"AWS4-HMAC-SHA256 Credential={self.key}/{scope}, SignedHeaders={names}, Signature={signature}"
            )
        return request(url, headers, method, body if method in ("PUT", "POST") else None, timeout=20)


def make_bucket(store, bucket):
    """Makes a bucket unless it exists; returns an error text, empty on success."""
    if store.call("HEAD", f"/{bucket}")[0] == 200:
        return ""
    status, body = store.call("PUT", f"/{bucket}")
    if status == 200 or b"BucketAlreadyOwnedByYou" in body:
        return ""
    return f"HTTP {status} {body[:300].decode(errors='replace')}"


def buckets(want):
    """Checks that each bucket accepts a write, returns the data, and refuses reads without credentials."""
    try:
        store = Store(want)
    except (OSError, KeyError, configparser.Error) as error:
        say("bucket", want["endpoint"], False, f"its credentials cannot be read: {type(error).__name__} {error}")
        return
    for bucket in want["buckets"]:
        path, sent = f"/{bucket}/.gpucl-probe-{os.getpid()}-{time.time_ns()}", os.urandom(1024)
        written = store.call("PUT", path, sent)
        if written[0] != 200:
            say("bucket", bucket, False, f"writing: HTTP {written[0]} {written[1][:200].decode(errors='replace')}")
            continue
        status, back = store.call("GET", path)
        stranger = store.call("GET", path, signed=False)[0]
        gone = store.call("DELETE", path)[0]
        wrong = ""
        if status != 200 or back != sent:
            wrong = f"reading: HTTP {status}, {len(back)} of {len(sent)} bytes"
        elif stranger not in (401, 403):
            wrong = f"it can be read without credentials: HTTP {stranger}"
        elif gone not in (200, 204):
            wrong = f"removing: HTTP {gone}"
        fine = f"1 KiB written, read back and removed at {want['endpoint']}; without credentials: {stranger}"
        say("bucket", bucket, not wrong, wrong or fine)


# --- Services -------------------------------------------------------------------------------------------------------------


def basic(user, password):
    """Returns the header of HTTP basic authentication."""
    import base64

    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def prometheus(want):
    """Checks that every target is up, and that requests without a password are refused."""
    url, headers = want["prometheus"], json.loads(read(f"{SECRETS}/prometheus_headers"))
    end = time.monotonic() + want.get("patience_s", 30)
    stranger = request(f"{url}/api/v1/query?query=up")[0]
    while True:
        status, body = request(f"{url}/api/v1/targets?state=active", headers)
        targets = ((as_json(body) or {}).get("data") or {}).get("activeTargets") or []
        targets = [target for target in targets if (target.get("labels") or {}).get("gpucl_node") not in want["stopped"]]
        down = [target for target in targets if target.get("health") != "up"]
        of_ray = sum(1 for target in targets if target.get("scrapePool") == "ray")
        if status in (401, 403) or (targets and not down and of_ray >= want["ray_targets"]) or time.monotonic() > end:
            break
        time.sleep(1)
    wrong = ""
    if status != 200:
        wrong = f"HTTP {status}"
    elif stranger != 401:
        wrong = f"without a password it answers {stranger}"
    elif down or of_ray < want["ray_targets"]:
        first = ", ".join(f"{target.get('scrapeUrl')} {target.get('lastError') or target.get('health')}" for target in down[:3])
        wrong = f"{len(targets) - len(down)} of {len(targets)} targets up, {of_ray} of {want['ray_targets']} of Ray; {first}"
    say("prometheus", "targets", not wrong, wrong or f"{len(targets)} of {len(targets)} targets up; without a password: {stranger}")


def grafana(want, password):
    """Checks that it is healthy, accepts our login only, and has Ray's dashboards."""
    url, headers = want["grafana"], basic("admin", password)
    status, body = request(f"{url}/api/health")
    health_ = (as_json(body) or {}).get("database")
    stranger = request(f"{url}/api/search")[0]
    wrong_password = request(f"{url}/api/search", basic("admin", "0" * 20))[0]
    end = time.monotonic() + want.get("patience_s", 30)
    while True:
        login, body = request(f"{url}/api/search?type=dash-db", headers)
        found = as_json(body)
        boards = len(found) if isinstance(found, list) else 0
        if login != 200 or boards or time.monotonic() > end:
            break
        time.sleep(1)
    sources = as_json(request(f"{url}/api/datasources", headers)[1])
    names = [source.get("name") for source in sources] if isinstance(sources, list) else []
    wrong = ""
    if status != 200 or health_ != "ok":
        wrong = f"health: HTTP {status}, database {health_}"
    elif login != 200:
        wrong = f"our login is refused: {login}"
    elif stranger not in (401, 403) or wrong_password not in (401, 403):
        wrong = f"without a login: {stranger}, with a wrong password: {wrong_password}"
    elif not boards or "Prometheus" not in names:
        wrong = f"{boards} dashboards, data sources: {', '.join(map(str, names)) or 'none'}"
    fine = f"login works, {boards} dashboards, data source Prometheus; without: {stranger}, wrong password: {wrong_password}"
    say("grafana", "login", not wrong, wrong or fine)


def jupyter(want, token):
    """Checks that it accepts its token only."""
    url = f"{want['jupyter']}/api/contents?content=0"
    seen = [request(url)[0], request(url, {"Authorization": "token " + "0" * 48})[0]]
    seen.append(request(url, {"Authorization": f"token {token}"})[0])
    ok = seen[0] in (401, 403) and seen[1] in (401, 403) and seen[2] == 200
    say("jupyter", "token", ok, "without: {}, wrong: {}, right: {}".format(*seen))


def mlflow(want):
    """Checks that a run and an artifact can be written and read with the login of jobs, and not without it."""
    given = json.loads(read(f"{SECRETS}/mlflow.json"))
    user = given["MLFLOW_TRACKING_USERNAME"]
    login = basic(user, given["MLFLOW_TRACKING_PASSWORD"])
    json_type = {"Content-Type": "application/json"}

    def call(path, body=None, headers=login, method="POST"):
        data = json.dumps(body).encode() if body is not None else None
        return request(f"{want['url']}{path}", {**headers, **json_type}, method, data, timeout=30)

    def answer(path, body):
        status, text = call(path, body)
        if status != 200:
            raise RuntimeError(f"{path}: HTTP {status} {text[:200].decode(errors='replace')}")
        return json.loads(text)

    search = "/api/2.0/mlflow/experiments/search"
    refused = [call(search, {"max_results": 1}, headers)[0] for headers in ({}, basic(user, "wrong"))]
    begun = time.time_ns() // 1_000_000
    created = answer("/api/2.0/mlflow/runs/create", {"experiment_id": "0", "run_name": "gpucl-check", "start_time": begun})
    run = created["run"]["info"]["run_id"]
    folder = f"/api/2.0/mlflow-artifacts/artifacts/0/{run}/artifacts/check.txt"
    sent = os.urandom(64).hex().encode()
    wrong = ""
    try:
        answer("/api/2.0/mlflow/runs/log-metric", {"run_id": run, "key": "check", "value": 1.5, "timestamp": begun, "step": 0})
        status, text = call(f"/api/2.0/mlflow/runs/get?run_id={run}", method="GET")
        metrics = json.loads(text)["run"]["data"].get("metrics", []) if status == 200 else []
        written = request(f"{want['url']}{folder}", {**login, "Content-Type": "text/plain"}, "PUT", sent, timeout=30)
        back = request(f"{want['url']}{folder}", login, timeout=30)
        request(f"{want['url']}{folder}", login, "DELETE", timeout=30)
        if not any(metric["key"] == "check" and metric["value"] == 1.5 for metric in metrics):
            wrong = f"reading the run: HTTP {status}"
        elif written[0] != 200:
            wrong = f"writing an artifact: HTTP {written[0]} {written[1][:200].decode(errors='replace')}"
        elif back[0] != 200 or back[1] != sent:
            wrong = f"reading the artifact: HTTP {back[0]}, {len(back[1])} of {len(sent)} bytes"
    finally:
        answer("/api/2.0/mlflow/runs/delete", {"run_id": run})
    if not wrong and any(status not in (401, 403) for status in refused):
        wrong = f"without a login: {refused[0]}, with a wrong password: {refused[1]}"
    fine = f"a run and an artifact written and read back; without a login: {refused[0]}, wrong password: {refused[1]}"
    say("mlflow", "login", not wrong, wrong or fine)


def external_mlflow(url):
    """Checks that an MLflow server which outlives the cluster answers the login of jobs. Nothing is written to it."""
    login = json.loads(read(f"{SECRETS}/mlflow.json"))
    headers = {}
    if "MLFLOW_TRACKING_TOKEN" in login:
        headers = {"Authorization": f"Bearer {login['MLFLOW_TRACKING_TOKEN']}"}
    elif "MLFLOW_TRACKING_USERNAME" in login:
        headers = basic(login["MLFLOW_TRACKING_USERNAME"], login["MLFLOW_TRACKING_PASSWORD"])
    search = f"{url.rstrip('/')}/api/2.0/mlflow/experiments/search?max_results=1"
    status, text = request(search, headers, timeout=30, opener=DIRECT)
    wrong = "" if status == 200 else f"{url} answers {status}"
    if status == 0:
        wrong = f"{url} cannot be reached from the head: {text.decode(errors='replace')}"
    elif status in (401, 403):
        wrong = f"{url} refuses the login: {status}"
    if not wrong and b"experiment" not in text and text.strip() != b"{}":
        wrong = f"{url} answers, but not as MLflow does"
    say("mlflow", "login", not wrong, wrong or f"{url} answers{' the login of jobs' if headers else ''}")


def cluster(want):
    """Runs the checks of the head, which use only secrets that jobs have too."""
    token = read(os.environ["RAY_AUTH_TOKEN_PATH"])
    jobs = [("node alive", nodes, (want, token)), ("token enforced", tokens, (want, token))]
    if want.get("store"):
        jobs.append(("bucket", buckets, (want["store"],)))
    if want.get("mlflow"):
        external = want["mlflow"].get("external")
        jobs.append(("mlflow", external_mlflow, (external,)) if external else ("mlflow", mlflow, (want["mlflow"],)))
    side_by_side(want, jobs)


def services(want):
    """Runs the checks that need a password."""
    jobs = []
    if want.get("prometheus"):
        jobs.append(("prometheus", prometheus, (want,)))
    if want.get("grafana"):
        jobs.append(("grafana", grafana, (want, read(f"{SECRETS}/grafana_password"))))
    if want.get("jupyter"):
        jobs.append(("jupyter", jupyter, (want, read(f"{SECRETS}/jupyter_token"))))
    side_by_side(want, jobs)


def side_by_side(want, jobs):
    """Runs checks in parallel within the time limit, and ends the process."""

    def safely(name, job, arguments):
        try:
            job(*arguments)
        except Exception as error:
            say(name, "head", False, f"the check itself failed: {type(error).__name__}: {error}")

    threads = [threading.Thread(target=safely, args=job, daemon=True) for job in jobs]
    for thread in threads:
        thread.start()
    end = time.monotonic() + want.get("timeout_s", 100)
    for (name, _, _), thread in zip(jobs, threads):
        thread.join(max(0.1, end - time.monotonic()))
        if thread.is_alive():
            say(name, "head", False, "no answer in time")
    sys.stdout.flush()
    os._exit(0)


def wait(want):
    """Waits until every service answers, and makes the buckets; exits with 1, naming those that do not."""
    end = time.monotonic() + want["timeout_s"]
    # Some require a login: a refusal is an answer too.
    left = dict(want["addresses"])
    reported = time.monotonic()
    while left:
        for name, url in list(left.items()):
            status, body = request(url, timeout=5)
            if 200 <= status < 500:
                print(f"{name} answers", flush=True)
                del left[name]
            else:
                last = f"{name}: HTTP {status} {body[:200].decode(errors='replace')}"
        if not left:
            break
        if time.monotonic() > end:
            print(f"no answer in time from {', '.join(sorted(left))}; {last}")
            sys.exit(1)
        if time.monotonic() - reported > 10:
            print(f"still waiting: {last}", flush=True)
            reported = time.monotonic()
        time.sleep(0.5)
    store = want.get("store")
    for bucket in store["buckets"] if store and store["make"] else []:
        while True:
            why = make_bucket(Store(store), bucket)
            if not why:
                print(f"bucket {bucket} exists", flush=True)
                break
            if time.monotonic() > end or "InvalidAccessKeyId" in why or "SignatureDoesNotMatch" in why:
                print(f"the bucket {bucket} cannot be made: {why}")
                sys.exit(1)
            time.sleep(1)


def without_stopped(want):
    """Leaves out the workers in GPUCL_STOPPED, which were stopped by hand and have nothing to show."""
    stopped = os.environ.get("GPUCL_STOPPED", "").split()
    for kind in ("nodes", "agents", "workers"):
        if kind in want:
            want[kind] = [node for node in want[kind] if node["target"] not in stopped]
    want["stopped"] = stopped
    if "ray_targets" in want:
        want["ray_targets"] -= len(stopped)
    return want


def main():
    """Runs the command given on the command line."""
    command = sys.argv[1]
    {"gpu": gpu, "client": client, "cluster": cluster, "services": services, "wait": wait}[command](
        without_stopped(json.loads(sys.argv[2]))
    )
    # What a library does when the process exits proves nothing.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
