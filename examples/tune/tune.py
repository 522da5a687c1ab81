"""Looks for good settings of a small model with Ray Tune; ASHA stops those that fall behind."""

import argparse
import os
import pathlib
import time

import numpy
from ray import tune
from ray.air.integrations.mlflow import MLflowLoggerCallback
from ray.tune.schedulers import ASHAScheduler

arguments = argparse.ArgumentParser(description=__doc__)
arguments.add_argument("--samples", type=int, default=16, help="how many settings to try")
arguments.add_argument("--epochs", type=int, default=16, help="the most epochs of one of them")
arguments.add_argument("--seconds", type=float, default=0.2, help="how long an epoch takes at least")
arguments.add_argument("--gpus", type=float, default=0, help="the part of a GPU that each of them asks for")
arguments = arguments.parse_args()


def storage():
    """A place that all workers reach, and that is there after they are gone."""
    if os.environ.get("AWS_ENDPOINT_URL"):
        return "s3://ray"
    return os.environ.get("GPUCL_DATA") or str(pathlib.Path.home() / "gpucl-examples")


def trackers():
    """What records each of them as a run in the cluster's MLflow, if it has one."""
    return [MLflowLoggerCallback(experiment_name="tune")] if os.environ.get("MLFLOW_TRACKING_URI") else []


def data(seed, rows=2000, columns=50):
    """Points on two sides of a plane, which is always the same, with some noise."""
    plane = numpy.random.default_rng(0).normal(size=columns)
    random = numpy.random.default_rng(seed)
    points = random.normal(size=(rows, columns))
    return points, (points @ plane + random.normal(scale=3, size=rows) > 0).astype(float)


def train(config):
    points, sides = data(seed=1)
    test_points, test_sides = data(seed=2)
    random = numpy.random.default_rng(3)
    weights = numpy.zeros(points.shape[1])
    for _ in range(config["epochs"]):
        for _ in range(len(points) // config["batch"]):
            rows = random.integers(0, len(points), config["batch"])
            kept = points[rows] * (random.random(weights.shape) > config["dropout"])
            chance = 1 / (1 + numpy.exp(-numpy.clip(kept @ weights, -30, 30)))
            weights -= config["rate"] * kept.T @ (chance - sides[rows]) / config["batch"]
        time.sleep(config["seconds"])
        tune.report({"accuracy": float(((test_points @ weights > 0) == test_sides).mean())})


tuner = tune.Tuner(
    tune.with_resources(train, {"cpu": 0.5, "gpu": arguments.gpus}),
    param_space={
        "rate": tune.loguniform(1e-4, 10),
        "batch": tune.choice([32, 64]),
        "dropout": tune.uniform(0.1, 0.8),
        "epochs": arguments.epochs,
        "seconds": arguments.seconds,
    },
    tune_config=tune.TuneConfig(
        metric="accuracy",
        mode="max",
        num_samples=arguments.samples,
        scheduler=ASHAScheduler(max_t=arguments.epochs, grace_period=1, reduction_factor=2),
    ),
    run_config=tune.RunConfig(
        name=f"tune-{int(time.time())}", storage_path=storage(), verbose=0, callbacks=trackers()
    ),
)
results = tuner.fit()
epochs = [result.metrics["training_iteration"] for result in results]
early = sum(number < arguments.epochs for number in epochs)
best = results.get_best_result()
print(f"{len(results)} settings tried, {early} of them stopped early")
print(f"{sum(epochs)} epochs instead of {len(results) * arguments.epochs}")
chosen = {name: best.config[name] for name in ("rate", "batch", "dropout")}
print(f"the best: accuracy {best.metrics['accuracy']:.3f} with {chosen}")
