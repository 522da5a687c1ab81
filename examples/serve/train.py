"""Trains the classifier on all workers with Ray Train, logs it to MLflow, and registers it as a version of `food`.

    python train.py                  a version that was trained for a short time
    python train.py --epochs 60      a better one
"""

import argparse
import asyncio
import json
import os
import pathlib
import tempfile
import time

import mlflow
import numpy
import ray
import ray.train
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

from model import DISHES, INGREDIENTS, chances, data


def storage():
    """A place that all workers reach, and that is there after they are gone."""
    if os.environ.get("AWS_ENDPOINT_URL"):
        return "s3://ray"
    return os.environ.get("GPUCL_DATA") or str(pathlib.Path.home() / "gpucl-examples")


@ray.remote(num_cpus=0)
class Mean:
    """Gives each worker the mean of what all of them sent for an epoch."""

    def __init__(self, workers):
        self.workers, self.epochs = workers, {}

    async def of(self, epoch, sent):
        all_sent, is_whole = self.epochs.setdefault(epoch, ([], asyncio.Event()))
        all_sent.append(sent)
        if len(all_sent) == self.workers:
            is_whole.set()
        await is_whole.wait()
        return sum(all_sent) / self.workers


def train(config):
    """What each worker does: it trains on its own dishes; the first one also logs."""
    rank = ray.train.get_context().get_world_rank()
    points, dishes = data(seed=1 + rank, rows=2000)
    test_points, test_dishes = data(seed=0, rows=2000)
    wanted = numpy.eye(len(DISHES))[dishes]
    weights = numpy.zeros((INGREDIENTS, len(DISHES)))
    if rank == 0:
        # The address and the login of MLflow are there already.
        mlflow.set_experiment("food")
        mlflow.start_run()
        mlflow.log_params({"epochs": config["epochs"], "rate": config["rate"]})
    for epoch in range(config["epochs"]):
        gradient = points.T @ (chances(weights, points) - wanted) / len(points)
        weights -= config["rate"] * ray.get(config["mean"].of.remote(epoch, gradient))
        accuracy = float((chances(weights, test_points).argmax(axis=1) == test_dishes).mean())
        if rank == 0:
            mlflow.log_metric("accuracy", accuracy, step=epoch)
    if rank > 0:
        ray.train.report({})
        return
    model = {"dishes": DISHES, "weights": weights.tolist()}
    version = register(model)
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "model.json").write_text(json.dumps(model))
        checkpoint = ray.train.Checkpoint.from_directory(folder)
        ray.train.report({"accuracy": accuracy, "version": version}, checkpoint)


def register(model):
    """Saves the model as an artifact of the run, and makes it the next version of `food`."""
    run, client = mlflow.active_run().info, mlflow.MlflowClient()
    mlflow.log_dict(model, "model/model.json")
    try:
        client.create_registered_model("food", description="tells dishes apart by their ingredients")
    except mlflow.MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    version = client.create_model_version("food", f"{run.artifact_uri}/model", run.run_id).version
    mlflow.end_run()
    return version


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--epochs", type=int, default=3)
    arguments.add_argument("--rate", type=float, default=0.3)
    arguments.add_argument("--workers", type=int, default=2)
    arguments = arguments.parse_args()
    config = {"epochs": arguments.epochs, "rate": arguments.rate, "mean": Mean.remote(arguments.workers)}
    result = DataParallelTrainer(
        train,
        train_loop_config=config,
        scaling_config=ray.train.ScalingConfig(
            num_workers=arguments.workers, resources_per_worker={"CPU": 0.5}, placement_strategy="SPREAD"
        ),
        run_config=ray.train.RunConfig(name=f"food-{int(time.time())}", storage_path=storage()),
    ).fit()
    print(f"registered food version {result.metrics['version']}: accuracy {result.metrics['accuracy']:.3f}")


main()
