"""Lets gpucl in on one node of a batch job. Standard library only; Python 3.6 or newer.

    python3 node.py serve FOLDER          runs until the job ends, as one task per node of the job's long step
    python3 node.py relay SOCKET          connects its own input and output to the node's socket

FOLDER is the job's folder on storage that the nodes and the login machine share. What runs in the long step lives until
the job ends; what a short step (`srun --overlap`) leaves behind is killed a second after it. So every program of gpucl
is a child of this one: for each connection to the socket it runs `sshd -i` as the job's owner, with the cluster's own
host key, and only the cluster's own key is let in. No port is opened, and only the owner can connect to the socket.

The node's own folder is below $SLURM_TMPDIR, or /tmp. It is removed when the job ends: what is left then is counted in
FOLDER/ended/NODE.json. A job that is killed without a warning leaves that to the site's epilog.

SIGTERM ends the node, at the job's time limit or before. All programs of the job get it then: a guard of the cluster
(`templates/end/`) is given an end that is earlier.
"""

import ctypes
import json
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import time

# How long processes may take to end after SIGTERM, in seconds.
GRACE = 5


def say(text):
    """Writes a line to the job's log."""
    sys.stderr.write("gpucl: %s: %s\n" % (socket.gethostname(), text))
    sys.stderr.flush()


def write(path, value):
    """Writes JSON atomically."""
    new = "%s.%d.new" % (path, os.getpid())
    with open(new, "w") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)


def number(name):
    """Returns the variable as a number, or 0."""
    text = os.environ.get(name, "")
    digits = text.split("(")[0].split(",")[0]
    return int(digits) if digits.isdigit() else 0


def addresses():
    """Returns the addresses by which other nodes reach this one: first that of the name that Slurm knows it by."""
    found = []
    for name in (os.environ.get("SLURMD_NODENAME", ""), socket.gethostname()):
        try:
            infos = socket.getaddrinfo(name, None, 0, socket.SOCK_STREAM) if name else []
        except OSError:
            continue
        # IPv4 first: not every part of Ray takes the other.
        for family in (socket.AF_INET, socket.AF_INET6):
            for info in infos:
                address = info[4][0]
                if info[0] == family and address not in found and is_mine(family, address):
                    found.append(address)
    return found


def is_mine(family, address):
    """Returns whether the address is one of this machine's, and not of its loopback."""
    if address.startswith("127.") or address == "::1" or address.startswith("fe80:"):
        return False
    try:
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.bind((address, 0))
        return True
    except OSError:
        return False


def memory():
    """Returns the bytes of memory that the job has here; 0 when Slurm does not limit it."""
    per_node = number("SLURM_MEM_PER_NODE")
    per_cpu = number("SLURM_MEM_PER_CPU")
    return (per_node or per_cpu * number("SLURM_CPUS_ON_NODE")) << 20


def private(path):
    """Makes a folder for this user alone, and fails if it is anything else."""
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        pass
    found = os.lstat(path)
    if not os.path.isdir(path) or os.path.islink(path) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        sys.exit("gpucl: %s is not a folder of this user alone" % path)
    return path


class Node:
    """This node of the job."""

    def __init__(self, folder):
        self.folder = folder
        self.number = number("SLURM_NODEID")
        self.job = os.environ["SLURM_JOB_ID"]
        base = os.environ.get("SLURM_TMPDIR", "")
        if not base or not os.access(base, os.W_OK):
            base = "/tmp"
        # Sockets need short paths.
        self.own = private("%s/gpucl-%d-%s" % (base.rstrip("/") if len(base) < 60 else "/tmp", os.getuid(), self.job))
        self.socket = self.own + "/s"
        self.ending = threading.Event()

    def configure(self):
        """Writes the configuration of sshd, and returns its command."""
        sshd = shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin:/sbin")
        if not sshd:
            sys.exit("gpucl: this node has no sshd: its path is looked for in PATH and /usr/sbin")
        for name, mode in (("ssh_host_key", 0o600), ("authorized_keys", 0o600)):
            with open("%s/%s" % (self.folder, name), "rb") as file:
                content = file.read()
            path = "%s/%s" % (self.own, name)
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode), "wb") as file:
                file.write(content)
        values = {
            "GPUCL_CPUS": str(number("SLURM_CPUS_ON_NODE")),
            "GPUCL_MEMORY_KIB": str(memory() >> 10),
        }
        for name, value in os.environ.items():
            # Scripts of the site and of users look for these.
            if name.startswith("SLURM_") and not any(letter in value for letter in "\"\n\\ "):
                values[name] = value
        lines = [
            "HostKey %s/ssh_host_key" % self.own,
            "AuthorizedKeysFile %s/authorized_keys" % self.own,
            "AuthenticationMethods publickey",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no" if not is_old(sshd) else "ChallengeResponseAuthentication no",
            "UsePAM no",
            "StrictModes no",
            "PidFile none",
            "X11Forwarding no",
            "AllowAgentForwarding no",
            "GatewayPorts no",
            "MaxSessions 100",
            "MaxStartups 100",
            "PrintMotd no",
            "AllowUsers *",
            "Subsystem sftp internal-sftp",
            "SetEnv " + " ".join("%s=%s" % pair for pair in sorted(values.items())),
        ]
        path = self.own + "/sshd_config"
        with open(path, "w") as file:
            file.write("".join(line + "\n" for line in lines))
        return [sshd, "-i", "-e", "-f", path]

    def serve(self):
        """Lets the cluster's owner in until the job ends."""
        command = self.configure()
        become_subreaper()
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        if os.path.exists(self.socket):
            os.remove(self.socket)
        listener.bind(self.socket)
        listener.listen(64)
        listener.settimeout(1)
        signal.signal(signal.SIGTERM, lambda *_: self.ending.set())
        signal.signal(signal.SIGINT, lambda *_: self.ending.set())
        write("%s/nodes/%d.json" % (self.folder, self.number), {
            "host": socket.gethostname(),
            "node": os.environ.get("SLURMD_NODENAME", socket.gethostname()),
            "addresses": addresses(),
            "own": self.own,
            "home": os.path.expanduser("~"),
            "socket": self.socket,
            "user": os.environ.get("USER") or os.environ.get("LOGNAME", ""),
            "job": self.job,
            "restarts": number("SLURM_RESTART_COUNT"),
            "cpus": number("SLURM_CPUS_ON_NODE"),
            "memory": memory(),
            "gpus": os.environ.get("SLURM_STEP_GPUS") or os.environ.get("GPU_DEVICE_ORDINAL", ""),
        })
        say("node %d of job %s is ready" % (self.number, self.job))
        log = open(self.own + "/sshd.log", "ab", buffering=0)
        while not self.ending.is_set():
            reap()
            try:
                stream, _ = listener.accept()
            except socket.timeout:
                continue
            except OSError as error:
                say("the socket fails: %s" % error)
                time.sleep(1)
                continue
            with stream:
                subprocess.Popen(command, stdin=stream, stdout=stream, stderr=log, start_new_session=True, close_fds=True)
        listener.close()
        self.end()

    def end(self):
        """Ends every process of the job here but this one, removes the node's own folder, and counts what is left."""
        me = os.getpid()
        deadline = time.time() + GRACE
        sent = signal.SIGTERM
        while True:
            reap()
            others = [pid for pid in processes(self.job) if pid != me]
            if not others:
                break
            if time.time() > deadline:
                if sent == signal.SIGKILL:
                    break
                sent, deadline = signal.SIGKILL, time.time() + GRACE
            for pid in others:
                try:
                    os.kill(pid, sent)
                except OSError:
                    pass
            time.sleep(0.2)
        self.leave_links()
        shutil.rmtree(self.own, ignore_errors=True)
        left = {
            "processes": len(others),
            "files": count(self.own),
            "node": os.environ.get("SLURMD_NODENAME", socket.gethostname()),
            "folder": self.own,
        }
        try:
            write("%s/ended/%d.json" % (self.folder, self.number), left)
        except OSError as error:
            say("the count of what is left cannot be written: %s" % error)
        say("ended; left: %(processes)d processes, %(files)d files" % left)

    def leave_links(self):
        """Removes the folders of short paths and port claims of this job's hosts."""
        for tag in host_folders(self.own):
            try:
                with open(os.path.join(self.own, tag, "short")) as file:
                    folder = file.read().strip()
                found = os.lstat(folder)
                # In /tmp anybody may have made it.
                if folder.startswith("/tmp/gpucl-") and stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid():
                    shutil.rmtree(folder, ignore_errors=True)
            except OSError:
                pass


def is_old(sshd):
    """Returns whether sshd is older than 8.7, which renamed an option."""
    text = subprocess.run([sshd, "-V"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True).stdout
    start = text.find("OpenSSH_")
    version = text[start + 8:].split()[0] if start >= 0 else "9.0"
    digits = version.split("p")[0].split(".")
    try:
        return (int(digits[0]), int(digits[1])) < (8, 7)
    except (ValueError, IndexError):
        return False


def become_subreaper():
    """Makes orphans of this node's programs children of this process."""
    try:
        ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)
    except (OSError, AttributeError):
        pass


def reap():
    """Collects children that have ended."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except OSError:
        pass


def host_folders(own):
    """Returns the names of the folders of this job's hosts."""
    try:
        return [name for name in os.listdir(own) if name.startswith("gpucl-")]
    except OSError:
        return []


def processes(job):
    """Returns the processes of this job on this node, as their environment shows."""
    found = []
    mark = ("SLURM_JOB_ID=%s" % job).encode()
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open("/proc/%s/environ" % name, "rb") as file:
                if mark in file.read().split(b"\0") and os.stat("/proc/" + name).st_uid == os.getuid():
                    found.append(int(name))
        except OSError:
            pass
    # The step's own processes, outside the task, end with it.
    return [pid for pid in found if not is_of_slurm(pid)]


def is_of_slurm(pid):
    """Returns whether a process belongs to Slurm itself, or is the batch script."""
    try:
        with open("/proc/%d/comm" % pid) as file:
            name = file.read().strip()
        with open("/proc/%d/cmdline" % pid, "rb") as file:
            command = file.read()
    except OSError:
        return True
    return name in ("slurmstepd", "slurmd", "srun") or b"slurm_script" in command


def count(folder):
    """Returns how many files and folders are left below a folder."""
    if not os.path.lexists(folder):
        return 0
    return 1 + sum(len(folders) + len(files) for _, folders, files in os.walk(folder))


def relay(path):
    """Connects standard input and output to the node's socket."""
    stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    stream.connect(path)

    def send():
        while True:
            data = os.read(0, 1 << 18)
            if not data:
                break
            stream.sendall(data)
        stream.shutdown(socket.SHUT_WR)

    threading.Thread(target=send, daemon=True).start()
    while True:
        data = stream.recv(1 << 18)
        if not data:
            break
        view = memoryview(data)
        while view:
            view = view[os.write(1, view):]
    # Standard input may never end.
    os._exit(0)


def main():
    """Runs the command given on the command line."""
    if sys.argv[1] == "relay":
        try:
            relay(sys.argv[2])
        except OSError as error:
            sys.exit("gpucl: the node's socket %s: %s" % (sys.argv[2], error))
        return
    Node(sys.argv[2]).serve()


if __name__ == "__main__":
    main()
