"""Starts a worker process of Ray, with the environment of its job.

Ray executes this for each worker process, in place of its own `setup_worker.py`, which follows. A job that was
submitted with `--secret` has an id in the variable GPUCL_SECRETS, which is all that Ray has of it. The values are in a
file of that name in the cluster's data folder, private to the user of jobs, until the job has ended. The process that
starts a job's command is a worker too, so that the command has them as well.

Ray replaces `$NAME` and `${NAME}` in the variables of a job by the node's own. Those that GPUCL_LITERAL names, which
`--env` gave, are taken out of Ray's hands and set as they are.

GPUCL_MLFLOW names a file with the address and the login of the cluster's MLflow, which become variables here too.

UV_PYTHON is this Python, for `uv run` in a job: another one would not reach the cluster. It is set here and not for the
whole node, as the agent that installs the runtime environments of jobs by `uv pip` would install into it.

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
LITERAL = "GPUCL_LITERAL"
MLFLOW = "GPUCL_MLFLOW"
SERVE = "GPUCL_SERVE"
UV_PYTHON = "UV_PYTHON"
CONTEXT = "--serialized-runtime-env-context"


def handed_over(arguments):
    """Returns the runtime environment that Ray hands over, and a function that returns the arguments with another."""
    for position, argument in enumerate(arguments):
        name, separator, text = argument.partition("=")
        if name != CONTEXT:
            continue
        at = position if separator else position + 1
        begin = f"{CONTEXT}=" if separator else ""

        def with_another(context, at=at, begin=begin):
            return [*arguments[:at], begin + json.dumps(context), *arguments[at + 1 :]]

        try:
            context = json.loads(text if separator else arguments[at])
        except (ValueError, IndexError):
            break
        if isinstance(context, dict) and isinstance(context.get("env_vars") or {}, dict):
            return context, with_another
        break
    return {}, lambda _: list(arguments)


def identity(arguments):
    """Returns the id of the job's secrets from the runtime environment that Ray hands over, or None."""
    return (handed_over(arguments)[0].get("env_vars") or {}).get(VARIABLE)


def literal(arguments):
    """Returns the variables of the job that are set as they are, and the arguments without them."""
    context, with_another = handed_over(arguments)
    variables = dict(context.get("env_vars") or {})
    names = [name for name in str(variables.get(LITERAL, "")).split(",") if name in variables]
    if not names:
        return {}, list(arguments)
    taken = {name: str(variables.pop(name)) for name in names}
    return taken, with_another({**context, "env_vars": variables})


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


def of_mlflow():
    """Returns the variables with the address and login of the cluster's MLflow; none if it has none.

    A job that names another server gets none of them: the login is not for it."""
    path = os.environ.get(MLFLOW)
    if not path or "MLFLOW_TRACKING_URI" in (handed_over(sys.argv[1:])[0].get("env_vars") or {}):
        return {}
    try:
        with open(path, encoding="utf-8") as file:
            return {str(key): str(value) for key, value in json.load(file).items()}
    except (OSError, ValueError) as error:
        sys.stderr.write(f"worker.py: the login of MLflow cannot be read: {type(error).__name__}\n")
        return {}


def served(arguments, program):
    """Returns the arguments with this program, `serving.py`, in place of Ray's program of workers, in processes of a
    Serve that `gpucl serve` has started."""
    if SERVE not in (handed_over(arguments)[0].get("env_vars") or {}) or not os.path.exists(program):
        return list(arguments)
    return [program if os.path.basename(argument) == "default_worker.py" else argument for argument in arguments]


def in_data():
    """Returns the folder with secrets of jobs in the data folder of this node."""
    return os.path.join(os.environ.get("GPUCL_DATA", "/nonexistent"), FOLDER)


def main():
    """Adds the job's own variables to the environment, and goes on as Ray's own script."""
    os.environ.setdefault(UV_PYTHON, sys.executable)
    os.environ.update(of_mlflow())
    os.environ.update(secrets(identity(sys.argv[1:]), [in_data()]))
    variables, sys.argv[1:] = literal(sys.argv[1:])
    os.environ.update(variables)
    here = os.path.dirname(os.path.abspath(__file__))
    sys.argv[1:] = served(sys.argv[1:], os.path.join(here, "serving.py"))
    place = os.path.dirname(importlib.util.find_spec("ray").origin)
    script = os.path.join(place, "_private", "workers", "setup_worker.py")
    sys.path[0] = os.path.dirname(script)
    sys.argv[0] = script
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
