"""Supervises the nodes of one host. Standard library only.

    python3 host.py supervise HOME      starts the nodes in `nodes.json`, watches them, and restarts workers that end
    python3 host.py wait HOME [KEY]     waits until every node answers, or this one; exits with 1 and the log of a node
                                        that ended or, on SIGTERM, of those that have not answered
    python3 host.py closed HOME TARGET  checks that Ray listens on the loopback only, and beyond it only where the
                                        cluster's other hosts need it

HOME is the host's folder. `nodes.json` in it has the command of each node, with placeholders for values known only
here:

    @home@      the host's folder
    @links@     a folder of short paths, named in the file `short`: the paths of Ray's sockets must be short
    @ray_env@   Ray's virtual environment
    @store@     the program of the object store, if one runs here
    @mlflow_env@  the environment of the MLflow server, if one runs here

`files` in it has the content of JSON files in HOME that have such placeholders too.

Where the cluster's hosts are several machines, `network` in it has this host's address for the others, and the ranges
of ports of its nodes that they need; `answers` of a node then has ports by address.

Each process of a node carries GPUCL_HOST, the host's tag, and GPUCL_TAG, its own. `run/KEY` has the state of a node,
one line:

    STATE PID START-TICKS STARTED-AT RESTARTS EXIT-CODE DIGEST

The process of a node is its reaper (`reaper.py`), which ends all processes of the node when the node ends. If a
reaper is killed, its orphans go to the supervisor, which is a subreaper as well and ends them.

The supervisor may be ended at any time: nodes go on, and the next supervisor takes over those that are up to date.

A worker that ends is restarted only after all nodes have answered once, which the file `run/.ready` marks. Before
that, its end is a failure to be reported.

Two files ask for something by hand: while `run/.stopped-KEY` exists, the worker is ended and stays so, with the state
`stopped`; `run/.start-KEY` starts a worker that does not run, as if it had never ended.
"""

import datetime
import fcntl
import glob
import json
import os
import signal
import socket
import stat
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from reaper import Record, ask_to_end, become_subreaper, carrying, end_adopted, end_node, is_reaper, read, started, variables
from reachable import reachable

# How often a worker is restarted before it is given up, unless it ran for LONG_ENOUGH seconds in between.
MOST_RESTARTS = 5
LONG_ENOUGH = 300
# Seconds that an earlier supervisor may take to release its lock.
LETS_GO = 20
LOOPBACK = "127.0.0.1"


def fail(message):
    """Logs a message and exits."""
    sys.stderr.write(f"host.py: {message}\n")
    sys.exit(1)


def end_rest(home, key, tag):
    """Ends what is left of a node."""
    for what in end_node(home, key, tag):
        sys.stderr.write(f"host.py: {what} of {tag} cannot be ended\n")


def reapers(tag):
    """Returns the ids of the reapers of the node with this tag."""
    return {pid for pid in carrying("GPUCL_TAG", tag) if is_reaper(pid)}


def links(home):
    """Returns the host's folder of short paths, which its folder names, and `r` in which leads to Ray's files.

    Both are made again where a cleaner of temporary files removed them; raises OSError where others have access to the folder."""
    folder, target = read(f"{home}/short").strip(), f"{home}/ray"
    if not folder:
        raise FileNotFoundError(f"{home}/short does not name the folder of short paths")
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        pass
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(f"{folder} is not a folder of this user alone")
    link = f"{folder}/r"
    if not os.path.islink(link) or os.readlink(link) != target:
        new = f"{link}.{os.getpid()}"
        os.symlink(target, new)
        os.replace(new, link)
    return folder


def load(home):
    """Reads `nodes.json` and fills in its placeholders."""
    values = dict(line.split(" ", 1) for line in read(f"{home}/prepared/prepare").splitlines() if " " in line)
    ray_env = values.get("ray_env", "")
    if not os.access(f"{ray_env}/bin/python", os.X_OK):
        fail(f"the environment of Ray is missing: {ray_env or 'none was made'}")
    host = json.loads(read(f"{home}/nodes.json"))
    store, mlflow_env = values.get("store_program", ""), values.get("mlflow_env", "")
    programs = {"object-store": ("the object store", store), "mlflow": ("MLflow", f"{mlflow_env}/bin/python")}
    for what, program in (programs[node["name"]] for node in host["nodes"] if node["name"] in programs):
        if not os.access(program, os.X_OK):
            fail(f"the program of {what} is missing: {program or 'none was installed'}")
    try:
        places = {"@home@": home, "@links@": links(home), "@ray_env@": ray_env, "@store@": store, "@mlflow_env@": mlflow_env}
    except OSError as error:
        fail(str(error))

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
    """Makes the folders of the nodes, and the files whose content is known only here."""
    for name, content in host.get("files", {}).items():
        with open(os.open(f"{home}/{name}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            json.dump(content, file, indent=2)
        os.replace(f"{home}/{name}.new", f"{home}/{name}")
    for folder in ["logs", "run", "ray/t", *(f"ray/{node['short']}" for node in host["nodes"])]:
        os.makedirs(f"{home}/{folder}", mode=0o700, exist_ok=True)


class Node:
    """One node: its command and its state."""

    def __init__(self, home, launch, grace):
        self.launch, self.home = launch, home
        self.child, self.pid, self.ticks = None, 0, "0"
        self.state, self.since, self.at = "ended", 0.0, "-"
        self.restarts, self.code, self.due = 0, "-", None
        self.hold, self.call = (f"{home}/run/.{what}-{launch['key']}" for what in ("stopped", "start"))
        # When it was asked to end by hand, and how long it may take.
        self.asked, self.grace = None, grace

    def write(self):
        """Writes its state."""
        path = f"{self.home}/run/{self.launch['key']}"
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            file.write(f"{self.state} {self.pid} {self.ticks} {self.at} {self.restarts} {self.code} {self.launch['digest']}\n")
        os.replace(f"{path}.new", path)

    def take_over(self):
        """Adopts the node if it runs with the current digest; returns whether it does."""
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
        """Whether the node is the cluster's head."""
        return self.launch["role"] == "head"

    def end_rest(self):
        """Ends what is left of the node."""
        end_rest(self.home, self.launch["key"], self.launch["tag"])

    def put_log_away(self):
        """Renames the log of an earlier node with this name, so that its output is not taken for this one's."""
        if os.path.exists(self.launch["log"]):
            os.replace(self.launch["log"], f"{self.launch['log']}.old")

    def start(self):
        """Starts the node in its own session, with a cleaned copy of this process's environment."""
        log = self.launch["log"]
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("GPUCL_", "RAY_", "SSH_"))}
        if "AWS_SHARED_CREDENTIALS_FILE" in self.launch["environment"]:
            # Jobs use the cluster's object store: another's keys or address would come before its file.
            environment = {name: value for name, value in environment.items() if not name.startswith("AWS_")}
        if "GPUCL_MLFLOW" in self.launch["environment"]:
            # Jobs log to the cluster's MLflow: the user's own settings would come before it.
            environment = {name: value for name, value in environment.items() if not name.startswith("MLFLOW_")}
        environment.update(self.launch["environment"])
        past_proxy(environment, self.launch["argv"])
        with open(log, "ab", buffering=0) as output:
            self.child = subprocess.Popen(
                self.launch["argv"], env=environment, cwd=self.home, stdin=subprocess.DEVNULL, stdout=output, stderr=output,
                start_new_session=True,
            )
        self.pid, self.ticks = self.child.pid, started(self.child.pid) or "0"
        self.state, self.since, self.at, self.code, self.due = "running", time.monotonic(), now(), "-", None
        self.write()

    def heed(self):
        """Does what was asked for by hand; returns whether the worker is to stay stopped."""
        stays = os.path.exists(self.hold)
        if not stays:
            self.asked = None
        elif self.state == "running" and self.asked is None:
            say(f"{self.launch['name']} is stopped by hand")
            self.asked = time.monotonic()
            if started(self.pid) == self.ticks:
                os.kill(self.pid, signal.SIGTERM)
        elif self.state == "running" and time.monotonic() - self.asked > self.grace:
            self.end_rest()
        elif self.state in ("ended", "restarting"):
            self.state, self.due = "stopped", None
            self.write()
        if os.path.exists(self.call):
            if not stays and self.state != "running":
                self.state, self.restarts, self.due = "restarting", 0, time.monotonic()
                self.write()
            # Whoever asked waits for this.
            os.remove(self.call)
        return stays

    def poll(self):
        """Checks the node once, and restarts it when that is due; returns whether a child of this process has ended."""
        stays = not self.is_head and self.heed()
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
            # A restarted head is a new cluster, without the old jobs and objects: that is for `gpucl up` to decide.
            if not self.is_head and not stays and self.restarts < MOST_RESTARTS and os.path.exists(f"{self.home}/run/.ready"):
                self.due = time.monotonic() + (1 << self.restarts)
            was_child, self.child = self.child is not None, None
            self.state = "stopped" if stays else "ended" if self.due is None else "restarting"
            self.write()
            say(f"{self.launch['name']} ended with exit code {self.code}")
            return was_child
        if self.due is not None and time.monotonic() >= self.due:
            # Leftover children would hold its ports and its GPU.
            self.end_rest()
            self.restarts += 1
            self.start()
            say(f"{self.launch['name']} was started again")
        return False


def poll_all(home, nodes):
    """Checks all nodes once. Orphans of a killed reaper are children of this process now, and are ended."""
    ended = [node for node in nodes if node.poll()]
    if end_adopted({node.child.pid for node in nodes if node.child is not None}):
        return
    for node in ended:
        record = Record.load(f"{home}/processes/{node.launch['key']}")
        # None was missed, since all orphans came to this process.
        if record and not record.over and (record.group is None or record.group.end()):
            record.finish()


def past_proxy(environment, argv):
    """Adds the cluster's own addresses to the exceptions of a proxy: its servers are never reached through one.

    They are among the options of `ray start`: `--address 10.0.0.1:6379`, `--node-ip-address 10.0.0.2`."""
    if not any(name.lower() in ("http_proxy", "https_proxy", "all_proxy") for name in environment):
        return
    known = [one.strip() for name in ("no_proxy", "NO_PROXY") for one in environment.get(name, "").split(",")]
    places = [value for name, value in zip(argv, argv[1:]) if name in ("--address", "--node-ip-address")]
    own = [place.rpartition(":")[0].strip("[]") if name_and_port(place) else place for place in places]
    wanted = dict.fromkeys(one for one in [*known, "localhost", "127.0.0.1", "::1", *own] if one)
    environment["no_proxy"] = environment["NO_PROXY"] = ",".join(wanted)


def name_and_port(place):
    """Whether a port follows: `10.0.0.1:6379`, `[fd00::1]:6379`, and not `fd00::1`."""
    return place.startswith("[") or place.count(":") == 1


def say(text):
    """Writes a line to the supervisor's log."""
    sys.stderr.write(f"{now()} {text}\n")


def now():
    """Returns the current time in UTC, as text."""
    return datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def supervise(home):
    """Supervises the nodes until SIGTERM."""
    os.makedirs(f"{home}/run", mode=0o700, exist_ok=True)
    lock = open(f"{home}/run/.lock", "w", encoding="utf-8")
    end = time.monotonic() + LETS_GO
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except OSError:
            if time.monotonic() > end:
                fail("another supervisor still holds the lock")
            time.sleep(0.1)
    asked = []
    signal.signal(signal.SIGTERM, lambda *_: asked.append(True))
    become_subreaper()
    host = load(home)
    make_folders(home, host)
    nodes = [Node(home, launch, host["grace"]) for launch in host["nodes"]]
    wanted = {node.launch["key"] for node in nodes}
    for path in glob.glob(f"{home}/run/*"):
        name = os.path.basename(path)
        if name not in wanted | {"supervisor"}:
            os.remove(path)
    kept = {node.launch["key"] for node in nodes if node.take_over()}
    ending = f"{home}/run/.ending"
    if any(node.is_head and node.launch["key"] not in kept for node in nodes):
        # The workers belong to the old head's cluster, which is gone: they need not drain.
        open(ending, "w", encoding="utf-8").close()
        kept = {node.launch["key"] for node in nodes if node.launch["key"] in kept and node.launch["role"] == "service"}
    new = [node for node in nodes if node.launch["key"] not in kept]
    # Nodes that are no longer wanted, or outdated, end before others take their ports.
    stays = {node.launch["tag"] for node in nodes if node not in new} | {host["tag"]}
    goes = {variables(pid).get("GPUCL_TAG", "") for pid in carrying("GPUCL_HOST", host["tag"])} - stays
    ask_to_end([("GPUCL_TAG", tag) for tag in goes], host["grace"])
    for tag in goes:
        end_rest(home, tag.rpartition("-")[2], tag)
    for node in new:
        node.end_rest()
    if os.path.exists(ending):
        os.remove(ending)
    give_up_ports(links(home), {node.launch["tag"] for node in nodes})
    for node in new:
        node.put_log_away()
        node.start()
    # When this file exists, every node has its state file.
    with open(f"{home}/run/supervisor.new", "w", encoding="utf-8") as file:
        file.write(f"running {os.getpid()} {started(os.getpid())} {now()} 0 - -\n")
    os.replace(f"{home}/run/supervisor.new", f"{home}/run/supervisor")
    trouble = None
    while not asked:
        try:
            links(home)
        except OSError as error:
            if str(error) != trouble:
                trouble = str(error)
                say(trouble)
        poll_all(home, nodes)
        time.sleep(0.3)
    # Orphans would be lost with this process; nodes go on.
    poll_all(home, [node for node in nodes if node.due is None])


def give_up_ports(folder, nodes):
    """Releases the ports of this host's nodes that are no longer wanted."""
    for path in glob.glob(f"{folder}/ports/[0-9]*"):
        if read(path).split(" ")[0] not in nodes:
            os.remove(path)


def answers(address, port):
    """Returns whether this port accepts connections at an address of this host."""
    try:
        with socket.create_connection((address if address == LOOPBACK else reachable(address), port), timeout=2):
            return True
    except OSError:
        return False


def answers_all(node):
    """Returns whether all servers of a node that are waited for accept connections."""
    ports = node["answers"]
    by_address = ports if isinstance(ports, dict) else {LOOPBACK: ports}
    return all(answers(address, port) for address, ports in by_address.items() for port in ports)


def wait(home, only):
    """Waits until every node answers, or `only` this one. On SIGTERM, or when a node ends, prints why and exits with 1."""
    asked = []
    signal.signal(signal.SIGTERM, lambda *_: asked.append(True))
    nodes = [node for node in load(home)["nodes"] if only in (None, node["key"])]
    printed = None
    while True:
        left = []
        for node in nodes:
            state, _, _, _, _, code = (read(f"{home}/run/{node['key']}").split() + ["-"] * 6)[:6]
            if state == "ended":
                show_log(node)
                print(f"{node['name']} does not stay up: it ended with exit code {code}")
                sys.exit(1)
            if state != "running" or not answers_all(node):
                left.append(node)
        if not left and only is None:
            # From now on, a worker that ends is restarted.
            open(f"{home}/run/.ready", "w", encoding="utf-8").close()
        if not left:
            return
        names = ", ".join(node["name"] for node in left)
        if asked:
            for node in left:
                show_log(node)
            print(f"no answer in time from {names}")
            sys.exit(1)
        if printed != names:
            print(f"waiting for {names} to answer", flush=True)
            printed = names
        time.sleep(0.1)


def show_log(node):
    """Prints the end of a node's log."""
    print(f"the end of the log of {node['name']}:")
    for line in read(node["log"]).splitlines()[-25:]:
        print(f"    {line}")


def listeners(pids):
    """Returns the addresses and ports that these processes listen on."""
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
                # 32-bit words in the machine's byte order.
                packed = b"".join(raw[at : at + 4][::-1] for at in range(0, len(raw), 4))
                found.add((socket.inet_ntop(family, packed), int(port, 16)))
    return found


def is_inner(address):
    """Returns whether an address is of the loopback."""
    return address.startswith(("127.", "::ffff:127.")) or address == "::1"


def judge(host, found):
    """Decides from the addresses and ports that are listened on whether Ray is as closed as it has to be.

    Ports opened by tasks are reported, and do not fail the check. Returns the decision, and what was seen.
    """

    def lies_in(port, ranges):
        return any(first <= port <= last for first, last in ranges)

    if not found and not host["nodes"]:
        return True, "no node runs here"
    network = host.get("network") or {"address": None, "ports": []}
    outside = sorted((address, port) for address, port in found if not is_inner(address))
    ours = [(address, port) for address, port in outside if lies_in(port, host["ports"])]
    needed = [(address, port) for address, port in ours if lies_in(port, network["ports"])]
    wrong = [f"{address}:{port}" for address, port in ours if (address, port) not in needed]
    tasks = [f"{address}:{port}" for address, port in outside if (address, port) not in ours]
    if wrong:
        saw = f"Ray listens on {', '.join(wrong)}: it is open to the network"
        return False, saw + (", and no other host of the cluster needs it" if network["address"] else "")
    if len(found) == len(outside):
        return False, "no listening port was found" if not found else "no listening port of the loopback was found"
    if needed:
        more = f"on {network['address']}"
        if any(address in ("0.0.0.0", "::") for address, _ in needed):
            more += " and this host's other addresses"
        count = len({port for _, port in needed})
        saw = f"{len(found)} listening ports; {count} of Ray open {more} for the cluster's other hosts, with its token"
    else:
        saw = f"{len(found) - len(outside)} listening ports, all on the loopback"
    return True, saw + (f"; tasks opened {', '.join(tasks)}, which Ray does not protect" if tasks else "")


def closed(home, target):
    """Checks that Ray listens on the loopback only, and beyond it only where the cluster's other hosts need it."""
    host = json.loads(read(f"{home}/nodes.json"))
    ok, saw = judge(host, listeners(carrying("GPUCL_HOST", host["tag"])))
    print(f"::check {json.dumps({'check': 'closed ports', 'target': target, 'ok': ok, 'saw': saw})}")


def main():
    """Runs the command given on the command line."""
    command, home = sys.argv[1], os.path.abspath(sys.argv[2])
    if command == "supervise":
        supervise(home)
    elif command == "wait":
        wait(home, sys.argv[3] if len(sys.argv) > 3 else None)
    else:
        closed(home, sys.argv[3])


if __name__ == "__main__":
    main()
