"""Where a node starts and ends differently from plain Ray. Needs Ray, which is imported when it is used."""

import os
import time


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
