"""A job that takes some seconds and half a GPU; `submit.sh` starts three of them at once."""

import sys
import time

import ray

name, seconds = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 5.0


@ray.remote(num_cpus=0.5, num_gpus=0.5)
def train(steps):
    context = ray.get_runtime_context()
    for _ in range(steps):
        time.sleep(seconds / steps)
    return context.get_node_id()[:12], context.get_accelerator_ids()["GPU"]


ray.init(log_to_driver=False)
begin = time.time()
node, gpus = ray.get(train.remote(10))
print(f"{name}: GPU {', '.join(gpus)} of node {node}, {time.time() - begin:.1f} s")
