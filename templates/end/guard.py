"""Guards the end of a slot on one host. A stand-in with the form of the contract: it keeps the end that it is given.

    python3 guard.py run HOME           runs until SIGTERM
    python3 guard.py tell HOME < JSON   takes an end, and prints the state
"""

import json
import os
import signal
import sys
import time


def write(path, value):
    """Writes JSON atomically."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    with open(path + ".new", "w", encoding="utf-8") as file:
        json.dump(value, file)
    os.replace(path + ".new", path)


def main():
    """Runs the command given on the command line."""
    command, home = sys.argv[1], sys.argv[2]
    if command == "tell":
        write(home + "/guard/end.json", json.load(sys.stdin))
        print(json.dumps({"v": 1, "phase": "waiting"}))
        return
    with open(home + "/guard.json", encoding="utf-8") as file:
        json.load(file)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    while True:
        time.sleep(1)


if __name__ == "__main__":
    main()
