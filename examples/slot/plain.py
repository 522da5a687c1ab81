"""A training without Ray Train: it looks for the file that is there in the last minutes, saves, and ends.

    python plain.py --saved ~/gpucl-slot/results        the same command again, on another cluster: it goes on
"""

import argparse
import json
import os
import pathlib
import signal
import time

# This file is in the data folder of the head's host once the end has begun, and goes if the end is called off.
DATA = pathlib.Path(os.environ.get("GPUCL_DATA", "."))
ENDS = DATA / ".gpucl-end.json"
stopped = False


def stop(*_):
    """Takes note of SIGTERM, which `gpucl job stop` sends, and the end of the cluster to whoever still runs."""
    global stopped
    stopped = True


def save(folder, step, weight):
    """Writes a checkpoint that is whole or not there, under a name that has its step."""
    path = folder / f"checkpoint-{step:05}.json"
    beside = path.with_suffix(".part")
    with open(beside, "w", encoding="utf-8") as file:
        json.dump({"step": step, "weight": weight}, file)
        file.flush()
        os.fsync(file.fileno())
    beside.rename(path)


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--to", type=pathlib.Path, default=DATA / "results", help="the folder for checkpoints")
    arguments.add_argument("--saved", type=pathlib.Path, help="where `save` of the spec copied those of the last cluster")
    arguments.add_argument("--steps", type=int, default=300)
    arguments.add_argument("--every", type=int, default=20, help="steps from one checkpoint to the next")
    arguments.add_argument("--seconds", type=float, default=1, help="how long a step takes at least")
    arguments = arguments.parse_args()
    signal.signal(signal.SIGTERM, stop)
    arguments.to.mkdir(parents=True, exist_ok=True)

    weight, first = 0.0, 0
    folders = [arguments.to] + ([arguments.saved] if arguments.saved else [])
    there = [path for folder in folders for path in folder.glob("checkpoint-*.json")]
    for newest in sorted(there, key=lambda path: path.name)[-1:]:
        saved = json.loads(newest.read_text())
        weight, first = saved["weight"], saved["step"] + 1
        print(f"goes on after step {saved['step']}", flush=True)

    for step in range(first, arguments.steps):
        weight += (1 - weight) / 50
        time.sleep(arguments.seconds)
        print(f"step {step}", flush=True)
        end = stopped or ENDS.exists()
        if end or (step + 1) % arguments.every == 0 or step + 1 == arguments.steps:
            save(arguments.to, step, weight)
        if end:
            print(f"ended at step {step} of {arguments.steps}; the same command goes on")
            return
    print(f"trained to step {arguments.steps - 1}, weight {weight:.3f}")


main()
