"""Prepares a node of a platform before its Ray starts: packages and commands, then data sets and files.

start.py [again]  with GPUCL_DATA: what it does is in `start.json` beside it. `again` is for a node that runs, whose
packages stay as they are. Data sets and files are those of `fill.py`. Standard library only; errors are one line.
"""

import fcntl
import gzip
import json
import os
import subprocess
import sys
import tempfile
import threading

HERE = os.path.dirname(os.path.abspath(__file__))
DATA = os.environ["GPUCL_DATA"]
# That a container is prepared: the probe of its start looks for it. It is gone when the container starts anew.
PREPARED = "/tmp/gpucl/prepared"


class Failed(Exception):
    """What went wrong, in one line."""


def say(text):
    print(text, flush=True)


def read(name, mode="r"):
    with open(os.path.join(HERE, name), mode) as file:
        return file.read()


def run(command):
    """Runs a program, whose output is ours; returns its exit status, and its last line about an error."""
    error = ""
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace") as program:
        for line in program.stdout:
            say(line.rstrip())
            if "error" in line.lower() or not error:
                error = line.strip()
    return program.returncode, error


def shell(command):
    """Runs a shell command, whose output is ours; returns its exit status, and the last line of its output."""
    last = [""]

    def read_out(stream):
        for line in stream:
            say(line.rstrip())
            last[0] = line.strip() or last[0]

    program = subprocess.Popen(["sh", "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace")
    reader = threading.Thread(target=read_out, args=(program.stdout,), daemon=True)
    reader.start()
    code = program.wait()
    # What it has left running may hold its output open.
    reader.join(2)
    return code, last[0]


def set_up(wanted, constraint):
    """Installs the packages into the environment that Ray runs in, and runs the commands."""
    if wanted["packages"]:
        with tempfile.TemporaryDirectory() as folder:
            lists = {"requirements": wanted["packages"], "constraints": [constraint]}
            for name, lines in lists.items():
                with open(os.path.join(folder, name), "w") as file:
                    file.write("\n".join(lines) + "\n")
            command = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--no-input",
                       "--progress-bar", "off", "-c", os.path.join(folder, "constraints"), "-r", os.path.join(folder, "requirements")]
            if wanted["index_url"]:
                command += ["--index-url", wanted["index_url"]]
            code, error = run(command)
            if code:
                raise Failed(f"setup: pip failed with exit status {code}: {error}")
    for number, command in enumerate(wanted["commands"], 1):
        code, last = shell(command)
        if code:
            raise Failed(f"setup: command {number} of {len(wanted['commands'])} failed with exit status {code}: {command}; "
                         f"it was run by sh, and last printed: {last or 'nothing'}")


def fill(verb, text, may_fail=False):
    """Runs `fill.py`; returns whether it succeeded."""
    program = [sys.executable, "-I", "-B", os.path.join(HERE, "fill.py"), verb, DATA]
    done = subprocess.run(program, input=text if isinstance(text, bytes) else text.encode())
    if done.returncode and not may_fail:
        # It has said why.
        sys.exit(1)
    return done.returncode == 0


def is_whole(one):
    """Whether a data set was filled as it is wanted, and its check passes."""
    folder = os.path.join(DATA, one["name"])
    try:
        with open(os.path.join(DATA, ".gpucl", one["name"] + ".state")) as file:
            if file.read().strip() != f"filled {one['digest']}":
                return False
    except OSError:
        return False
    return os.path.isdir(folder) and not subprocess.run(["sh", "-c", one["check"]], cwd=folder, stdin=subprocess.DEVNULL).returncode


def bring(wanted):
    """Fills what is not whole. Nodes that share the folder take turns."""
    work = os.path.join(DATA, ".gpucl")
    try:
        os.makedirs(work, exist_ok=True)
    except OSError as error:
        raise Failed(f"data: {DATA} cannot be written: {error.strerror}") from None
    with open(os.path.join(work, "lock"), "a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
        except OSError as error:
            say(f"data: this storage has no locks ({error.strerror}); nodes that share it do not take turns")
        for one in wanted["sets"]:
            is_whole(one) or fill("fill", json.dumps(one))
        for one in wanted["bundles"]:
            if not fill("have", read(one["list"]), may_fail=True):
                fill("take", gzip.decompress(read(one["archive"], "rb")))
        for one in wanted["clones"]:
            fill("cloned", json.dumps(one), may_fail=True) or fill("clone", json.dumps(one))
    count = {"data set": len(wanted["sets"]), "bundle of files": len(wanted["bundles"]), "repository": len(wanted["clones"])}
    say(", ".join(f"{number} {what}{'' if number == 1 else 's'}" for what, number in count.items() if number) + ": whole")


def main():
    os.umask(0o022)
    wanted = json.loads(read("start.json"))
    try:
        if sys.argv[1:] != ["again"] and wanted["setup"]:
            set_up(wanted["setup"], wanted["constraint"])
        if wanted["sets"] or wanted["bundles"] or wanted["clones"]:
            bring(wanted)
    except Failed as error:
        sys.exit(f"{error}")
    os.makedirs(os.path.dirname(PREPARED), exist_ok=True)
    with open(PREPARED, "w"):
        pass


if __name__ == "__main__":
    main()
