"""Gives a job's secrets to its processes in a pod, where KubeRay starts Ray, and not we.

Python imports this first, from the folder of the cluster's Secret, which is in PYTHONPATH there. In a process that Ray
starts for a worker, it does what `worker.py` does on hosts. The secrets are in the data folder of pods that ran when the
job was submitted, and in the Secret for those that came later. In all other processes it does nothing.
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
    if job := worker["identity"](ARGUMENTS):
        os.environ.update(worker["secrets"](job, [HERE, worker["in_data"]()], SECONDS))
import_next()
