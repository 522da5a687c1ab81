"""Asks the application what the dishes in `dishes.json` are. It runs on your machine: `python3 ask.py`."""

import json
import pathlib
import subprocess
import urllib.request

# `gpucl serve url` holds the way to the application open as long as it runs.
way = subprocess.Popen(["gpucl", "serve", "url", "--output", "json"], stdout=subprocess.PIPE, text=True)
try:
    address = json.loads(way.stdout.readline())
    points = json.loads((pathlib.Path(__file__).parent / "dishes.json").read_text())
    request = urllib.request.Request(
        address["url"], data=json.dumps({"points": points}).encode(), headers={"X-Gpucl-Key": address["key"]}
    )
    # Past a proxy of this machine's environment: the address is on the loopback.
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60) as answer:
        print(answer.read().decode())
finally:
    way.terminate()
    way.wait()
