"""The health check of a container: exits with 0 when each address answers 200 on its loopback.

    python3 health.py PORT/PATH ...

The engine runs it every second while a cluster starts, in every container, so it imports little: `urllib` alone takes
four times as long as the whole of this.
"""

import socket
import sys

# How long an address may take to answer, in seconds.
LIMIT = 5


def ask(address):
    """Returns the status line and the beginning of the answer of one address."""
    port, _, path = address.partition("/")
    request = f"GET /{path} HTTP/1.0\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n"
    answer = b""
    with socket.create_connection(("127.0.0.1", int(port)), timeout=LIMIT) as connection:
        connection.sendall(request.encode())
        while len(answer) < 4096 and (part := connection.recv(4096)):
            answer += part
    head, _, body = answer.partition(b"\r\n\r\n")
    return head.split(b"\r\n")[0].decode(errors="replace"), body[:200].decode(errors="replace")


def main():
    """Checks the addresses on the command line."""
    for address in sys.argv[1:]:
        try:
            status, body = ask(address)
        except OSError as error:
            status, body = str(error), ""
        if status.split(" ")[1:2] != ["200"]:
            print(f"{address}: {status} {body}")
            sys.exit(1)
    print("ok")


if __name__ == "__main__":
    main()
