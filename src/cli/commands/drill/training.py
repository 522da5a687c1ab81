"""The training of `gpucl drill`: slow steps, a checkpoint after every few, and no other purpose than to be interrupted.

    python training.py NAME PLACE [NODE]

PLACE is where its checkpoints are: `s3://…`; `data`, the data folder of the only host; or `head`, a process on the
node of the head, where nodes share nothing. NODE is the id of the Ray node that it begins on.

It prints a line of JSON after `drill: ` for each thing that happens. It ends a few steps after it was resumed.
"""

import json
import os
import pathlib
import signal
import sys
import tempfile
import time

import ray
import ray.train
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

# Steps from one checkpoint to the next, the time of one in seconds, and the checkpoints after it was resumed.
STEPS, SECONDS, MORE = 8, 0.4, 1
# Without a fault it ends after so many checkpoints.
MOST = 150


def say(event, **what):
    """Prints what happened. Ray may show a line again, even much later: the time tells it from another that is alike."""
    print("drill: " + json.dumps({"event": event, **what, "at": time.time()}), flush=True)


@ray.remote(num_cpus=0)
class Shelf:
    """Keeps the last checkpoint, on the node where it is made, for workers that share no storage."""

    def __init__(self):
        self.model = None

    def put(self, model):
        self.model = model

    def get(self):
        return self.model


@ray.remote
class Busy:
    """Holds the CPUs of a node, so that the training begins on another."""

    def ready(self):
        return True


def load(shelf):
    """Returns the last checkpoint, or None."""
    if shelf:
        return ray.get(shelf.get.remote())
    checkpoint = ray.train.get_checkpoint()
    if not checkpoint:
        return None
    with checkpoint.as_directory() as folder:
        return json.loads(pathlib.Path(folder, "model.json").read_text())


def save(model, shelf):
    """Saves a checkpoint, and reports it."""
    metrics = {"weight": model["weight"]}
    if shelf:
        ray.get(shelf.put.remote(model))
        ray.train.report(metrics)
        return
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "model.json").write_text(json.dumps(model))
        ray.train.report(metrics, ray.train.Checkpoint.from_directory(folder))


def train(config):
    """Finds the lowest point of a parabola, by gradient descent."""
    shelf = config["shelf"] and ray.get_actor(config["shelf"])
    saved = load(shelf)
    weight, done = (saved["weight"], saved["checkpoint"]) if saved else (0.0, 0)
    say("started", node=ray.get_runtime_context().get_node_id(), checkpoint=done, step=done * STEPS)
    for name in config["busy"]:
        try:
            ray.kill(ray.get_actor(name))
        except ValueError:
            pass  # it was ended the first time
    last = done + MORE if saved else MOST
    for number in range(done + 1, last + 1):
        for step in range((number - 1) * STEPS + 1, number * STEPS + 1):
            time.sleep(SECONDS)
            weight -= 0.1 * (weight - 3)
            say("step", step=step)
        save({"checkpoint": number, "weight": weight}, shelf)
        say("checkpoint", checkpoint=number)


def keep_others_busy(node, name):
    """Takes the free CPUs of all nodes but this one; returns the names of the actors that hold them."""
    from ray._private.state import available_resources_per_node

    names = []
    for other, free in available_resources_per_node().items():
        if other != node and free.get("CPU", 0) > 0:
            names.append(f"{name}-busy-{len(names)}")
            place = NodeAffinitySchedulingStrategy(other, soft=False)
            Busy.options(name=names[-1], lifetime="detached", num_cpus=free["CPU"], scheduling_strategy=place).remote()
    for busy in names:
        ray.get(ray.get_actor(busy).ready.remote(), timeout=60)
    return names


def clean(name, storage, busy):
    """Removes what Ray Train has written, and whatever holds CPUs."""
    import pyarrow.fs

    for actor in busy:
        try:
            ray.kill(ray.get_actor(actor))
        except ValueError:
            pass  # the training has ended it
    files, folder = pyarrow.fs.FileSystem.from_uri(f"{storage}/{name}")
    if files.get_file_info(folder).type == pyarrow.fs.FileType.Directory:
        files.delete_dir(folder)


def main():
    name, place, *begin = sys.argv[1:]
    storage = place if place.startswith("s3:") else os.environ["GPUCL_DATA"]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    ray.init(namespace=name)
    shelf = None
    if place == "head":
        # A job's program runs on the node of the head. It ends with the job.
        here = NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), soft=False)
        shelf = f"{name}-shelf"
        keeper = Shelf.options(name=shelf, scheduling_strategy=here).remote()
        ray.get(keeper.get.remote(), timeout=60)
    busy = keep_others_busy(begin[0], name) if begin else []
    try:
        DataParallelTrainer(
            train,
            train_loop_config={"busy": busy, "shelf": shelf},
            scaling_config=ray.train.ScalingConfig(num_workers=1, resources_per_worker={"CPU": 1}),
            run_config=ray.train.RunConfig(
                name=name,
                storage_path=storage,
                failure_config=ray.train.FailureConfig(max_failures=3),
                checkpoint_config=ray.train.CheckpointConfig(num_to_keep=2),
            ),
        ).fit()
    finally:
        clean(name, storage, busy)


main()
