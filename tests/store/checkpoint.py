"""Ray Train writes its checkpoints to the cluster's store, as any program would: by the address `s3://ray` alone."""
import os
import tempfile

import ray.train
from ray.train import Checkpoint, RunConfig, ScalingConfig
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer


def loop():
    for step in range(4):
        with tempfile.TemporaryDirectory() as folder:
            with open(os.path.join(folder, "step"), "w") as file:
                file.write(str(step))
            ray.train.report({"step": step}, checkpoint=Checkpoint.from_directory(folder))


result = DataParallelTrainer(loop, scaling_config=ScalingConfig(num_workers=1), run_config=RunConfig(storage_path="s3://ray/train", name="one")).fit()
with result.checkpoint.as_directory() as folder:
    print("checkpoint", open(os.path.join(folder, "step")).read(), result.checkpoint.path)
