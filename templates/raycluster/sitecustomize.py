"""Does in a pod, where KubeRay starts Ray, and not we, what our launchers of nodes do on hosts.

Python imports this first, from the folder of the cluster's Secret, which is in PYTHONPATH there.

* To a process that Ray starts for a worker, it gives its job's secrets and other variables, as `worker.py` does. Secrets
  are in the data folder of pods that ran when the job was submitted, and in the Secret for those that came later. Those
  of a Serve that `gpucl serve` has started go on as `serving.py`.
* `ray start` does what `lifecycle.py` says: a head starts several worker processes at once, and a node that Ray has lost
  ends, so that Kubernetes starts its container anew.

In all other processes it does nothing.
"""

import os
import runpy
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
ARGUMENTS = getattr(sys, "orig_argv", [])[1:]
# Kubernetes may need so long to bring a changed Secret into a pod that is just made; Ray waits for a worker for a minute.
SECONDS = 45


def is_worker():
    """Whether Ray starts this process for a worker."""
    return any(os.path.basename(one) == "setup_worker.py" for one in ARGUMENTS)


def is_node():
    """Whether this is `ray start`, which stays as long as its node."""
    names = [os.path.basename(one) for one in ARGUMENTS]
    return "--block" in names and ("ray", "start") in zip(names, names[1:])


def import_next():
    """Imports the `sitecustomize` of the environment, which this one hides."""
    own = sys.modules.pop("sitecustomize", None)
    before = sys.path[:]
    sys.path[:] = [folder for folder in before if os.path.abspath(folder) != HERE]
    try:
        import sitecustomize  # noqa: F401
    except ImportError:
        if own is not None:
            sys.modules["sitecustomize"] = own
    finally:
        sys.path[:] = before


if is_worker():
    worker = runpy.run_path(os.path.join(HERE, "gpucl_worker.py"))
    os.environ.setdefault(worker["UV_PYTHON"], sys.executable)
    if job := worker["identity"](ARGUMENTS):
        os.environ.update(worker["secrets"](job, [HERE, worker["in_data"]()], SECONDS))
    # Python has these before it imports this file; the first is the program's name.
    variables, sys.argv[1:] = worker["literal"](sys.argv[1:])
    os.environ.update(variables)
    sys.argv[1:] = worker["served"](sys.argv[1:], os.path.join(HERE, "gpucl_serving.py"))
import_next()
if is_node():
    lifecycle = runpy.run_path(os.path.join(HERE, "gpucl_lifecycle.py"))
    lifecycle["start_several_at_once"]("--head" in ARGUMENTS)
    try:
        lifecycle["end_when_lost"]()
    except Exception as error:  # a Ray that has changed inside starts as ever
        print(f"gpucl: this node stays when Ray has lost it: {error}", file=sys.stderr)
