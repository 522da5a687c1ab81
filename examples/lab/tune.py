"""The same training with Ray Tune: batch sizes and dropouts, and ASHA, which stops those that fall behind."""

import argparse
import os
import pathlib
import time

import food
import torch
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
    device = "cuda" if torch.cuda.is_available() else "cpu"
    train, check = food.loaders(config["batch_size"])
    model = food.network(config["dropout"]).to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    for _ in range(config["epochs"]):
        food.epoch(model, optimizer, train, device)
        tune.report({"accuracy": food.accuracy(model, check, device)})


results = tune.Tuner(
    tune.with_resources(train, {"cpu": arguments.cpus, "gpu": arguments.gpus}),
    param_space={
        "batch_size": tune.choice([32, 64]),
        "dropout": tune.uniform(0.1, 0.8),
        "epochs": arguments.epochs,
    },
    tune_config=tune.TuneConfig(
        metric="accuracy",
        mode="max",
        num_samples=arguments.samples,
        scheduler=ASHAScheduler(max_t=arguments.epochs, grace_period=1, reduction_factor=2),
    ),
    run_config=tune.RunConfig(name=f"lab-tune-{time.time():.0f}", storage_path=storage(), verbose=1),
).fit()
best = results.get_best_result()
print(f"the best of {len(results)}: accuracy {best.metrics['accuracy']:.3f} with {best.config}")
