"""Starts a worker process of Ray, with the secrets of its job in its environment.

Ray executes this for each worker process, in place of its own `setup_worker.py`, which follows. A job that was
submitted with `--secret` has an id in the variable GPUCL_SECRETS, which is all that Ray has of it. The values are in a
file of that name in the cluster's data folder, private to the user of jobs, until the job has ended. The process that
starts a job's command is a worker too, so that the command has them as well.

Needs the standard library; Ray's own script follows.
"""

import importlib.util
import json
import os
import re
import runpy
import sys
import time

VARIABLE = "GPUCL_SECRETS"
FOLDER = ".gpucl-secrets"
CONTEXT = "--serialized-runtime-env-context"


def identity(arguments):
    """Returns the id of the job's secrets from the runtime environment that Ray hands over, or None."""
    for position, argument in enumerate(arguments):
        name, separator, value = argument.partition("=")
        if name == CONTEXT:
            text = value if separator else (arguments[position + 1 : position + 2] or ["{}"])[0]
            try:
                return json.loads(text).get("env_vars", {}).get(VARIABLE)
            except (ValueError, AttributeError):
                return None
    return None


def secrets(name, folders, seconds=0):
    """Returns the variables of a job's secrets, from the first of these folders that has them within some seconds; none
    when the job has ended."""
    if not name or not re.fullmatch(r"[a-z0-9]{8,64}", name):
        return {}
    end = time.monotonic() + seconds
    while True:
        for folder in folders:
            try:
                with open(os.path.join(folder, name), encoding="utf-8") as file:
                    return {str(key): str(value) for key, value in json.load(file).items()}
            except (OSError, ValueError) as error:
                why = type(error).__name__
        if time.monotonic() >= end:
            sys.stderr.write(f"worker.py: the secrets of this job are not here: {why}\n")
            return {}
        time.sleep(0.2)


def in_data():
    """Returns the folder with secrets of jobs in the data folder of this node."""
    return os.path.join(os.environ.get("GPUCL_DATA", "/nonexistent"), FOLDER)


def main():
    """Adds the secrets to the environment, and goes on as Ray's own script."""
    os.environ.update(secrets(identity(sys.argv[1:]), [in_data()]))
    place = os.path.dirname(importlib.util.find_spec("ray").origin)
    script = os.path.join(place, "_private", "workers", "setup_worker.py")
    sys.path[0] = os.path.dirname(script)
    sys.argv[0] = script
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
