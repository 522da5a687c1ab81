"""Runs the `ray` command line for one node whose every server listens on the loopback only.

    python node.py [--gpucl-wait SECONDS] start --head ...
    python node.py [--gpucl-wait SECONDS] start --address=127.0.0.1:PORT ...

All other arguments are those of `ray`. What this adds, and why:

* Ray binds its gRPC servers to the node's address, so they listen on the loopback only if that is 127.0.0.1. `ray
  start` replaces 127.0.0.1 with a reachable address, which opens a dozen ports to the world. With
  RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0 in the environment (all children and jobs inherit it) it does not.
* With that variable, `ray start --address` refuses to join a cluster. Two attributes of Ray are patched in this process
  only, so that a worker may join and uses the loopback as its address.
* Ray starts its worker processes with `worker.py`, which adds the secrets of their job.
* Ray starts the node's agent through `agent.py`, so that it finds the logs of the jobs on its own node.
* Head and workers start at the same time: a worker imports Ray first, which takes seconds, and then waits until the
  head's port accepts connections.

Those attributes are not an interface of Ray. When they are missing, this fails with a message instead of opening ports.
"""

import os
import socket
import sys
import time

LOOPBACK = "127.0.0.1"


def fail(message):
    """Ends with a message that the node's log shows."""
    sys.stderr.write(f"node.py: {message}\n")
    sys.exit(70)


def head_address(arguments):
    """Returns the address that a worker joins, or None for a head and for any other command."""
    if "start" not in arguments:
        return None
    for position, argument in enumerate(arguments):
        if argument.startswith("--address="):
            return argument.partition("=")[2]
        if argument == "--address" and position + 1 < len(arguments):
            return arguments[position + 1]
    return None


def wait_for(address, seconds):
    """Waits until something accepts connections at the address."""
    host, _, port = address.rpartition(":")
    end = time.monotonic() + seconds
    while True:
        try:
            with socket.create_connection((host or LOOPBACK, int(port)), timeout=2):
                return
        except (OSError, ValueError) as error:
            if isinstance(error, ValueError) or time.monotonic() > end:
                fail(f"the head did not answer at {address} within {seconds:g} seconds: {error}")
        time.sleep(0.1)


def wait_for_head_node(address, seconds):
    """Waits until the head's own node is registered in its cluster.

    Ray's own `start` would poll for it only every two seconds, twenty times, and then give up.
    """
    try:
        from ray._raylet import GcsClient

        client = GcsClient(address=address)
    except Exception:  # Ray's own wait remains
        return
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if any(node.is_head_node for node in client.get_all_node_info(timeout=5).values()):
                return
        except Exception:  # it may refuse while it starts
            pass
        time.sleep(0.1)
    fail(f"the head at {address} did not become a node of its own cluster within {seconds:g} seconds")


def prepare_ray():
    """Imports Ray and patches it to stay on the loopback; returns the entry point of its command line."""
    try:
        import ray
    except ImportError as error:
        fail(f"Ray is not in this environment: {error}")
    moved = f"Ray {ray.__version__} has changed internally; gpucl does not know how to keep it on the loopback"
    try:
        import ray._private.ray_constants as constants
        import ray._private.services as services
        from ray.scripts.scripts import main
    except ImportError as error:
        fail(f"{moved}: {error}")
    # Setting a name that Ray no longer reads would silently open ports.
    for module, name in (
        (constants, "ENABLE_RAY_CLUSTER"),
        (constants, "SETUP_WORKER_FILENAME"),
        (constants, "PROCESS_TYPE_DASHBOARD_AGENT"),
        (services, "_build_python_executable_command_memory_profileable"),
        (services, "get_node_ip_address"),
    ):
        if not hasattr(module, name):
            fail(f"{moved}: {module.__name__} has no {name}")
    here = os.path.dirname(os.path.abspath(__file__))
    # Ray joins it to a folder of its own, which an absolute path replaces.
    constants.SETUP_WORKER_FILENAME = os.path.join(here, "worker.py")
    python_command = services._build_python_executable_command_memory_profileable

    def command_of(component, *rest, **named):
        command = python_command(component, *rest, **named)
        agent = component == constants.PROCESS_TYPE_DASHBOARD_AGENT
        return [*command, os.path.join(here, "agent.py")] if agent else command

    services._build_python_executable_command_memory_profileable = command_of
    constants.ENABLE_RAY_CLUSTER = True
    services.get_node_ip_address = lambda *_, **__: LOOPBACK
    return main


def main():
    """Removes our own argument and runs `ray`."""
    if os.environ.get("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER") != "0":
        fail("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0 is not set, so Ray would listen on all addresses")
    seconds = 60.0
    arguments = sys.argv[1:]
    if arguments[:1] == ["--gpucl-wait"] and len(arguments) > 1:
        try:
            seconds = float(arguments[1])
        except ValueError:
            fail(f"--gpucl-wait takes a number of seconds, not {arguments[1]!r}")
        arguments = arguments[2:]
    sys.argv = ["ray", *arguments]
    ray_main = prepare_ray()
    address = head_address(arguments)
    if address is not None:
        wait_for(address, seconds)
        wait_for_head_node(address, seconds)
    sys.exit(ray_main())


if __name__ == "__main__":
    main()
