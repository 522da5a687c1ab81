"""Asks for a task with more GPUs than any node has, shows that it waits, and then asks for what there is."""

import sys

import ray

wanted = int(sys.argv[1]) if len(sys.argv) > 1 else 2
WAIT = 10  # seconds

ray.init(log_to_driver=False)
nodes = [node for node in ray.nodes() if node["Alive"]]
largest = max(node["Resources"].get("GPU", 0) for node in nodes)
print(f"asked for: {wanted} GPUs on one node; all nodes together have {ray.cluster_resources().get('GPU', 0):g},")
print(f"but the largest has {largest:g}")


@ray.remote(num_cpus=0)
def where():
    return ray.get_runtime_context().get_node_id()[:12]


task = where.options(num_gpus=wanted).remote()
ready, waiting = ray.wait([task], timeout=WAIT)
if ready:
    print(f"it ran on node {ray.get(task)}: this cluster is larger than the example expects")
    sys.exit(0)
print(f"after {WAIT} s it still waits: no node can ever run it, and Ray waits for one that could join")
ray.cancel(task)

# Two smaller tasks do the work of the large one.
places = ray.get([where.options(num_gpus=largest).remote() for _ in range(wanted)])
print(f"{wanted} tasks with {largest:g} GPU each ran: on {', '.join(sorted(set(places)))}")
