"""The same training with Ray Train: on one or several workers, with checkpoints, and on after a failure."""

import argparse
import os
import pathlib
import tempfile
import time

import food
import ray.train
import ray.train.torch
import torch


def storage():
    """A place that all workers reach, and that is there after they are gone."""
    if os.environ.get("AWS_ENDPOINT_URL"):
        return "s3://ray"
    return os.environ.get("GPUCL_DATA") or str(pathlib.Path.home() / "gpucl-examples")


def train(config):
    train, check = (ray.train.torch.prepare_data_loader(loader) for loader in food.loaders(config["batch_size"]))
    model = ray.train.torch.prepare_model(food.network())
    plain = model.module if hasattr(model, "module") else model
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    device = ray.train.torch.get_device()

    first = 0
    checkpoint = ray.train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as folder:
            saved = torch.load(os.path.join(folder, "checkpoint.pt"), map_location="cpu")
        plain.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first = saved["epoch"] + 1
        print(f"resumed after epoch {saved['epoch']}", flush=True)

    for epoch in range(first, config["epochs"]):
        if ray.train.get_context().get_world_size() > 1:
            train.sampler.set_epoch(epoch)
        food.epoch(model, optimizer, train, device)
        metrics = {"epoch": epoch, "accuracy": food.accuracy(model, check, device)}
        if ray.train.get_context().get_world_rank() > 0:
            ray.train.report(metrics)
            continue
        with tempfile.TemporaryDirectory() as folder:
            state = {"model": plain.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
            torch.save(state, os.path.join(folder, "checkpoint.pt"))
            ray.train.report(metrics, ray.train.Checkpoint.from_directory(folder))
        print(f"epoch {epoch}: accuracy {metrics['accuracy']:.3f}", flush=True)


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--workers", type=int, default=1)
    arguments.add_argument("--gpus", type=float, default=1, help="of each worker; 0: train on CPUs")
    arguments.add_argument("--cpus", type=float, default=8, help="of each worker")
    arguments.add_argument("--epochs", type=int, default=5)
    arguments = arguments.parse_args()
    resources = {"CPU": arguments.cpus} | ({"GPU": arguments.gpus} if arguments.gpus else {})
    trainer = ray.train.torch.TorchTrainer(
        train,
        train_loop_config={"epochs": arguments.epochs, "batch_size": 32},
        scaling_config=ray.train.ScalingConfig(
            num_workers=arguments.workers, use_gpu=arguments.gpus > 0, resources_per_worker=resources
        ),
        run_config=ray.train.RunConfig(
            name=f"lab-{time.time():.0f}-{os.getpid()}",
            storage_path=storage(),
            failure_config=ray.train.FailureConfig(max_failures=2),
        ),
    )
    result = trainer.fit()
    print(f"accuracy {result.metrics['accuracy']:.3f}, checkpoints: {result.path}")


main()
