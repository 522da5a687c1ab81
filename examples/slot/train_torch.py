"""The same with PyTorch: several workers train one model together, save in the last minutes, and go on on the next cluster.

    python train_torch.py --storage s3://my-bucket/runs
"""

import argparse
import os
import tempfile
import time

import ray.train
import ray.train.torch
import torch
from torch import nn


def batches(seed, size=64):
    """Points on two sides of a plane, which is always the same, without an end."""
    plane = torch.randn(20, generator=torch.Generator().manual_seed(0))
    random = torch.Generator().manual_seed(seed)
    while True:
        points = torch.randn(size, 20, generator=random)
        yield points, (points @ plane > 0).float()


def train(config):
    context, device = ray.train.get_context(), ray.train.torch.get_device()
    leads = context.get_world_rank() == 0
    model = ray.train.torch.prepare_model(nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 1)))
    plain = model.module if hasattr(model, "module") else model
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)

    # 1. Go on from the newest checkpoint of this name, of whichever cluster it is. The optimizer has a state, too.
    first = 0
    checkpoint = ray.train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as folder:
            saved = torch.load(os.path.join(folder, "model.pt"), map_location="cpu")
        plain.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first = saved["step"] + 1
        if leads:
            print(f"goes on after step {saved['step']}", flush=True)

    # Each worker has its own data, and others after it goes on.
    data = batches(seed=1 + first * context.get_world_size() + context.get_world_rank())
    for step in range(first, config["steps"]):
        points, sides = (part.to(device) for part in next(data))
        loss = nn.functional.binary_cross_entropy_with_logits(model(points).squeeze(1), sides)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        time.sleep(config["seconds"])
        if leads:
            print(f"step {step}", flush=True)

        # 2. Does the cluster end? All workers ask, in each step: they agree on the answer, and wait for each other.
        end = ray.train.get_preemption_info()

        # 3. Save as often as the work between two checkpoints is worth, and at the end in any case. All workers report; the
        #    first has the checkpoint, with the step in its name.
        if end or (step + 1) % config["every"] == 0 or step + 1 == config["steps"]:
            with tempfile.TemporaryDirectory() as folder:
                state = {"model": plain.state_dict(), "optimizer": optimizer.state_dict(), "step": step}
                torch.save(state, os.path.join(folder, "model.pt"))
                here = ray.train.Checkpoint.from_directory(folder) if leads else None
                ray.train.report({"step": step, "loss": loss.item()}, here, checkpoint_dir_name=f"checkpoint-{step:05}")

        # 4. Return: Ray Train would otherwise wait for other nodes to go on with, and none will come.
        if end:
            return


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--name", default="slot-torch", help="the same name again goes on where the last run ended")
    arguments.add_argument("--storage", required=True, help="what outlives the cluster: s3://bucket/runs, or a folder")
    arguments.add_argument("--workers", type=int, default=2)
    arguments.add_argument("--gpus", type=float, default=0, help="of each worker; 0: train on CPUs")
    arguments.add_argument("--steps", type=int, default=300)
    arguments.add_argument("--every", type=int, default=20, help="steps from one checkpoint to the next")
    arguments.add_argument("--seconds", type=float, default=1, help="how long a step takes at least")
    arguments = arguments.parse_args()
    resources = {"CPU": 1} | ({"GPU": arguments.gpus} if arguments.gpus else {})
    trainer = ray.train.torch.TorchTrainer(
        train,
        train_loop_config={"steps": arguments.steps, "every": arguments.every, "seconds": arguments.seconds},
        scaling_config=ray.train.ScalingConfig(
            num_workers=arguments.workers, use_gpu=arguments.gpus > 0, resources_per_worker=resources
        ),
        # 5. The same name and storage on each cluster: that is how the next one finds the checkpoint.
        run_config=ray.train.RunConfig(
            name=arguments.name,
            storage_path=arguments.storage,
            failure_config=ray.train.FailureConfig(max_failures=3),
            checkpoint_config=ray.train.CheckpointConfig(num_to_keep=2),
        ),
    )
    result = trainer.fit()
    saved = result.metrics["step"]
    said = "ended" if saved + 1 < arguments.steps else "trained"
    print(f"{said} at step {saved} of {arguments.steps}, loss {result.metrics['loss']:.3f}, checkpoint {result.checkpoint.path}")


main()
