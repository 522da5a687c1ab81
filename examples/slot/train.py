"""A training that survives the end of its cluster: it saves in the last minutes, and goes on from there on the next one.

    python train.py --storage s3://my-bucket/runs        the same command again, on any cluster: it goes on
"""

import argparse
import json
import os
import pathlib
import tempfile
import time

import numpy
import ray.train
# Ray Train's second version: the class in `ray.train.data_parallel_trainer` is the first, which knows no end.
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer


def data(seed, rows=4000, columns=20):
    """Points on two sides of a plane, which is always the same, with some noise."""
    plane = numpy.random.default_rng(0).normal(size=columns)
    random = numpy.random.default_rng(seed)
    points = random.normal(size=(rows, columns))
    return points, (points @ plane + random.normal(scale=0.5, size=rows) > 0).astype(float)


def train(config):
    points, sides = data(seed=1)
    weights, first = numpy.zeros(points.shape[1]), 0
    leads = ray.train.get_context().get_world_rank() == 0

    # 1. Go on from the newest checkpoint of this name, of whichever cluster it is.
    checkpoint = ray.train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as folder:
            saved = json.loads(pathlib.Path(folder, "model.json").read_text())
        weights, first = numpy.array(saved["weights"]), saved["step"] + 1
        if leads:
            print(f"goes on after step {saved['step']}", flush=True)

    for step in range(first, config["steps"]):
        chance = 1 / (1 + numpy.exp(-points @ weights))
        weights -= 0.5 * points.T @ (chance - sides) / len(sides)
        time.sleep(config["seconds"])
        if leads:
            print(f"step {step}", flush=True)

        # 2. Does the cluster end? All workers ask, in each step: they agree on the answer, and wait for each other.
        end = ray.train.get_preemption_info()

        # 3. Save as often as the work between two checkpoints is worth, and at the end in any case. All workers report; the
        #    first has the checkpoint. The step is in its name, for whoever looks at the folder later.
        if end or (step + 1) % config["every"] == 0 or step + 1 == config["steps"]:
            metrics = {"step": step, "accuracy": float(((points @ weights > 0) == sides).mean())}
            with tempfile.TemporaryDirectory() as folder:
                pathlib.Path(folder, "model.json").write_text(json.dumps({"step": step, "weights": weights.tolist()}))
                here = ray.train.Checkpoint.from_directory(folder) if leads else None
                ray.train.report(metrics, here, checkpoint_dir_name=f"checkpoint-{step:05}")

        # 4. Return: Ray Train would otherwise wait for other nodes to go on with, and none will come.
        if end:
            return


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--name", default="slot", help="the same name again goes on where the last run of it ended")
    arguments.add_argument("--storage", required=True, help="what outlives the cluster: s3://bucket/runs, or a folder")
    arguments.add_argument("--workers", type=int, default=2)
    arguments.add_argument("--steps", type=int, default=300)
    arguments.add_argument("--every", type=int, default=20, help="steps from one checkpoint to the next")
    arguments.add_argument("--seconds", type=float, default=1, help="how long a step takes at least")
    arguments = arguments.parse_args()
    trainer = DataParallelTrainer(
        train,
        train_loop_config={"steps": arguments.steps, "every": arguments.every, "seconds": arguments.seconds},
        scaling_config=ray.train.ScalingConfig(num_workers=arguments.workers, resources_per_worker={"CPU": 1}),
        # 5. The same name and storage on each cluster: that is how the next one finds the checkpoint.
        run_config=ray.train.RunConfig(
            name=arguments.name,
            storage_path=arguments.storage,
            failure_config=ray.train.FailureConfig(max_failures=3),
            checkpoint_config=ray.train.CheckpointConfig(num_to_keep=2),
        ),
    )
    result = trainer.fit()
    # What else is worth keeping goes where the spec's `save` looks.
    results = pathlib.Path(os.environ.get("GPUCL_DATA", "."), "results")
    results.mkdir(exist_ok=True)
    results.joinpath(f"{arguments.name}.json").write_text(json.dumps(result.metrics))
    saved = result.metrics["step"]
    if saved + 1 < arguments.steps:
        print(f"ended at step {saved} of {arguments.steps}, checkpoint {result.checkpoint.path}; the same command goes on")
    else:
        print(f"trained to step {saved}, accuracy {result.metrics['accuracy']:.3f}, checkpoint {result.checkpoint.path}")


main()
