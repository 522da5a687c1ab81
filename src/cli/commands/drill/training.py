"""The training of `gpucl drill`: slow steps, a checkpoint after every few, and no other purpose than to be interrupted.

    python training.py NAME [NODE]      NODE: the id of the Ray node that it begins on

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


@ray.remote
class Busy:
    """Holds the CPUs of a node, so that the training begins on another."""

    def ready(self):
        return True


def train(config):
    """Finds the lowest point of a parabola, by gradient descent."""
    weight, done = 0.0, 0
    checkpoint = ray.train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as folder:
            saved = json.loads(pathlib.Path(folder, "model.json").read_text())
        weight, done = saved["weight"], saved["checkpoint"]
    say("started", node=ray.get_runtime_context().get_node_id(), checkpoint=done, step=done * STEPS)
    for name in config["busy"]:
        try:
            ray.kill(ray.get_actor(name))
        except ValueError:
            pass  # it was ended the first time
    last = done + MORE if checkpoint else MOST
    for number in range(done + 1, last + 1):
        for step in range((number - 1) * STEPS + 1, number * STEPS + 1):
            time.sleep(SECONDS)
            weight -= 0.1 * (weight - 3)
            say("step", step=step)
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "model.json").write_text(json.dumps({"checkpoint": number, "weight": weight}))
            ray.train.report({"weight": weight}, ray.train.Checkpoint.from_directory(folder))
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


def storage():
    """A place that all workers reach, and that is there after they are gone."""
    return "s3://ray" if os.environ.get("AWS_ENDPOINT_URL") else os.environ["GPUCL_DATA"]


def clean(name, busy):
    """Removes the checkpoints, and whatever holds CPUs."""
    import pyarrow.fs

    for actor in busy:
        try:
            ray.kill(ray.get_actor(actor))
        except ValueError:
            pass  # the training has ended it
    files, folder = pyarrow.fs.FileSystem.from_uri(f"{storage()}/{name}")
    if files.get_file_info(folder).type == pyarrow.fs.FileType.Directory:
        files.delete_dir(folder)


def main():
    name = sys.argv[1]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    ray.init(namespace=name)
    busy = keep_others_busy(sys.argv[2], name) if len(sys.argv) > 2 else []
    try:
        DataParallelTrainer(
            train,
            train_loop_config={"busy": busy},
            scaling_config=ray.train.ScalingConfig(num_workers=1, resources_per_worker={"CPU": 1}),
            run_config=ray.train.RunConfig(
                name=name,
                storage_path=storage(),
                failure_config=ray.train.FailureConfig(max_failures=3),
                checkpoint_config=ray.train.CheckpointConfig(num_to_keep=2),
            ),
        ).fit()
    finally:
        clean(name, busy)


main()
