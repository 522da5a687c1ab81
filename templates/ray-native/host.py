"""Looks after the nodes of one host. Standard library only.

    python3 host.py supervise HOME        starts what `nodes.json` names, looks after it, and starts workers again that end
    python3 host.py wait HOME             waits until every node answers; ends with 1 and the log of one that ends, and, on SIGTERM, of
                                          those that have not answered
    python3 host.py closed HOME TARGET    prints whether all that Ray listens on is on the loopback

HOME is the host's folder. `nodes.json` in it says what each node is started with; these stand in it for what is known here alone:

    @home@      the host's folder
    @links@     a folder of short paths: Ray's sockets take no long ones
    @ray_env@   the environment that Ray is in

Each process of a node carries GPUCL_HOST, the host's tag, and GPUCL_TAG, its own. What each node does is in `run/KEY`, one line:

    STATE PID START-TICKS STARTED-AT RESTARTS EXIT-CODE DIGEST

The process of a node is its reaper (`reaper.py`), which ends with the node all that came of it. Of a reaper that is killed the
supervisor is next: it is a subreaper as well, and ends what it gets.

The supervisor may be ended at any time: nodes go on, and the next one takes over those that are what they should be.

A worker that ends is started again once all nodes have answered, which `run/.ready` says. Before that it is a failure, to be shown.
"""

import datetime
import fcntl
import glob
import json
import os
import signal
import socket
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from reaper import Record, ask_to_end, become_subreaper, carrying, end_adopted, end_node, is_reaper, read, started, variables

# How often a worker is started again before it is left as it is, unless it ran for LONG_ENOUGH seconds in between.
MOST_RESTARTS = 5
LONG_ENOUGH = 300
# How long an earlier supervisor may take to let go.
LETS_GO = 20


def fail(message):
    """Ends with a message that the log shows."""
    sys.stderr.write(f"host.py: {message}\n")
    sys.exit(1)


def end_rest(home, key, tag):
    """Ends what is left of a node."""
    for what in end_node(home, key, tag):
        sys.stderr.write(f"host.py: {what} of {tag} cannot be ended\n")


def reapers(tag):
    """The processes that run the node of this tag."""
    return {pid for pid in carrying("GPUCL_TAG", tag) if is_reaper(pid)}


def links(folder):
    """The folder of short paths, which is this user's alone."""
    folder = folder or f"/tmp/gpucl-{os.getuid()}"
    try:
        os.makedirs(folder, 0o700)
    except FileExistsError:
        pass
    seen = os.lstat(folder)
    if not os.path.isdir(folder) or os.path.islink(folder) or seen.st_uid != os.getuid() or seen.st_mode & 0o077:
        fail(f"{folder} is not a folder of this user alone")
    return folder


def load(home):
    """What is to run, with what is known here in its places."""
    values = dict(line.split(" ", 1) for line in read(f"{home}/prepared/prepare").splitlines() if " " in line)
    ray_env = values.get("ray_env", "")
    if not os.access(f"{ray_env}/bin/python", os.X_OK):
        fail(f"the environment of Ray is not there: {ray_env or 'none was made'}")
    host = json.loads(read(f"{home}/nodes.json"))
    places = {"@home@": home, "@links@": links(host["links"]), "@ray_env@": ray_env}

    def put(value):
        if isinstance(value, dict):
            return {name: put(inner) for name, inner in value.items()}
        if isinstance(value, list):
            return [put(inner) for inner in value]
        if isinstance(value, str):
            for name, place in places.items():
                value = value.replace(name, place)
        return value

    return put(host)


def make_folders(home, host):
    """The folders of nodes, and the short link to them."""
    for folder in ["logs", "run", "ray/t", *(f"ray/{node['short']}" for node in host["nodes"])]:
        os.makedirs(f"{home}/{folder}", mode=0o700, exist_ok=True)
    link, target = host["link"], f"{home}/ray"
    if os.path.islink(link) and os.readlink(link) == target:
        return
    new = f"{link}.{os.getpid()}"
    os.symlink(target, new)
    os.replace(new, link)


class Node:
    """One node: what it is started with, and what it does."""

    def __init__(self, home, launch):
        self.launch, self.home = launch, home
        self.child, self.pid, self.ticks = None, 0, "0"
        self.state, self.since, self.at = "ended", 0.0, "-"
        self.restarts, self.code, self.due = 0, "-", None

    def write(self):
        """Says what it does."""
        path = f"{self.home}/run/{self.launch['key']}"
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            file.write(f"{self.state} {self.pid} {self.ticks} {self.at} {self.restarts} {self.code} {self.launch['digest']}\n")
        os.replace(f"{path}.new", path)

    def take_over(self):
        """Finds it running as it should be."""
        for pid in reapers(self.launch["tag"]):
            if variables(pid).get("GPUCL_DIGEST") == self.launch["digest"]:
                before = read(f"{self.home}/run/{self.launch['key']}").split()
                self.pid, self.ticks, self.state = pid, started(pid) or "0", "running"
                self.since = time.monotonic()
                self.at = before[3] if len(before) == 7 else now()
                self.write()
                return True
        return False

    @property
    def is_head(self):
        """Whether it is the cluster's head."""
        return self.launch["role"] == "head"

    def end_rest(self):
        """Ends what is left of it."""
        end_rest(self.home, self.launch["key"], self.launch["tag"])

    def put_log_away(self):
        """What an earlier node of this name has printed must not be taken for what this one prints."""
        if os.path.exists(self.launch["log"]):
            os.replace(self.launch["log"], f"{self.launch['log']}.old")

    def start(self):
        """Starts it in a session of its own, with nothing of this process but its environment."""
        log = self.launch["log"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("GPUCL_", "RAY_", "SSH_"))}
        environment.update(self.launch["environment"])
        with open(log, "ab", buffering=0) as output:
            self.child = subprocess.Popen(
                self.launch["argv"], env=environment, cwd=self.home, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True,
            )
        self.pid, self.ticks = self.child.pid, started(self.child.pid) or "0"
        self.state, self.since, self.at, self.code, self.due = "running", time.monotonic(), now(), "-", None
        self.write()

    def look(self):
        """Looks at it once, and starts it again when that is due; hands back whether a child of this process has ended."""
        if self.state == "running":
            if self.child is not None:
                code = self.child.poll()
                if code is None:
                    return False
                self.code = str(code if code >= 0 else 128 - code)
            elif started(self.pid) == self.ticks:
                return False
            if time.monotonic() - self.since > LONG_ENOUGH:
                self.restarts = 0
            # A head that is started again is another cluster: its jobs and objects are gone. `gpucl up` decides that.
            if not self.is_head and self.restarts < MOST_RESTARTS and os.path.exists(f"{self.home}/run/.ready"):
                self.due = time.monotonic() + (1 << self.restarts)
            was_child, self.child = self.child is not None, None
            self.state = "ended" if self.due is None else "restarting"
            self.write()
            say(f"{self.launch['name']} ended with exit code {self.code}")
            return was_child
        if self.due is not None and time.monotonic() >= self.due:
            # Children of the one that ended would hold its ports and its GPU.
            self.end_rest()
            self.restarts += 1
            self.start()
            say(f"{self.launch['name']} was started again")
        return False


def look_at_all(home, nodes):
    """Looks at all nodes once. What came of a reaper that was killed is this process's now, and ends."""
    ended = [node for node in nodes if node.look()]
    if end_adopted({node.child.pid for node in nodes if node.child is not None}):
        return
    for node in ended:
        record = Record.load(f"{home}/processes/{node.launch['key']}")
        # Nobody was missed, since the orphans had nowhere else to go.
        if record and not record.over and (record.group is None or record.group.end()):
            record.finish()


def say(text):
    """Says something in the supervisor's log."""
    sys.stderr.write(f"{now()} {text}\n")


def now():
    """The time, as it is shown."""
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def supervise(home):
    """Looks after the nodes until it is ended."""
    os.makedirs(f"{home}/run", mode=0o700, exist_ok=True)
    lock = open(f"{home}/run/.lock", "w", encoding="utf-8")
    end = time.monotonic() + LETS_GO
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except OSError:
            if time.monotonic() > end:
                fail("another supervisor does not let go")
            time.sleep(0.1)
    asked = []
    signal.signal(signal.SIGTERM, lambda *_: asked.append(True))
    become_subreaper()
    host = load(home)
    make_folders(home, host)
    nodes = [Node(home, launch) for launch in host["nodes"]]
    wanted = {node.launch["key"] for node in nodes}
    for path in glob.glob(f"{home}/run/*"):
        name = os.path.basename(path)
        if name not in wanted | {"supervisor"}:
            os.remove(path)
    kept = {node.launch["key"] for node in nodes if node.take_over()}
    if any(node.is_head and node.launch["key"] not in kept for node in nodes):
        # Its workers are of the cluster that is no more.
        kept = set()
    new = [node for node in nodes if node.launch["key"] not in kept]
    # What is asked for no more, or not as it is, ends before what takes its ports.
    stays = {node.launch["tag"] for node in nodes if node not in new} | {host["tag"]}
    goes = {variables(pid).get("GPUCL_TAG", "") for pid in carrying("GPUCL_HOST", host["tag"])} - stays
    ask_to_end([("GPUCL_TAG", tag) for tag in goes], host["grace"])
    for tag in goes:
        end_rest(home, tag.rpartition("-")[2], tag)
    for node in new:
        node.end_rest()
    give_up_ports(links(host["links"]), host["tag"], {node.launch["tag"] for node in nodes})
    for node in new:
        node.put_log_away()
        node.start()
    # Who waits for this file finds what each node does.
    with open(f"{home}/run/supervisor.new", "w", encoding="utf-8") as file:
        file.write(f"running {os.getpid()} {started(os.getpid())} {now()} 0 - -\n")
    os.replace(f"{home}/run/supervisor.new", f"{home}/run/supervisor")
    while not asked:
        look_at_all(home, nodes)
        time.sleep(0.3)
    # With this process its orphans would be lost; nodes go on.
    look_at_all(home, [node for node in nodes if node.due is None])


def give_up_ports(folder, host, nodes):
    """Gives up the ports of this host's nodes that are asked for no more."""
    for path in glob.glob(f"{folder}/ports/[0-9]*"):
        words = read(path).split()
        if len(words) == 2 and words[1] == host and words[0] not in nodes:
            os.remove(path)


def answers(port):
    """Somebody accepts connections at this port of the loopback."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=2):
            return True
    except OSError:
        return False


def wait(home):
    """Waits until every node answers. Asked to end before that, or when one ends by itself, it says what keeps it."""
    asked = []
    signal.signal(signal.SIGTERM, lambda *_: asked.append(True))
    nodes = load(home)["nodes"]
    told = None
    while True:
        left = []
        for node in nodes:
            state, _, _, _, _, code = (read(f"{home}/run/{node['key']}").split() + ["-"] * 6)[:6]
            if state == "ended":
                show_log(node)
                print(f"{node['name']} does not stay up: it ended with exit code {code}")
                sys.exit(1)
            if state != "running" or not all(answers(port) for port in node["answers"]):
                left.append(node)
        if not left:
            # From now on a worker that ends is started again.
            open(f"{home}/run/.ready", "w", encoding="utf-8").close()
            return
        names = ", ".join(node["name"] for node in left)
        if asked:
            for node in left:
                show_log(node)
            print(f"no answer in time from {names}")
            sys.exit(1)
        if told != names:
            print(f"waiting for {names} to answer", flush=True)
            told = names
        time.sleep(0.1)


def show_log(node):
    """The end of what a node printed."""
    print(f"the end of the log of {node['name']}:")
    for line in read(node["log"]).splitlines()[-25:]:
        print(f"    {line}")


def listeners(pids):
    """The addresses that these processes listen on."""
    sockets = set()
    for pid in pids:
        for path in glob.glob(f"/proc/{pid}/fd/*"):
            try:
                target = os.readlink(path)
            except OSError:
                continue
            if target.startswith("socket:["):
                sockets.add(target[8:-1])
    found = set()
    for table, family in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        for line in read(f"/proc/net/{table}").splitlines()[1:]:
            fields = line.split()
            if len(fields) > 9 and fields[3] == "0A" and fields[9] in sockets:
                address, _, port = fields[1].partition(":")
                raw = bytes.fromhex(address)
                # Words of the machine's own order.
                packed = b"".join(raw[at : at + 4][::-1] for at in range(0, len(raw), 4))
                found.add((socket.inet_ntop(family, packed), int(port, 16)))
    return found


def closed(home, target):
    """Prints whether all that Ray listens on is on the loopback; what a task opens is the task's, and is told."""
    host = json.loads(read(f"{home}/nodes.json"))
    seen = listeners(carrying("GPUCL_HOST", host["tag"]))
    is_inner = lambda address: address.startswith("127.") or address in ("::1",) or address.startswith("::ffff:127.")
    outside = sorted(f"{address}:{port}" for address, port in seen if not is_inner(address))
    is_ours = lambda port: any(first <= port <= last for first, last in host["ports"])
    ours = sorted(f"{address}:{port}" for address, port in seen if not is_inner(address) and is_ours(port))
    inner = len(seen) - len(outside)
    if ours:
        saw = f"Ray listens on {', '.join(ours)}: it is open to the network"
    elif not inner:
        saw = "no listening port was seen"
    else:
        saw = f"{inner} listening ports, all on the loopback"
    if outside and not ours:
        saw += f"; tasks opened {', '.join(outside)}, and only they protect them"
    line = {"check": "closed ports", "target": target, "ok": not ours and inner > 0, "saw": saw}
    print(f"::check {json.dumps(line)}")


def main():
    """One command, and what it takes."""
    command, home = sys.argv[1], os.path.abspath(sys.argv[2])
    if command == "supervise":
        supervise(home)
    elif command == "wait":
        wait(home)
    else:
        closed(home, sys.argv[3])


if __name__ == "__main__":
    main()
