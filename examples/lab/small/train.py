"""The same training with Ray Train's own data-parallel trainer: on several workers, with checkpoints, resumable.

Options, output and checkpoints are those of `../train.py`, which trains a real network with PyTorch.
"""

import argparse
import json
import os
import pathlib
import tempfile
import time

import food
import numpy
import ray
import ray.train
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer


def storage():
    """A place that all workers reach, and that is there after they are gone."""
    if os.environ.get("AWS_ENDPOINT_URL"):
        return "s3://ray"
    return os.environ.get("GPUCL_DATA") or str(pathlib.Path.home() / "gpucl-examples")


@ray.remote(num_cpus=0)
class Average:
    """What PyTorch does with NCCL or gloo: the mean of an array over all workers, as each of them asks for it."""

    def __init__(self, workers):
        self.workers, self.sums, self.left = workers, {}, {}

    def add(self, step, array):
        """Adds a worker's part of a step."""
        total, number = self.sums.get(step, (0, 0))
        self.sums[step] = (total + array, number + 1)

    def mean(self, step):
        """The mean, once all workers have added theirs; until then nothing."""
        total, number = self.sums[step]
        if number < self.workers:
            return None
        self.left[step] = self.left.get(step, self.workers) - 1
        if self.left[step] == 0:
            del self.sums[step], self.left[step]
        return total / number


def averaged(average, step, array):
    """The mean of an array over all workers."""
    if average is None:
        return array
    ray.get(average.add.remote(step, array))
    while (mean := ray.get(average.mean.remote(step))) is None:
        time.sleep(0.01)
    return mean


def train(config):
    context = ray.train.get_context()
    rank, workers = context.get_world_rank(), context.get_world_size()
    check, right = food.images(512, seed=1)
    weights, first = food.network(), 0
    checkpoint = ray.train.get_checkpoint()
    if checkpoint:
        with checkpoint.as_directory() as folder:
            saved = json.loads(pathlib.Path(folder, "checkpoint.json").read_text())
        weights, first = numpy.array(saved["weights"]), saved["epoch"] + 1
        print(f"resumed after epoch {saved['epoch']}", flush=True)
    average = None
    if workers > 1:
        name = f"average-{context.get_experiment_name()}-{first}"
        average = Average.options(name=name, get_if_exists=True).remote(workers)

    for epoch in range(first, config["epochs"]):
        begin = time.time()
        rows, labels = (part[rank::workers] for part in food.images(512, seed=2 + epoch))
        gradients = []
        for part in food.batches(len(rows), config["batch_size"]):
            gradients.append(food.gradient(weights, rows[part], labels[part]))
            if average is None:
                weights -= 0.01 * gradients[-1]
        if average is not None:
            # One exchange in an epoch: this is about Ray, and the exchange is not what it does best.
            weights = weights - 0.01 * len(gradients) * averaged(average, epoch, numpy.mean(gradients, axis=0))
        time.sleep(max(0, config["seconds"] - (time.time() - begin)))
        metrics = {"epoch": epoch, "accuracy": food.accuracy(weights, check, right)}
        if rank > 0:
            ray.train.report(metrics)
            continue
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "checkpoint.json").write_text(json.dumps({"epoch": epoch, "weights": weights.tolist()}))
            ray.train.report(metrics, ray.train.Checkpoint.from_directory(folder))
        print(f"epoch {epoch}: accuracy {metrics['accuracy']:.3f}", flush=True)


def main():
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--workers", type=int, default=1)
    arguments.add_argument("--gpus", type=float, default=1, help="of each worker; 0: train on CPUs")
    arguments.add_argument("--cpus", type=float, default=8, help="of each worker")
    arguments.add_argument("--epochs", type=int, default=5)
    arguments.add_argument("--seconds", type=float, default=1, help="how long an epoch takes at least")
    arguments = arguments.parse_args()
    resources = {"CPU": arguments.cpus} | ({"GPU": arguments.gpus} if arguments.gpus else {})
    result = DataParallelTrainer(
        train,
        train_loop_config={"epochs": arguments.epochs, "batch_size": 32, "seconds": arguments.seconds},
        scaling_config=ray.train.ScalingConfig(
            num_workers=arguments.workers, use_gpu=arguments.gpus > 0, resources_per_worker=resources
        ),
        run_config=ray.train.RunConfig(
            name=f"lab-{time.time():.0f}-{os.getpid()}",
            storage_path=storage(),
            failure_config=ray.train.FailureConfig(max_failures=2),
        ),
    ).fit()
    print(f"accuracy {result.metrics['accuracy']:.3f}, checkpoints: {result.path}")


main()
