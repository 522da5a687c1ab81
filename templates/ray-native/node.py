"""Runs the `ray` command line for one node whose every server listens on the loopback only, or where it has to.

    python node.py [--gpucl-wait SECONDS] [--gpucl-address ADDRESS] start --head ...
    python node.py [--gpucl-wait SECONDS] [--gpucl-address ADDRESS] start --address=HEAD:PORT ...

All other arguments are those of `ray`. What this adds, and why:

* Ray binds its gRPC servers to the node's address, so they listen on the loopback only if that is 127.0.0.1. `ray
  start` replaces 127.0.0.1 with a reachable address, which opens a dozen ports to the world. With
  RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0 in the environment (all children and jobs inherit it) it does not.
* With that variable, `ray start --address` refuses to join a cluster. Two attributes of Ray are patched in this process
  only, so that a worker may join and uses the loopback as its address.
* Ray starts its worker processes with `worker.py`, which adds the secrets of their job.
* Ray starts the node's agent through `agent.py`, so that it finds the logs of the jobs on its own node.
* A worker that is asked to end while `run/.ending` exists beside this file does so at once, without draining: its whole
  cluster ends, or its head is replaced. A head always does.
* A node that Ray has lost ends, while `ray start` would stay: its raylet was drained, or the head says that it is dead.
* Head and workers start at the same time: a worker imports Ray first, which takes seconds, and then waits until the
  head's port accepts connections. The head may be on another machine that is ready much later.

With `--gpucl-address`, the cluster's hosts are several machines, and ADDRESS is this one's on the network between them:
an address, or a name that is resolved here. It replaces the value of `--node-ip-address`. The variable is 1 then. Ray
opens its gRPC servers on all addresses and the agents' HTTP servers on this one (measured with Ray 2.60). What no other
host needs is put back onto the loopback: the Ray Client server, and the metrics, which want no token (`inner.py`). The
dashboard listens where `--dashboard-host` says.

Those attributes are not an interface of Ray. When they are missing, this fails with a message instead of opening ports.
"""

import os
import socket
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from lifecycle import drain_unless, end_when_lost, start_several_at_once, wait_for_head_node
from reachable import reachable

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


def split(address):
    """Returns the host and the port of HOST:PORT; the host of IPv6 is in brackets there."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), port


def joined(host, port):
    """Returns HOST:PORT, with IPv6 in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def wait_for(address, seconds):
    """Waits until something accepts connections at the address."""
    host, port = split(address)
    end = time.monotonic() + seconds
    while True:
        try:
            with socket.create_connection((host or LOOPBACK, int(port)), timeout=2):
                return
        except (OSError, ValueError) as error:
            if isinstance(error, ValueError) or time.monotonic() > end:
                fail(f"the head did not answer at {address} within {seconds:g} seconds: {error}")
        time.sleep(0.1)


def with_address(arguments, own, seconds):
    """Returns the arguments with the node's own address, and with the head's instead of its name."""
    arguments = list(arguments)
    try:
        arguments[arguments.index("--node-ip-address") + 1] = reachable(own)
    except (ValueError, IndexError):
        fail("--gpucl-address needs --node-ip-address, which it replaces")
    except OSError as error:
        fail(f"this host has no address for the others: {error}")
    if "--address" in arguments[:-1]:
        at = arguments.index("--address") + 1
        host, port = split(arguments[at])
        end = time.monotonic() + seconds
        while True:
            try:
                arguments[at] = joined(reachable(host), port)
                break
            except OSError as error:
                if time.monotonic() > end:
                    fail(f"the address of the head's host is not known here: {error}")
            time.sleep(1)
    return arguments


def keep_inside(services, constants, here):
    """Patches Ray so that what no other host needs stays on the loopback although the node's address is another."""
    start = services.start_ray_process

    def start_inside(command, process_type, *rest, **named):
        command = list(command)
        if process_type == constants.PROCESS_TYPE_RAY_CLIENT_SERVER:
            hosts = [at for at, word in enumerate(command) if word.startswith("--host=")]
            if len(hosts) != 1:
                fail("the Ray Client server takes no --host: gpucl does not know how to keep it on the loopback")
            command[hosts[0]] = f"--host={LOOPBACK}"
        elif process_type in (constants.PROCESS_TYPE_MONITOR, constants.PROCESS_TYPE_DASHBOARD):
            scripts = [at for at, word in enumerate(command) if word.endswith(".py")]
            if not scripts:
                fail(f"the process {process_type} of Ray is no script: gpucl does not know how to keep it on the loopback")
            command.insert(scripts[0], os.path.join(here, "inner.py"))
        return start(command, process_type, *rest, **named)

    services.start_ray_process = start_inside


def prepare_ray(own):
    """Imports Ray and patches it to stay on the loopback, except where other hosts need it at the address `own`.

    Returns the entry point of its command line.
    """
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
        (services, "start_ray_process"),
        (constants, "PROCESS_TYPE_RAY_CLIENT_SERVER"),
        (constants, "PROCESS_TYPE_MONITOR"),
        (constants, "PROCESS_TYPE_DASHBOARD"),
    ):
        if not hasattr(module, name):
            fail(f"{moved}: {module.__name__} has no {name}")
    here = os.path.dirname(os.path.abspath(__file__))
    # Ray joins it to a folder of its own, which an absolute path replaces.
    constants.SETUP_WORKER_FILENAME = os.path.join(here, "worker.py")
    python_command = services._build_python_executable_command_memory_profileable

    def command_of(component, *rest, **named):
        command = python_command(component, *rest, **named)
        if component != constants.PROCESS_TYPE_DASHBOARD_AGENT:
            return command
        inner = [os.path.join(here, "inner.py")] if own else []
        return [*command, *inner, os.path.join(here, "agent.py")]

    services._build_python_executable_command_memory_profileable = command_of
    constants.ENABLE_RAY_CLUSTER = True
    services.get_node_ip_address = lambda *_, **__: own or LOOPBACK
    if own:
        keep_inside(services, constants, here)
    return main


def main():
    """Removes our own arguments and runs `ray`."""
    seconds, own = 60.0, None
    arguments = sys.argv[1:]
    while arguments[:1] in (["--gpucl-wait"], ["--gpucl-address"]) and len(arguments) > 1:
        name, value, *arguments = arguments
        if name == "--gpucl-address":
            own = value
            continue
        try:
            seconds = float(value)
        except ValueError:
            fail(f"--gpucl-wait takes a number of seconds, not {value!r}")
    variable = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
    if own is None and os.environ.get(variable) != "0":
        fail(f"{variable}=0 is not set, so Ray would listen on all addresses")
    if own is not None and os.environ.get(variable) != "1":
        fail(f"{variable}=1 is not set, so Ray would not join other hosts")
    if own is not None:
        arguments = with_address(arguments, own, seconds)
        own = arguments[arguments.index("--node-ip-address") + 1]
    start_several_at_once("--head" in arguments)
    sys.argv = ["ray", *arguments]
    ray_main = prepare_ray(own)
    address = head_address(arguments)
    here = os.path.dirname(os.path.abspath(__file__))
    drain_unless(None if address is None else os.path.join(here, "run/.ending"))
    end_when_lost()
    if address is not None:
        wait_for(address, seconds)
        if not wait_for_head_node(address, seconds):
            fail(f"the head at {address} did not become a node of its own cluster within {seconds:g} seconds")
    sys.exit(ray_main())


if __name__ == "__main__":
    main()
