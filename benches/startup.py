"""Median wall time and peak memory of the release build's quick commands, beside `true` in the same run.

    cargo build --release && python3 benches/startup.py [--runs N] [PROGRAM]

The programs take turns, so that whatever else the machine does meets all of them. `status` is asked of a cluster that is known and does not run.
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


def once(argv, environment, folder):
    """Runs a program; hands back its wall time in milliseconds and its peak memory in MiB."""
    begin = time.perf_counter()
    # The child of a fork counts what its parent held: a spawned one does not.
    pid = os.posix_spawn(
        argv[0],
        argv,
        environment,
        file_actions=[(os.POSIX_SPAWN_OPEN, fd, os.devnull, os.O_RDWR, 0) for fd in (0, 1, 2)],
    )
    _, status, usage = os.wait4(pid, 0)
    wall = (time.perf_counter() - begin) * 1000
    if status != 0:
        sys.exit(f"{' '.join(argv)} ended with {os.waitstatus_to_exitcode(status)} in {folder}")
    return wall, usage.ru_maxrss / 1024


def known_cluster(program, environment, home):
    """Makes the state of a cluster: as `up` leaves it that failed at its first step, which is a missing Python."""
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
    told = subprocess.run([program, "list", "--output", "json"], env=environment, cwd=home, capture_output=True, check=True)
    if json.loads(told.stdout or b"{}").get("cluster") != "bench":
        sys.exit("no cluster is known to ask about")


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
        seen = {name: [] for name in asked}
        for argv in asked.values():
            once(argv, environment, folder)
        for _ in range(arguments.runs):
            for name, argv in asked.items():
                seen[name].append(once(argv, environment, folder))
        subprocess.run([program, "down", "--yes", "-c", "bench"], env=environment, cwd=home, stdin=subprocess.DEVNULL,
                       capture_output=True, timeout=60, check=True)
    medians = {name: [statistics.median(column) for column in zip(*rows)] for name, rows in seen.items()}
    (base_ms, base_mib) = medians["true"]
    print(f"{'':24} {'wall':>9} {'':>8} {'memory':>9}        median of {arguments.runs} runs, taking turns")
    for name, (wall, memory) in medians.items():
        print(f"{name:24} {wall:6.1f} ms {wall / base_ms:6.1f} x {memory:5.1f} MiB {memory / base_mib:5.1f} x")
    worst_ms = max(medians[name][0] for name in asked if name != "true")
    worst_mib = max(medians[name][1] for name in asked if name != "true")
    met = worst_ms <= GOAL_MS and worst_mib <= GOAL_MIB
    print(f"goals: {GOAL_MS} ms and {GOAL_MIB} MiB: {'met' if met else 'not met'}")


if __name__ == "__main__":
    main()
