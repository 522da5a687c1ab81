"""Waits for the head's own node, oftener than Ray does. Needs Ray, which is imported when it is used."""

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
        except Exception:  # it may refuse while it starts
            pass
        time.sleep(0.1)
    return False
