"""The same training with Ray Tune: batch sizes and dropouts, and ASHA, which stops those that fall behind.

Options are those of `../tune.py`, which trains a real network with PyTorch.
"""

import argparse
import os
import pathlib
import time

import food
import numpy
from ray import tune
from ray.tune.schedulers import ASHAScheduler

arguments = argparse.ArgumentParser(description=__doc__)
arguments.add_argument("--samples", type=int, default=16)
arguments.add_argument("--epochs", type=int, default=20)
arguments.add_argument("--gpus", type=float, default=0.5, help="of each training; 0: train on CPUs")
arguments.add_argument("--cpus", type=float, default=4, help="of each training")
arguments = arguments.parse_args()


def storage():
    """A place that all workers reach, and that is there after they are gone."""
    if os.environ.get("AWS_ENDPOINT_URL"):
        return "s3://ray"
    return os.environ.get("GPUCL_DATA") or str(pathlib.Path.home() / "gpucl-examples")


def train(config):
    check, right = food.images(512, seed=1)
    random = numpy.random.default_rng(3)
    weights = food.network()
    for epoch in range(config["epochs"]):
        rows, labels = food.images(512, seed=2 + epoch)
        for part in food.batches(len(rows), config["batch_size"]):
            kept = random.random(weights.shape[0]) > config["dropout"]
            weights -= config["rate"] * food.gradient(weights, rows[part], labels[part], kept)
        tune.report({"accuracy": food.accuracy(weights, check, right)})


results = tune.Tuner(
    tune.with_resources(train, {"cpu": arguments.cpus, "gpu": arguments.gpus}),
    param_space={
        "batch_size": tune.choice([32, 64]),
        "dropout": tune.uniform(0.1, 0.8),
        "rate": tune.loguniform(1e-4, 0.1),
        "epochs": arguments.epochs,
    },
    tune_config=tune.TuneConfig(
        metric="accuracy",
        mode="max",
        num_samples=arguments.samples,
        scheduler=ASHAScheduler(max_t=arguments.epochs, grace_period=1, reduction_factor=2),
    ),
    run_config=tune.RunConfig(name=f"lab-tune-{time.time():.0f}", storage_path=storage(), verbose=0),
).fit()
epochs = [result.metrics["training_iteration"] for result in results]
early = sum(number < arguments.epochs for number in epochs)
best = results.get_best_result()
chosen = {name: best.config[name] for name in ("batch_size", "dropout", "rate")}
print(f"{len(results)} trials, {early} of them stopped early")
print(f"the best: accuracy {best.metrics['accuracy']:.3f} with {chosen}")
