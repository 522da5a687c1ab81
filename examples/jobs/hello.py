"""Runs one task on each worker of the cluster and prints where each ran; `--save NAME` keeps that in the cluster's data folder."""

import os
import pathlib
import socket
import sys

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy


@ray.remote(num_cpus=0)
def hello():
    context = ray.get_runtime_context()
    gpus = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return socket.gethostname(), context.get_node_id()[:12], os.getpid(), gpus


ray.init(log_to_driver=False)
# A head that runs no tasks offers no CPUs.
workers = [node for node in ray.nodes() if node["Alive"] and node["Resources"].get("CPU", 0) > 0]
tasks = [
    hello.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)).remote()
    for node in workers
]
lines = []
for host, node, pid, gpus in ray.get(tasks):
    lines.append(f"hello from {host}: node {node}, process {pid}" + (f", GPU {gpus}" if gpus else ""))
lines.append(f"{len(tasks)} workers answered")
print("\n".join(lines))
if sys.argv[1:2] == ["--save"]:
    (pathlib.Path(os.environ.get("GPUCL_DATA", ".")) / sys.argv[2]).write_text("\n".join(lines) + "\n")
