"""Trains a small model with Ray Train, is killed in the middle, and goes on from the last checkpoint.

    python resume.py                     a worker kills itself at epoch 4; Ray Train starts it again
    python resume.py --name NAME         a run with a name goes on where the last one of that name ended
"""

import argparse
import json
import os
import pathlib
import tempfile
import time

import numpy
import ray.train
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer


def storage():
    """A place that all workers reach, and that is there after they are gone."""
    if os.environ.get("AWS_ENDPOINT_URL"):
        return "s3://ray"
    return os.environ.get("GPUCL_DATA") or str(pathlib.Path.home() / "gpucl-examples")


def data(seed, rows=4000, columns=20):
    """Points on two sides of a plane, which is always the same, with some noise."""
    plane = numpy.random.default_rng(0).normal(size=columns)
    random = numpy.random.default_rng(seed)
    points = random.normal(size=(rows, columns))
    return points, (points @ plane + random.normal(scale=0.5, size=rows) > 0).astype(float)


def train(config):
    points, sides = data(seed=1)
    test_points, test_sides = data(seed=2)
    weights, first = numpy.zeros(points.shape[1]), 0
    checkpoint = ray.train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as folder:
            saved = json.loads(pathlib.Path(folder, "model.json").read_text())
        weights, first = numpy.array(saved["weights"]), saved["epoch"] + 1
        print(f"resumed from the checkpoint of epoch {saved['epoch']}", flush=True)

    for epoch in range(first, config["epochs"]):
        if epoch == config["kill_at"] and not checkpoint:
            print(f"epoch {epoch}: this process kills itself", flush=True)
            time.sleep(1)  # so that the line is seen
            os._exit(1)
        chance = 1 / (1 + numpy.exp(-points @ weights))
        weights -= 0.5 * points.T @ (chance - sides) / len(sides)
        accuracy = float(((test_points @ weights > 0) == test_sides).mean())
        time.sleep(config["seconds"])
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "model.json").write_text(json.dumps({"epoch": epoch, "weights": weights.tolist()}))
            ray.train.report({"epoch": epoch, "accuracy": accuracy}, ray.train.Checkpoint.from_directory(folder))
        print(f"epoch {epoch}: accuracy {accuracy:.3f}", flush=True)


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--name", default=f"resume-{int(time.time())}")
    arguments.add_argument("--epochs", type=int, default=8)
    arguments.add_argument("--kill-at", type=int, default=4, help="an epoch; -1: never")
    arguments.add_argument("--seconds", type=float, default=0.5, help="how long an epoch takes at least")
    arguments = arguments.parse_args()
    trainer = DataParallelTrainer(
        train,
        train_loop_config={"epochs": arguments.epochs, "kill_at": arguments.kill_at, "seconds": arguments.seconds},
        scaling_config=ray.train.ScalingConfig(num_workers=1, resources_per_worker={"CPU": 1}),
        run_config=ray.train.RunConfig(
            name=arguments.name,
            storage_path=storage(),
            # A worker that is lost is started again, up to three times, on any node that has room.
            failure_config=ray.train.FailureConfig(max_failures=3),
            checkpoint_config=ray.train.CheckpointConfig(num_to_keep=2),
        ),
    )
    result = trainer.fit()
    print(f"checkpoints: {result.path}")
    if result.metrics:
        print(f"trained to epoch {result.metrics['epoch']}, accuracy {result.metrics['accuracy']:.3f}")


main()
