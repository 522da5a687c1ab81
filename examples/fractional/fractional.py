"""Runs tasks that need only a part of a GPU, and shows how many of them share one."""

import argparse
import collections
import time

import ray

arguments = argparse.ArgumentParser(description=__doc__)
arguments.add_argument("--tasks", type=int, default=4, help="how many tasks to run")
arguments.add_argument("--share", type=float, default=0.5, help="the part of a GPU that each of them asks for")
arguments.add_argument("--seconds", type=float, default=3, help="how long each of them takes")
arguments = arguments.parse_args()


@ray.remote(num_cpus=0.1, num_gpus=arguments.share)
def work(seconds):
    context = ray.get_runtime_context()
    begin = time.time()
    time.sleep(seconds)
    return context.get_node_id()[:12], context.get_accelerator_ids()["GPU"], begin, time.time()


ray.init(log_to_driver=False)
# Processes are started before the clock is.
ray.get([work.remote(1) for _ in range(arguments.tasks)])
start = time.time()
done = ray.get([work.remote(arguments.seconds) for _ in range(arguments.tasks)])
took = time.time() - start

users = collections.defaultdict(list)
for node, gpus, begin, end in done:
    users[node, ", ".join(gpus)].append((begin, end))
for (node, gpus), spans in sorted(users.items()):
    at_once = max(sum(begin <= at < end for begin, end in spans) for at, _ in spans)
    print(f"node {node}, GPU {gpus}: {len(spans)} tasks, at most {at_once} at once")
print(f"{arguments.tasks} tasks with {arguments.share:g} of a GPU each, {arguments.seconds:g} s long, took {took:.1f} s")
