"""Runs the checks that need Ray itself, from inside a cluster, and prints one JSON line for each.

    python probe.py '{"workers": [{"key": "worker-0", "node_resource": "gpucl_worker0", "gpus": 1, "gpu_mode": "proven"}],
                      "grpc_ports": [6379], "timeout_s": 60}'

The environment locates the cluster: RAY_ADDRESS, RAY_AUTH_MODE, RAY_AUTH_TOKEN_PATH or RAY_AUTH_TOKEN; GPUCL_STOPPED names workers to
leave out. It prints

    {"worker": KEY, "ok": BOOL, "node_id": ..., "pid": ..., "hostname": ..., "gpus": [...], "saw": TEXT}
        a task ran on this worker; with `gpu_mode: proven` it also used every GPU that Ray assigned, through the
        driver's own library. While jobs hold these GPUs, it uses those of the node, beside the jobs.
    {"grpc_port": PORT, "ok": BOOL, "saw": TEXT}
        the port refuses a call without a token and with a wrong one, and answers with the right one
    {"done": true}

and nothing else on stdout. With `"lines": "check"` it prints the lines of a host's checks instead, after `::check `;
each worker may then name its GPUs (`ids`), and `address` may override RAY_ADDRESS. A worker that does not answer in
time is a line with `ok: false`; the program always ends within `timeout_s`.
"""

import json
import os
import sys
import threading
import time

BEGUN = time.monotonic()
LOCK = threading.Lock()
PENDING = {}
# The expected properties of each worker, with `"lines": "check"`.
CHECKS = None
# The real stdout; output of libraries goes to stderr.
OUT = os.fdopen(os.dup(1), "w")


def say(line):
    """Prints one line, and removes its subject from the pending ones. A second line about a subject is dropped."""
    with LOCK:
        for kind in ("worker", "grpc_port"):
            if kind in line and PENDING.pop((kind, line[kind]), None) is None:
                return
        lines = as_checks(line) if CHECKS is not None else [json.dumps(line)]
        OUT.write("".join(f"{line}\n" for line in lines))
        OUT.flush()


def as_checks(line):
    """Converts a line to the lines of a host's checks."""

    def check(name, target, ok, saw, **more):
        return f"::check {json.dumps({'check': name, 'target': target, 'ok': ok, 'saw': ' '.join(str(saw).split())[:600], **more})}"

    if "grpc_port" in line:
        return [check("token enforced", f"gRPC {line['grpc_port']}", line["ok"], line["saw"])]
    if "worker" not in line:
        return []
    target, seen = line["worker"], line.get("gpus") or []
    lines = [check("task ran", target, line["ok"], line["saw"])]
    wanted = CHECKS.get(target, {})
    if wanted.get("gpu_mode") == "proven":
        ids, names = [gpu["uuid"] for gpu in seen], sorted({gpu["name"] for gpu in seen})
        own = line["ok"] and (not wanted.get("ids") or sorted(ids) == sorted(wanted["ids"]))
        busy = ", ".join(gpu["busy"] for gpu in seen if gpu.get("busy"))
        proof = f"CUDA: {busy or '1 MiB written and read back'}" if line["ok"] else f"CUDA: {line['saw']}"
        saw = line["saw"] if own or not line["ok"] else f"given {', '.join(wanted['ids'])}, and its task saw {', '.join(ids) or 'none'}"
        lines.append(check("gpu", target, own, saw, gpus=ids, product=", ".join(names), proof=proof))
    return lines


def give_up(seconds):
    """Reports what has not answered by the time limit, and ends: a call into Ray may never return."""
    time.sleep(max(0.0, BEGUN + seconds - time.monotonic()))
    for kind, name in list(PENDING):
        say({kind: name, "ok": False, "saw": f"no answer within {seconds:g} seconds"})
    # Another thread may be about to write its line.
    with LOCK:
        os._exit(0)


def look(gpus, proven, beside_jobs):
    """Runs on a worker: returns where it runs, and which GPUs it can really use."""
    import os
    import socket

    import ray

    def variables(pid):
        """Returns the environment of a process, with its entries as they are; empty if it cannot be read."""
        try:
            with open(f"/proc/{pid}/environ", "rb") as file:
                return file.read().split(b"\0")
        except OSError:
            return []

    tag = os.environ.get("GPUCL_TAG")

    def is_user(pid):
        """Whether this is another process of this node that uses a GPU."""
        # In a pod there is no tag, and all processes are the node's.
        if int(pid) == os.getpid() or (tag and f"GPUCL_TAG={tag}".encode() not in variables(pid)):
            return False
        try:
            entries = os.listdir(f"/proc/{pid}/fd")
        except OSError:  # it has ended, or is another user's
            return False
        for entry in entries:
            try:
                if os.readlink(f"/proc/{pid}/fd/{entry}") == "/dev/nvidia-uvm":
                    return True
            except OSError:  # closed meanwhile
                pass
        return False

    def gives_back(uuid, pids):
        """Whether a job has memory of this GPU once these processes have ended."""
        import subprocess

        def ask(*query):
            command = ["nvidia-smi", *query, "--format=csv,noheader,nounits"]
            output = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
            return [[cell.strip() for cell in line.split(",")] for line in output.splitlines()]

        try:
            ((total, used),) = ask("--query-gpu=memory.total,memory.used", f"--id={uuid}")
            on_it = [row for row in ask("--query-compute-apps=gpu_uuid,pid,used_memory") if row[0] == uuid]
            own = [int(memory) for _, pid, memory in on_it if pid in pids]
            if own:
                return int(total) - (int(used) - sum(own)) >= 1024
        except (OSError, ValueError, subprocess.SubprocessError):
            on_it = []
        # In a container, the tool lists no processes: which of several GPUs one uses is unknown.
        return gpus == 1 and not (tag and on_it)

    def use_gpus():
        """Allocates memory, copies there and back, and compares, on every GPU that the driver shows to this process."""
        import ctypes

        try:
            cuda = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            return [], f"the NVIDIA driver's library cannot be loaded: {error}"

        def call(name, *arguments):
            function = getattr(cuda, name)
            function.restype = ctypes.c_int
            code = function(*arguments)
            if code == 0:
                return None
            codes.append(code)
            text = ctypes.c_char_p()
            if cuda.cuGetErrorName(code, ctypes.byref(text)) == 0 and text.value:
                return f"{name}: {text.value.decode()} ({code})"
            return f"{name}: error {code}"

        codes = []
        wrong = call("cuInit", ctypes.c_uint(0))
        count = ctypes.c_int()
        wrong = wrong or call("cuDeviceGetCount", ctypes.byref(count))
        seen = []
        for index in range(0 if wrong else count.value):
            device = ctypes.c_int()
            wrong = call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(index))
            if wrong:
                break
            raw = (ctypes.c_ubyte * 16)()
            # The second version also returns a MIG instance's own UUID.
            form = "cuDeviceGetUuid_v2" if hasattr(cuda, "cuDeviceGetUuid_v2") else "cuDeviceGetUuid"
            wrong = call(form, ctypes.byref(raw), device)
            name = ctypes.create_string_buffer(256)
            wrong = wrong or call("cuDeviceGetName", name, ctypes.c_int(256), device)
            if wrong:
                break
            text = bytes(raw).hex()
            uuid = "GPU-" + "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))
            seen.append({"uuid": uuid, "name": name.value.decode(errors="replace")})
            context = ctypes.c_void_p()
            size = 1 << 20
            sent = os.urandom(size)
            back = ctypes.create_string_buffer(size)
            memory = ctypes.c_uint64()
            wrong = call("cuCtxCreate_v2", ctypes.byref(context), ctypes.c_uint(0), device)
            wrong = wrong or call("cuMemAlloc_v2", ctypes.byref(memory), ctypes.c_size_t(size))
            mode = ctypes.c_int()
            if wrong and codes[-1] == 46:
                # In the mode 3 only one process may use the GPU, and 46 says that another does; else it is broken.
                cuda.cuDeviceGetAttribute(ctypes.byref(mode), ctypes.c_int(20), device)
            if wrong and (codes[-1] == 2 or mode.value == 3):
                pids = [pid for pid in os.listdir("/proc") if pid.isdigit() and is_user(pid)] if beside_jobs else []
                if pids and gives_back(uuid, pids):
                    seen[-1]["busy"], wrong = f"its memory is in use by this worker's own processes {', '.join(pids)}", None
                else:
                    wrong += "; no job of this worker holds that memory: see nvidia-smi on the host"
            elif not wrong:
                wrong = call("cuMemcpyHtoD_v2", memory, sent, ctypes.c_size_t(size))
                wrong = wrong or call("cuMemcpyDtoH_v2", back, memory, ctypes.c_size_t(size))
                if not wrong and back.raw != sent:
                    wrong = "data read back from its memory differs from what was written"
                freed = call("cuMemFree_v2", memory)
                wrong = wrong or freed
            # Memory that is short is not kept until this process ends.
            if context:
                ended = call("cuCtxDestroy_v2", context)
                wrong = wrong or ended
            if wrong:
                wrong = f"{uuid}: {wrong}"
                seen.pop()
                break
        return seen, wrong

    result = {
        "node_id": ray.get_runtime_context().get_node_id(),
        "pid": os.getpid(),
        "hostname": socket.gethostname(),
        "gpus": [],
        "wrong": None,
    }
    if proven:
        if beside_jobs:
            # Ray shows no GPUs to a task that asked for none, or all of its own, by version: what counts is what its node has.
            os.environ.pop("CUDA_VISIBLE_DEVICES", None)
            for entry in variables(os.getppid()):
                if entry.startswith(b"CUDA_VISIBLE_DEVICES="):
                    os.environ["CUDA_VISIBLE_DEVICES"] = entry.partition(b"=")[2].decode()
        result["gpus"], result["wrong"] = use_gpus()
        if not result["wrong"] and len(result["gpus"]) != gpus:
            result["wrong"] = f"{len(result['gpus'])} GPUs are usable, {gpus} were promised"
    return result


def free_gpus():
    """Returns how many GPUs of each node no job holds, by the node's resources for its own tasks."""
    from ray._private import state

    free = {}
    for resources in state.available_resources_per_node().values():
        for name in resources:
            free[name] = resources.get("GPU", 0)
    return free


def check_workers(workers, seconds):
    """Runs one task on each worker, all at the same time."""
    import ray

    ray.init(address=os.environ["RAY_ADDRESS"], log_to_driver=False, logging_level="ERROR", configure_logging=False)
    task = ray.remote(look)
    running = {}
    try:
        free = free_gpus()
    except Exception as error:  # not a documented call of Ray's
        sys.stderr.write(f"which GPUs are free is unknown: {type(error).__name__}: {error}\n")
        free = {}

    def begin(worker, beside_jobs):
        gpus = worker.get("gpus", 0)
        proven = gpus > 0 and worker.get("gpu_mode") == "proven"
        # A task that asks for no GPUs runs at once, whoever holds them.
        options = {"num_cpus": 0, "num_gpus": gpus if proven and not beside_jobs else 0, "max_retries": 0}
        options["resources"] = {worker["node_resource"]: 0.001}
        running[task.options(**options).remote(gpus, proven, beside_jobs)] = worker
        return proven and not beside_jobs

    # Those whose tasks wait for GPUs, and results that wait until Ray knows which nodes are dead.
    waiting, answered = [], []
    for worker in workers:
        if begin(worker, free.get(worker["node_resource"], worker.get("gpus", 0)) < worker.get("gpus", 0)):
            waiting.append(worker)
    # A job may take the GPUs before the task does.
    patience, last = BEGUN + seconds / 3, BEGUN + seconds - 5
    while running or answered:
        pause = 0.5 if answered else max(0.1, (patience if waiting else BEGUN + seconds) - time.monotonic())
        done = ray.wait(list(running), num_returns=1, timeout=pause)[0] if running else time.sleep(pause) or []
        if waiting and time.monotonic() >= patience:
            for worker in waiting:
                begin(worker, True)
            waiting = []
        for reference in done:
            worker = running.pop(reference)
            waiting = [other for other in waiting if other is not worker]
            for other in [other for other, whose in running.items() if whose is worker]:
                del running[other]
                ray.cancel(other)
            answered.append((worker, result_of(worker, reference)))
        rows = [node for node in ray.nodes() if node["Alive"]] if answered else []
        for worker, line in list(answered):
            alive = {node["NodeID"] for node in rows if worker["node_resource"] in node["Resources"]}
            if line["ok"] and line["node_id"] not in alive:
                # Where another node has taken its place meanwhile, that one is asked.
                if alive and time.monotonic() < last:
                    answered.remove((worker, line))
                    begin(worker, True)
                    continue
                line.update(ok=False, saw=f"{line['saw']}, and that node has ended since")
            elif line["ok"] and len(alive) > 1:
                # Ray lists a node that was killed as alive for some time. Jobs that it sends there are lost.
                if time.monotonic() < last:
                    continue
                line.update(ok=False, saw=f"{line['saw']}, but Ray still sends tasks to {len(alive) - 1} that ran before it")
            answered.remove((worker, line))
            say(line)


def result_of(worker, reference):
    """Returns the line about a worker whose task has ended."""
    import ray

    line = {"worker": worker["key"], "ok": False}
    try:
        result = ray.get(reference)
    except Exception as error:  # any failure of a task is a result here
        line["saw"] = f"its task failed: {type(error).__name__}: {str(error).strip().splitlines()[-1:]}"
        return line
    wrong = result.pop("wrong")
    busy = {gpu["uuid"]: f" ({gpu['busy']})" for gpu in result["gpus"] if gpu.get("busy")}
    names = ", ".join(f"{gpu['name']} {gpu['uuid']}{busy.get(gpu['uuid'], '')}" for gpu in result["gpus"])
    ran = f"a task ran as process {result['pid']}"
    line.update(result, ok=wrong is None, saw=wrong or (f"{ran} on {names}" if names else ran))
    return line


def check_port(port, token, method):
    """Calls one gRPC port without a token, with a wrong one, and with the right one."""
    import grpc

    with grpc.insecure_channel(f"127.0.0.1:{port}", options=[("grpc.enable_http_proxy", 0)]) as channel:
        call = channel.unary_unary(method, request_serializer=bytes, response_deserializer=bytes)

        def answer(metadata):
            try:
                call(b"", timeout=10, metadata=metadata)
            except grpc.RpcError as error:
                return error.code().name
            return "OK"

        seen = {
            "without a token": answer(()),
            "with a wrong token": answer((("authorization", "Bearer " + "0" * 64),)),
            "with the token": answer((("authorization", f"Bearer {token}"),)),
        }
    ok = list(seen.values()) == ["UNAUTHENTICATED", "UNAUTHENTICATED", "OK"]
    say({"grpc_port": port, "ok": ok, "saw": ", ".join(f"{what}: {code}" for what, code in seen.items())})


def check_ports(ports):
    """Checks the token on each of these ports."""
    token = os.environ.get("RAY_AUTH_TOKEN", "")
    if not token:
        with open(os.environ["RAY_AUTH_TOKEN_PATH"], encoding="utf-8") as file:
            token = file.read().strip()
    for port in ports:
        try:
            check_port(port, token, "/ray.rpc.NodeInfoGcsService/CheckAlive")
        except Exception as error:
            say({"grpc_port": port, "ok": False, "saw": f"the request failed: {type(error).__name__}: {error}"})


def main():
    """Checks ports and workers in parallel; ends with 0 when there is a line about each of them, at the time limit too."""
    global CHECKS
    wanted = json.loads(sys.argv[1])
    os.dup2(2, 1)
    # Workers that were stopped by hand have nothing to show.
    stopped = os.environ.get("GPUCL_STOPPED", "").split()
    wanted["workers"] = [worker for worker in wanted.get("workers", []) if worker["key"] not in stopped]
    if wanted.get("address"):
        os.environ["RAY_ADDRESS"] = wanted["address"]
    if wanted.get("lines") == "check":
        CHECKS = {worker["key"]: worker for worker in wanted["workers"]}
    workers, ports = wanted["workers"], wanted.get("grpc_ports", [])
    seconds = float(wanted.get("timeout_s", 60))
    for worker in workers:
        PENDING["worker", worker["key"]] = True
    for port in ports:
        PENDING["grpc_port", port] = True
    threading.Thread(target=give_up, args=(seconds,), daemon=True).start()
    side = threading.Thread(target=check_ports, args=(ports,), daemon=True)
    side.start()
    if workers:
        try:
            check_workers(workers, seconds)
        except BaseException as error:
            for kind, name in list(PENDING):
                if kind == "worker":
                    say({"worker": name, "ok": False, "saw": f"the cluster cannot be reached: {error}"})
    side.join()
    for kind, name in list(PENDING):
        say({kind: name, "ok": False, "saw": "its check ended without a result"})
    say({"done": True})
    # Ray's own shutdown takes seconds and proves nothing.
    os._exit(0)


if __name__ == "__main__":
    main()
