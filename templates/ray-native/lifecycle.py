"""Where a node starts and ends differently from plain Ray. Needs Ray, which is imported when it is used."""

import os
import signal
import time

# Without one of these processes, a node is none.
ESSENTIAL = ("raylet", "gcs_server")
# Exit codes after which `ray start --block` goes on as if nothing had happened (ray 2.60.0, `scripts.py`): a raylet that
# was drained ends with 0, and one that was asked to end with SIGTERM's.
UNNOTICED = (0, signal.SIGTERM, -signal.SIGTERM, 128 + signal.SIGTERM)
# Seconds between two questions to the head whether this node is still one of its cluster, and for the answer.
ASK_EVERY = 10
ANSWER_WITHIN = 3
# `GcsNodeInfo.DEAD` in Ray's `gcs.proto`.
DEAD = 1
# By itself Ray starts as many worker processes at once as the node has CPUs, one on a head without. Of a job whose
# processes end at their start it notices each after a minute (ray 2.60.0): meanwhile no other job would start, nor what
# cancels that one.
STARTS_AT_ONCE = "RAY_worker_maximum_startup_concurrency"
LEAST = 16


def start_several_at_once(is_head):
    """Lets a head start several worker processes at once, unless the environment says how many."""
    if is_head:
        os.environ.setdefault(STARTS_AT_ONCE, str(max(LEAST, os.cpu_count() or 1)))


def wait_for_head_node(address, seconds):
    """Waits until the head's own node is registered in its cluster; returns whether it is.

    Ray's own `start` polls for it only every two seconds, twenty times, and then gives up. Where this Ray cannot be
    asked from here, its own wait remains, and the answer is yes.
    """
    try:
        from ray._raylet import GcsClient

        client = GcsClient(address=address)
    except Exception:
        return True
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            if any(node.is_head_node for node in client.get_all_node_info(timeout=5).values()):
                return True
        except (AttributeError, TypeError):
            return True
        except Exception:  # it may refuse while it starts
            pass
        time.sleep(0.1)
    return False


def drain_unless(path=None):
    """Ends this node at once on SIGTERM if the file exists then; without a path, always.

    Ray 2.60 lets a node first finish what it runs, for up to 30 s, so that other nodes can take over from it. They
    cannot when its whole cluster ends, or its head.
    """
    from ray._private.node import Node

    drain = getattr(Node, "_drain_node_before_shutdown", None)
    if drain is None:  # older ones never do that
        return

    def drain_if_it_helps(node):
        if path and not os.path.exists(path):
            drain(node)

    Node._drain_node_before_shutdown = drain_if_it_helps


def end_when_lost():
    """Ends this node when Ray has lost it: when its raylet has ended, or the head says that it is dead.

    `ray start --block` would stay, so that whoever started it takes it for running, while no task ever comes here again.
    Whoever supervises the node starts it anew. Ray never takes back a node that it once declared dead.
    """
    from ray._private.node import Node

    dead_processes = getattr(Node, "dead_processes", None)
    if dead_processes is None:
        return
    due = time.monotonic() + ASK_EVERY

    def look(node):
        nonlocal due
        dead = dead_processes(node)
        for kind, process in dead:
            if kind in ESSENTIAL and process.returncode in UNNOTICED:
                end(node, f"its {kind} ended with exit code {process.returncode}")
        if time.monotonic() >= due:
            if is_dead(node):
                end(node, "the head says that it is dead")
            due = time.monotonic() + ASK_EVERY
        return dead

    Node.dead_processes = look


def is_dead(node):
    """Whether the head says that this node is dead; no where it cannot be asked."""
    try:
        known = node.get_gcs_client().get_all_node_info(timeout=ANSWER_WITHIN)
        return any(one.hex() == node.node_id and info.state == DEAD for one, info in known.items())
    except Exception:
        return False


def end(node, why):
    """Ends all processes of the node, and this one."""
    print(f"gpucl: Ray has lost this node: {why}; it ends, to be started anew", flush=True)
    node.kill_all_processes(check_alive=False, allow_graceful=False)
    os._exit(1)
