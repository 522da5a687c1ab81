"""Finds the address by which other machines reach one. Standard library only."""

import socket


def reachable(name):
    """Returns the address of a name, or of an address, that other machines can reach; IPv4 comes first.

    Raises OSError when there is none: many machines know their own name only as 127.0.1.1.
    """
    found = socket.getaddrinfo(name, None, proto=socket.IPPROTO_TCP)
    found.sort(key=lambda one: one[0] != socket.AF_INET)
    outer = [one[4][0] for one in found if not one[4][0].startswith("127.") and one[4][0] != "::1"]
    if not outer:
        raise OSError(f"{name} is only the loopback here ({', '.join(sorted({one[4][0] for one in found}))})")
    return outer[0]
