"""Tasks, objects and actors of Ray, in this order, on all workers of the cluster."""

import os
import socket

import ray


@ray.remote(num_cpus=1)
def square(number):
    """A task: a function that runs on a worker with a free CPU."""
    return number * number, f"{socket.gethostname()}, process {os.getpid()}"


@ray.remote(num_cpus=1)
class Counter:
    """An actor: a process with a state, which lives until nobody refers to it."""

    def __init__(self):
        self.count = 0

    def add(self, number):
        self.count += number
        return self.count


ray.init(log_to_driver=False)
resources = ray.cluster_resources()
print(f"the cluster has {resources.get('CPU', 0):g} CPUs and {resources.get('GPU', 0):g} GPUs")

# Calls return at once; `get` waits for the results.
results = ray.get([square.remote(number) for number in range(8)])
print("squares:", [result for result, _ in results])
for place in sorted({place for _, place in results}):
    print("computed on", place)

# An object is stored once, and every task reads it from there.
numbers = ray.put(list(range(1000)))
counter = Counter.remote()
print("the counter is at", ray.get(counter.add.remote(sum(ray.get(numbers)))))
print("the counter is at", ray.get(counter.add.remote(1)))
