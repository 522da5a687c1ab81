"""Trains a ResNet-18 with several workers, and saves a checkpoint after each epoch.

The images have the shape of FashionMNIST (28x28 grey pixels, ten classes) and are made on the spot: nothing is
downloaded. What Ray Train adds to a plain PyTorch program is numbered.
"""

import argparse
import os
import pathlib
import tempfile
import time

import ray.train
import ray.train.torch
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torchvision.models import resnet18


def storage():
    """A place that all workers reach, and that is there after they are gone."""
    if os.environ.get("AWS_ENDPOINT_URL"):
        return "s3://ray"
    return os.environ.get("GPUCL_DATA") or str(pathlib.Path.home() / "gpucl-examples")


def images(number, seed):
    """Each class is a pattern of its own; an image is its pattern under noise."""
    patterns = torch.rand(10, 1, 28, 28, generator=torch.Generator().manual_seed(0))
    random = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 10, (number,), generator=random)
    pixels = (patterns[labels] + 2 * torch.rand(number, 1, 28, 28, generator=random)) / 3
    return TensorDataset((pixels - 0.5) / 0.5, labels)


def train_epoch(model, optimizer, criterion, loader):
    model.train()
    for data, target in loader:
        loss = criterion(model(data), target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def test(model, loader):
    model.eval()
    correct = total = 0
    with torch.no_grad():
        for data, target in loader:
            correct += (model(data).argmax(1) == target).sum().item()
            total += target.size(0)
    return correct / total


def train(config):
    train_loader = DataLoader(images(config["images"], seed=1), batch_size=64, shuffle=True)
    test_loader = DataLoader(images(config["images"] // 4, seed=2), batch_size=64)
    # 1. Each worker gets a part of the data, on its device.
    train_loader = ray.train.torch.prepare_data_loader(train_loader)
    test_loader = ray.train.torch.prepare_data_loader(test_loader)

    model = resnet18(num_classes=10)
    # The images have one channel instead of three.
    model.conv1 = nn.Conv2d(1, 64, kernel_size=7, stride=2, padding=3, bias=False)
    # 2. Each worker gets the model, on its device; gradients are averaged over all of them.
    model = ray.train.torch.prepare_model(model)
    plain = model.module if hasattr(model, "module") else model
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)

    # 3. After a failure, the last checkpoint is there.
    first = 0
    checkpoint = ray.train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as folder:
            saved = torch.load(os.path.join(folder, "model.pt"), map_location="cpu")
        plain.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first = saved["epoch"] + 1

    context = ray.train.get_context()
    for epoch in range(first, config["epochs"]):
        if context.get_world_size() > 1:
            train_loader.sampler.set_epoch(epoch)
        train_epoch(model, optimizer, criterion, train_loader)
        metrics = {"acc": test(model, test_loader), "epoch": epoch}
        # 4. Metrics are reported by all workers, and saved with the checkpoint of the first.
        if context.get_world_rank() > 0:
            ray.train.report(metrics)
            continue
        with tempfile.TemporaryDirectory() as folder:
            state = {"model": plain.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
            torch.save(state, os.path.join(folder, "model.pt"))
            ray.train.report(metrics, ray.train.Checkpoint.from_directory(folder))
        print(metrics, flush=True)


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--workers", type=int, default=4)
    arguments.add_argument("--cpus", type=float, default=0.5, help="of each worker")
    arguments.add_argument("--gpus", type=float, default=0, help="of each worker; 0: train on CPUs")
    arguments.add_argument("--epochs", type=int, default=10)
    arguments.add_argument("--images", type=int, default=4096)
    arguments.add_argument("--name", default=f"train-{int(time.time())}", help="the same name again: go on from there")
    arguments = arguments.parse_args()

    resources = {"CPU": arguments.cpus} | ({"GPU": arguments.gpus} if arguments.gpus else {})
    trainer = ray.train.torch.TorchTrainer(
        train,
        train_loop_config={"epochs": arguments.epochs, "images": arguments.images},
        # 5. How many workers, and what each of them gets.
        scaling_config=ray.train.ScalingConfig(
            num_workers=arguments.workers, use_gpu=arguments.gpus > 0, resources_per_worker=resources
        ),
        run_config=ray.train.RunConfig(
            name=arguments.name,
            storage_path=storage(),
            failure_config=ray.train.FailureConfig(max_failures=2),
            checkpoint_config=ray.train.CheckpointConfig(num_to_keep=2),
        ),
    )
    result = trainer.fit()
    print(f"checkpoints: {result.path}")
    if result.metrics:
        print(f"accuracy {result.metrics['acc']:.3f} after epoch {result.metrics['epoch']}")


main()
