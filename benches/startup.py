"""Median wall time and peak memory of the release build's quick commands, compared with `true` in the same run.

    cargo build --release && python3 benches/startup.py [--runs N] [PROGRAM]

The programs take turns, so that other load on the machine affects all of them. `status` is for an existing cluster that
does not run.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
GOAL_MS = 15
GOAL_MIB = 20


def spawn(argv, environment):
    """Starts a program with stdin, stdout and stderr on /dev/null."""
    nothing = [(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)]
    return os.posix_spawn(argv[0], argv, environment, file_actions=nothing)


def wall(argv, environment):
    """Runs a program; returns its wall time in milliseconds."""
    begin = time.perf_counter()
    _, status = os.waitpid(spawn(argv, environment), 0)
    took = (time.perf_counter() - begin) * 1000
    if status != 0:
        sys.exit(f"{' '.join(argv)} ended with {os.waitstatus_to_exitcode(status)}")
    return took


def memory(argv, environment):
    """Runs a program; returns its last observed peak memory in MiB.

    `wait4` is no use: its figure includes the parent's memory, which is this Python's.
    """
    program = os.path.realpath(argv[0])
    pid = spawn(argv, environment)
    peak = 0
    while os.waitpid(pid, os.WNOHANG) == (0, 0):
        try:
            # Before its exec, it is a copy of this Python.
            if os.readlink(f"/proc/{pid}/exe") != program:
                continue
            with open(f"/proc/{pid}/status", "rb", buffering=0) as file:
                found = file.read().partition(b"VmHWM:")[2].split(None, 1)
        except OSError:
            continue
        peak = max(peak, int(found[0])) if found else peak
    return peak / 1024


def known_cluster(program, environment, home):
    """Makes the state of a cluster whose `up` failed at its first step, for lack of Python."""
    (home / "cluster.yaml").write_text("name: bench\n")
    empty = home / "bin"
    empty.mkdir()
    for tool in ("sh", "flock", "setsid", "timeout", "base64", "grep", "sed", "awk", "sleep", "mkdir", "mv", "rm", "cp", "cat",
                 "chmod", "wc", "tail", "head", "printf", "kill", "df", "uname", "nproc", "sync"):
        found = shutil.which(tool)
        if found:
            (empty / tool).symlink_to(found)
    without_python = {**environment, "PATH": str(empty)}
    subprocess.run([program, "up", str(home / "cluster.yaml")], env=without_python, cwd=home, stdin=subprocess.DEVNULL,
                   capture_output=True, timeout=120, check=False)
    listed = subprocess.run([program, "list", "--output", "json"], env=environment, cwd=home, capture_output=True, check=True)
    if json.loads(listed.stdout or b"{}").get("cluster") != "bench":
        sys.exit("`up` left no cluster to ask about")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program", nargs="?", default=str(ROOT / "target/release/gpucl"))
    parser.add_argument("--runs", type=int, default=50)
    arguments = parser.parse_args()
    program = os.path.abspath(arguments.program)
    true = shutil.which("true") or "/bin/true"
    with tempfile.TemporaryDirectory(prefix="gb-") as folder:
        home = pathlib.Path(folder)
        environment = {"HOME": folder, "XDG_RUNTIME_DIR": folder, "PATH": os.environ.get("PATH", ""), "TZ": "UTC"}
        known_cluster(program, environment, home)
        asked = {
            "true": [true],
            "gpucl --version": [program, "--version"],
            "gpucl status --offline": [program, "status", "--offline", "-c", "bench"],
        }
        walls = {name: [] for name in asked}
        peaks = dict.fromkeys(asked, 0)
        for argv in asked.values():
            wall(argv, environment)
        for _ in range(arguments.runs):
            for name, argv in asked.items():
                walls[name].append(wall(argv, environment))
        # Observing a program slows it down, so memory is measured in separate runs.
        for _ in range(arguments.runs):
            for name, argv in asked.items():
                peaks[name] = max(peaks[name], memory(argv, environment))
        subprocess.run([program, "down", "--yes", "-c", "bench"], env=environment, cwd=home, stdin=subprocess.DEVNULL,
                       capture_output=True, timeout=60, check=True)
    medians = {name: statistics.median(column) for name, column in walls.items()}
    print(f"{'':24} {'wall':>9} {'':>8} {'memory':>9}{'':>9} median and peak of {arguments.runs} runs, taking turns")
    for name in asked:
        ratios = medians[name] / medians["true"], peaks[name] / peaks["true"]
        print(f"{name:24} {medians[name]:6.1f} ms {ratios[0]:6.1f} x {peaks[name]:5.1f} MiB {ratios[1]:5.1f} x")
    ours = [name for name in asked if name != "true"]
    met = max(medians[name] for name in ours) <= GOAL_MS and max(peaks[name] for name in ours) <= GOAL_MIB
    print(f"goals: {GOAL_MS} ms and {GOAL_MIB} MiB: {'met' if met else 'not met'}")


if __name__ == "__main__":
    main()
