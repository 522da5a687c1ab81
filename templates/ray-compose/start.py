"""Starts one node of Ray in its container, and never returns: it becomes the command behind `--`.

    python3 start.py head -- ray start --head ...
    python3 start.py worker head:6379 -- ray start --address=head:6379 ...

What it does first, and why:

* The headers for Prometheus hold a password. Ray takes them from the environment only, and what is written into a
  container's environment can be read with `docker inspect`: so they are read from a file here.
* Head and workers start at the same time. A worker waits until the head answers; with another token than the head's it
  ends, and says so. Ray itself would ask again and again.

It takes the standard library, and gRPC, which comes with Ray.
"""

import os
import socket
import sys
import time

TOKEN = os.environ.get("RAY_AUTH_TOKEN_PATH", "/run/gpucl/secrets/ray_token")
HEADERS = "/run/gpucl/secrets/prometheus_headers"
CHECK = "/ray.rpc.NodeInfoGcsService/CheckAlive"
# The exit code of a node that the head refuses.
REFUSED = 77


def say(text):
    """One line for the container's log."""
    print(f"gpucl: {text}", flush=True)


def read(path):
    """A file's text without the line break at its end; nothing where there is no such file."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except FileNotFoundError:
        return ""


def ask(address, token):
    """What the head says: `OK`, `UNAUTHENTICATED`, or why it cannot be asked."""
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
    """Returns when the head takes us; ends with REFUSED when it does not."""
    token = read(TOKEN)
    begun = time.monotonic()
    last, told = "", 0.0
    while True:
        answer = ask(address, token)
        if answer == "OK":
            return
        if answer in ("UNAUTHENTICATED", "PERMISSION_DENIED"):
            say(f"the head at {address} refuses this node's token: it is not the cluster's ({answer})")
            sys.exit(REFUSED)
        waited = time.monotonic() - begun
        if answer != last or waited - told > 30:
            say(f"waiting for the head at {address} for {waited:.0f} s: {answer}")
            last, told = answer, waited
        time.sleep(0.5)


def main():
    """Waits where there is something to wait for, and becomes Ray."""
    split = sys.argv.index("--")
    role, command = sys.argv[1], sys.argv[split + 1 :]
    if role == "worker":
        wait_for_head(sys.argv[2])
    headers = read(HEADERS)
    if headers:
        os.environ["RAY_PROMETHEUS_HEADERS"] = headers
    # With it, newer gRPC ends Ray's client server with a failed check when that starts a server of its own.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
