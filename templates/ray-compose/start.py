"""Runs one Ray node in its container: the command after `--`. It never returns.

    python3 start.py head -- ray start --head ...
    python3 start.py worker head:6379 -- ray start --address=head:6379 ...

What it does first, and why:

* The headers for Prometheus hold a password. Ray takes them from the environment only, and `docker inspect` shows a
  container's configured environment: so they are read from a file here.
* Head and workers start at the same time. A worker waits until the head answers; if the head refuses its token, it
  exits with an error. Ray itself would retry forever. While the head goes on starting, the worker imports Ray, and then
  waits for the head's own node.
* A worker that is asked to end while the file ENDING exists does so at once, without draining: its whole cluster ends,
  or its head is replaced. A head always does.
* A node that Ray has lost ends, while `ray start` would stay: its raylet was drained, or the head says that it is dead.
* Ray starts its worker processes with `worker.py`, which adds the secrets of their job: so `ray` is run from here, with
  the path of that script.

Needs the standard library, and gRPC, which comes with Ray.
"""

import os
import socket
import sys
import time

# Python leaves it out where PYTHONSAFEPATH is set.
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from lifecycle import drain_unless, end_when_lost, start_several_at_once, wait_for_head_node

TOKEN = os.environ.get("RAY_AUTH_TOKEN_PATH", "/run/gpucl/secrets/ray_token")
HEADERS = "/run/gpucl/secrets/prometheus_headers"
CHECK = "/ray.rpc.NodeInfoGcsService/CheckAlive"
# What starts Ray's worker processes.
WORKER = "/opt/gpucl/worker.py"
# This file exists while workers are asked to end because all of the cluster does, or its head.
ENDING = "/opt/gpucl/.ending"
# The exit code of a node whose token the head refuses.
REFUSED = 77
# How long a worker waits for the head's own node, in seconds, before it leaves that to Ray.
HEAD_NODE_LIMIT = 120


def say(text):
    """Prints a line to the container's log."""
    print(f"gpucl: {text}", flush=True)


def read(path):
    """Returns a file's text, stripped; empty if there is no such file."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except FileNotFoundError:
        return ""


def ask(address, token):
    """Asks the head; returns `OK`, another gRPC status such as `UNAUTHENTICATED`, or why the connection failed."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=3):
            pass
    except OSError as error:
        return str(error)
    try:
        import grpc
    except ImportError:
        return "OK"
    with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
        call = channel.unary_unary(CHECK, request_serializer=bytes, response_deserializer=bytes)
        try:
            call(b"", timeout=5, metadata=(("authorization", f"Bearer {token}"),))
        except grpc.RpcError as error:
            return error.code().name
    return "OK"


def wait_for_head(address):
    """Returns when the head accepts our token; exits with REFUSED when it refuses it."""
    token = read(TOKEN)
    begun = time.monotonic()
    last, reported = "", 0.0
    while True:
        answer = ask(address, token)
        if answer == "OK":
            return
        if answer in ("UNAUTHENTICATED", "PERMISSION_DENIED"):
            say(f"the head at {address} refuses this node's token: it is not the cluster's ({answer})")
            sys.exit(REFUSED)
        waited = time.monotonic() - begun
        if answer != last or waited - reported > 30:
            say(f"waiting for the head at {address} for {waited:.0f} s: {answer}")
            last, reported = answer, waited
        time.sleep(0.5)


def run_ray(arguments, head=None):
    """Runs the `ray` command line, with our script for its worker processes; first waits for the node of `head`."""
    import ray._private.ray_constants as constants
    from ray.scripts.scripts import main as ray_main

    # Ray joins the name to a folder of its own, which an absolute path replaces.
    if hasattr(constants, "SETUP_WORKER_FILENAME") and os.path.exists(WORKER):
        constants.SETUP_WORKER_FILENAME = WORKER
    else:
        say("this Ray starts its processes in another way: secrets of jobs do not reach them")
    drain_unless(ENDING if head else None)
    end_when_lost()
    if head:
        if not wait_for_head_node(head, HEAD_NODE_LIMIT):
            say(f"the head at {head} did not become a node of its own cluster within {HEAD_NODE_LIMIT} s")
    sys.argv = ["ray", *arguments]
    sys.exit(ray_main())


def has_ray():
    """Whether this Python has the Ray that the command `ray` belongs to."""
    import importlib.util

    return importlib.util.find_spec("ray") is not None


def main():
    """Waits for the head if this is a worker, then runs Ray."""
    split = sys.argv.index("--")
    role, command = sys.argv[1], sys.argv[split + 1 :]
    # With fork support, newer gRPC aborts Ray's client server with a failed check when that starts a server of its own.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    start_several_at_once(role == "head")
    headers = read(HEADERS)
    if headers:
        os.environ["RAY_PROMETHEUS_HEADERS"] = headers
    head = sys.argv[2] if role == "worker" else None
    if head:
        wait_for_head(head)
    if command[0] == "ray" and has_ray():
        run_ray(command[1:], head)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
