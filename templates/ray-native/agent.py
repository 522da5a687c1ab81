"""Starts Ray's agent of a node, and connects it to the node that it belongs to.

    python agent.py RAY_AGENT_SCRIPT --temp-dir=... ...

The agent reads the logs of the jobs whose command runs on its node, in the folder of the node that it is connected to.
Where several nodes of a cluster are on one machine, Ray connects it to the head's, and finds nothing there. Ray can
choose a node by its temporary folder, which each node has for itself; it is filled in here. A Ray that has no such
choice has one folder for all nodes, and is left alone.

Needs Ray; Ray's own script follows.
"""

import os
import runpy
import sys

FLAG = "--temp-dir="


def main():
    """Fills in the temporary folder, and goes on as Ray's own script."""
    script, arguments = sys.argv[1], sys.argv[2:]
    own = next((argument[len(FLAG) :] for argument in arguments if argument.startswith(FLAG)), None)
    try:
        import ray._private.services as services

        choose = services.get_node_to_connect_for_driver
        takes_folder = "temp_dir" in choose.__code__.co_varnames[: choose.__code__.co_argcount]
    except (ImportError, AttributeError):
        takes_folder = False
    if own and takes_folder:

        def choose_own(*positional, **named):
            if len(positional) < 4 and named.get("temp_dir") is None:
                named["temp_dir"] = own
            return choose(*positional, **named)

        services.get_node_to_connect_for_driver = choose_own
    sys.path[0] = os.path.dirname(script)
    sys.argv = [script, *arguments]
    runpy.run_path(script, run_name="__main__")


if __name__ == "__main__":
    main()
