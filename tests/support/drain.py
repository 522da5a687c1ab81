"""Takes a worker out of the cluster, as Ray's own command does."""

import subprocess

import ray

ray.init(logging_level="error")
worker = next(one for one in ray.nodes() if one["Alive"] and "node:__internal_head__" not in one["Resources"])
address = ray.get_runtime_context().gcs_address
command = ["ray", "drain-node", "--address", address, "--node-id", worker["NodeID"]]
reason = ["--reason", "DRAIN_NODE_REASON_PREEMPTION", "--reason-message", "a test", "--deadline-remaining-seconds", "1"]
subprocess.run(command + reason, check=True)
print("drained", flush=True)
