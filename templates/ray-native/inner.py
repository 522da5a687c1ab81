"""Starts a server of Ray so that its metrics, which want no token, stay on the loopback.

    python inner.py SCRIPT ARGUMENTS...

A node whose address is not the loopback would serve them on all addresses of its machine. Nothing in the cluster reads
them over the network. A Ray that serves them in another way opens them: the check `closed ports` finds that.

Needs the standard library; the server's own script follows.
"""

import os
import runpy
import sys
import wsgiref.simple_server

LOOPBACK = "127.0.0.1"


def main():
    """Replaces the two ways in which Ray serves metrics, and goes on as the server's own script."""
    script = sys.argv[1]
    make_server = wsgiref.simple_server.make_server
    wsgiref.simple_server.make_server = lambda _, *rest, **named: make_server(LOOPBACK, *rest, **named)
    try:
        import prometheus_client
    except ImportError:  # then it serves none
        pass
    else:
        serve = prometheus_client.start_http_server
        prometheus_client.start_http_server = lambda port, _=None, *rest, **named: serve(port, **{**named, "addr": LOOPBACK})
    sys.path[0] = os.path.dirname(script)
    sys.argv = sys.argv[1:]
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
