"""Whether anybody uses the cluster: jobs, GPUs, kernels of Jupyter, shells of people.

What cannot be asked does not count as unused: then nothing is said. Standard library only, Python 3.6 or newer.
"""

import glob
import json
import os
import shutil
import subprocess
import time

import cluster
from record import Failed, to_seconds

# How long a tool of a GPU's vendor may take, in seconds.
TOOL_S = 20
# From what share of a GPU on, in percent, it is in use: a desktop or a driver alone is below that.
IN_USE = 5
# How long ago something was typed or printed for a shell to be used, in seconds. The system notes it every 8 seconds.
TYPED_S = 60


def seen(settings, ray):
    """What uses this host, in a few words, or None; raises Failed where it cannot be known."""
    return of_jobs(ray) or of_jupyter(settings.get("jupyter")) or of_gpus() or of_shells()


def of_jobs(ray):
    """A job that runs or waits."""
    if ray is None:
        return None
    for job in ray.jobs():
        if job["status"] in cluster.AT_WORK:
            return "a job waits" if job["status"] == "PENDING" else "a job runs" if job["stoppable"] else "a program uses Ray"
    return None


def of_jupyter(jupyter):
    """A kernel at work."""
    if not jupyter:
        return None
    kernels = cluster.ask(jupyter["url"], cluster.token_of(jupyter.get("token")), "GET", "/api/kernels", scheme="token")
    return "a kernel is at work" if any(is_at_work(kernel) for kernel in kernels) else None


def is_at_work(kernel):
    """Whether a kernel works, or did a moment ago."""
    if kernel.get("execution_state") in ("busy", "starting", "restarting"):
        return True
    try:
        return time.time() - to_seconds(kernel["last_activity"]) < TYPED_S
    except (KeyError, TypeError, ValueError):
        return False


def of_gpus():
    """A GPU in use."""
    for words, read in (
        (["nvidia-smi", "--query-gpu=utilization.gpu", "--format=csv,noheader,nounits"], of_nvidia),
        (["rocm-smi", "--showuse", "--json"], of_amd),
    ):
        program = shutil.which(words[0])
        if program is None:
            continue
        try:
            done = subprocess.run([program] + words[1:], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                  timeout=TOOL_S)
        except (OSError, subprocess.TimeoutExpired):
            raise Failed("%s does not answer" % words[0]) from None
        # Without a driver it fails, and there is no GPU to use.
        if done.returncode == 0 and any(share >= IN_USE for share in read(done.stdout.decode("utf-8", "replace"))):
            return "a GPU is in use"
    return None


def of_nvidia(text):
    """The shares in percent that `nvidia-smi` prints, one a line; `[N/A]` where it does not know."""
    return [int(line) for line in map(str.strip, text.splitlines()) if line.isdigit()]


def of_amd(text):
    """The shares in percent that `rocm-smi` prints."""
    try:
        cards = json.loads(text).values()
    except (ValueError, AttributeError):
        return []
    shares = [card.get("GPU use (%)", "") for card in cards if isinstance(card, dict)]
    return [int(share) for share in map(str, shares) if share.isdigit()]


def of_shells(root="/proc"):
    """A shell of somebody in which something runs, or in which something was typed or printed a moment ago.

    Processes without a terminal, such as a container's own, are not somebody's."""
    for path in glob.glob(root + "/[0-9]*/stat"):
        try:
            with open(path, encoding="utf-8", errors="replace") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            continue
        if len(fields) < 6:
            continue
        pid, group, session, terminal, front = path.split("/")[-2], fields[2], fields[3], int(fields[4]), fields[5]
        # The first process of a session with a terminal is the shell.
        if not terminal or pid != session or own_session(session):
            continue
        if front not in (group, "-1", "0"):
            return "something runs in a shell"
        used = last_used(terminal)
        if used is not None and time.time() - used < TYPED_S:
            return "a shell is used"
    return None


def own_session(session):
    """Whether this is the guard's session, or that of the first process, which a container may give a terminal."""
    return session in (str(os.getsid(0)), "1")


def last_used(terminal):
    """When something was last typed or printed at a terminal, by its number, or None."""
    major, minor = terminal >> 8 & 0xFFF, terminal & 0xFF | terminal >> 12 & 0xFFF00
    path = "/dev/pts/%d" % (minor + (major - 136) * 256) if 136 <= major <= 143 else "/dev/tty%d" % minor if major == 4 else None
    try:
        seen = os.stat(path) if path else None
    except OSError:
        return None
    return max(seen.st_atime, seen.st_mtime) if seen else None
