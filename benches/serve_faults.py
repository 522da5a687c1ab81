"""Fifty requests a second to an application of Serve that is updated, rolled back, and hurt: what is lost?

    python3 benches/serve_faults.py gpucl PROGRAM [SECONDS]    on a cluster of gpucl with two workers, on this machine
    python3 benches/serve_faults.py bare RAY [SECONDS]         on the same nodes, started by hand with this `ray`

Both run the same application from the same configuration. The run (300 seconds, unless others are given) has five parts
of equal length: nothing happens; version 2 takes the place of 1; 1 comes back; a replica is killed (`kill -9`); and a
worker's node is killed that has one. It ends with 1 if a request was lost before the kills.
"""

import asyncio
import json
import os
import pathlib
import secrets
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

from serve_load import Load

APP = """\
import asyncio, os
from ray import serve

@serve.deployment(num_replicas=2, ray_actor_options={"num_cpus": 0.25})
class Food:
    async def __call__(self, request):
        await asyncio.sleep(0.02)
        return "version " + os.environ["VERSION"]

food = Food.bind()
"""
# `ray start`, which refuses to join a node on the loopback to another (ray 2.60.0), without that refusal.
JOIN = """\
import types
from ray.scripts import scripts
scripts.ray_constants = types.SimpleNamespace(**{**vars(scripts.ray_constants), "ENABLE_RAY_CLUSTER": True})
scripts.main()
"""
SPEC = "name: load\nprovider: local\noversubscribe: true\nray: {head: {cpus: 0}, workers: {count: 2, cpus: 1}}\n"


def command(*words, **more):
    """Runs a program; its output is returned."""
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True, **more).stdout


def processes():
    """The parent of each process of this machine."""
    parents = {}
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(path.parent.name)] = int(path.read_text().rpartition(")")[2].split()[1])
        except OSError:
            pass  # it has ended
    return parents


def kill_tree(root):
    """Kills a process and all that come from it, at once."""
    parents = processes()
    tree = [root]
    for pid in tree:
        tree += [child for child, parent in parents.items() if parent == pid]
    for pid in tree:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


class Gpucl:
    """A cluster of gpucl."""

    def __init__(self, program, folder):
        self.program, self.folder = os.path.abspath(program), folder
        (folder / "cluster.yaml").write_text(SPEC)
        (folder / "app").mkdir()
        (folder / "app/app.py").write_text(APP)
        self.environment = {
            **os.environ,
            "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")),
            "HOME": str(folder / "home"),
            "XDG_RUNTIME_DIR": str(folder / "run"),
        }
        for name in ("home", "run"):
            (folder / name).mkdir(mode=0o700)

    def run(self, *words):
        """Runs the program."""
        return command(self.program, *words, cwd=self.folder, env=self.environment, stderr=subprocess.DEVNULL)

    def up(self):
        """Starts it; the address of its applications, and the key."""
        self.run("up")
        self.deploy(1)
        words = [self.program, "serve", "url", "--output", "json"]
        self.way = subprocess.Popen(words, cwd=self.folder, env=self.environment, stdout=subprocess.PIPE, text=True)
        address = json.loads(self.way.stdout.readline())
        return address["url"], address["key"]

    def deploy(self, version):
        """Deploys a version, and waits until it serves."""
        self.run("serve", "deploy", "app:food", "--working-dir", "app", "--env", f"VERSION={version}")

    def roll_back(self):
        """Brings back what served before."""
        self.run("serve", "rollback")

    def replicas(self):
        """The replicas that run: each with its process and its node."""
        status = json.loads(self.run("serve", "status", "--output", "json").splitlines()[0])
        return [(it["pid"], it["node"]) for it in status["deployments"][0]["replicas"] if it["state"] == "RUNNING"]

    def kill_node(self, _, node):
        """Kills a worker's node."""
        self.run("worker", "kill", node)

    def down(self):
        """Ends it."""
        if hasattr(self, "way"):
            self.way.terminate()
            self.way.wait()
        self.run("down", "--yes")


class Bare:
    """Three nodes of Ray, started by hand with the options that matter of a cluster of gpucl."""

    # The first of 300 ports that should be free: none that the system gives to programs, or that gpucl takes.
    PORT = 17300

    def __init__(self, ray, folder):
        self.ray, self.folder, self.nodes = os.path.abspath(ray), folder, {}
        for version in (1, 2):
            (folder / f"v{version}").mkdir()
            (folder / f"v{version}/app.py").write_text(APP)
        token = secrets.token_hex(32)
        (folder / "token").write_text(token)
        self.headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self.environment = {
            **os.environ,
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN_PATH": str(folder / "token"),
            "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
            "RAY_USAGE_STATS_ENABLED": "0",
        }

    def start(self, number):
        """Starts the head (0) or a worker's node."""
        first = self.PORT + 100 * number
        names = ["dashboard-agent-listen-port", "dashboard-agent-grpc-port", "runtime-env-agent-port"]
        names += ["metrics-export-port", "node-manager-port", "object-manager-port"]
        python = os.path.join(os.path.dirname(self.ray), "python")
        words = [python, "-c", JOIN, "start", "--block", "--node-ip-address", "127.0.0.1", "--object-store-memory", "200000000"]
        for at, name in enumerate(names):
            words += [f"--{name}", str(first + 10 + at)]
        words += ["--min-worker-port", str(first + 20), "--max-worker-port", str(first + 99), "--num-gpus", "0"]
        if number == 0:
            words += ["--head", "--port", str(first), "--dashboard-host", "127.0.0.1", "--num-cpus", "0"]
            words += ["--dashboard-port", str(first + 1), "--ray-client-server-port", str(first + 2)]
            words += ["--temp-dir", str(self.folder / "ray")]
        else:
            words += ["--address", f"127.0.0.1:{self.PORT}", "--num-cpus", "1"]
        environment = {**self.environment, "AUTOSCALER_METRIC_PORT": str(first + 3), "DASHBOARD_METRIC_PORT": str(first + 4)}
        log = open(self.folder / f"node-{number}.log", "w")
        self.nodes[number] = subprocess.Popen(words, env=environment, stdout=log, stderr=log, start_new_session=True)

    def call(self, path, body=None):
        """Calls the dashboard."""
        data = json.dumps(body).encode() if body else None
        url = f"http://127.0.0.1:{self.PORT + 1}{path}"
        request = urllib.request.Request(url, data, self.headers, method="PUT" if body else "GET")
        with urllib.request.urlopen(request, timeout=60) as answer:
            return json.loads(answer.read() or b"null")

    def alive(self):
        """The nodes that live, as Ray's state API has them."""
        found = self.call("/api/v0/nodes?detail=true")["data"]["result"]["result"]
        return [node for node in found if node["state"] == "ALIVE"]

    def up(self):
        """Starts it; the address of its applications, and no key."""
        self.start(0)
        wait("the head", lambda: self.alive())
        # One after the other: two at once take the same names in the folder of the session.
        for number in (1, 2):
            self.start(number)
            wait("all nodes", lambda: len(self.alive()) == number + 1)
        self.deploy(1)
        return f"http://127.0.0.1:{self.PORT + 5}/", None

    def deploy(self, version):
        """Deploys a version, and waits until it serves."""
        variables = {"VERSION": str(version)}
        app = {"name": "default", "route_prefix": "/", "import_path": "app:food"}
        app["runtime_env"] = {"working_dir": f"local://{self.folder}/v{version}", "env_vars": variables}
        options = {"host": "127.0.0.1", "port": self.PORT + 5}
        self.call(
            "/api/serve/applications/",
            {"proxy_location": "HeadOnly", "http_options": options, "applications": [app]},
        )
        wait("the application", lambda: self.status()["status"] == "RUNNING")

    def roll_back(self):
        """Brings back what served before."""
        self.deploy(1)

    def status(self):
        """What Serve says of the application."""
        return self.call("/api/serve/applications/")["applications"]["default"]

    def replicas(self):
        """The replicas that run: each with its process and its node."""
        all_replicas = self.status()["deployments"]["Food"]["replicas"]
        return [(it["pid"], it["node_id"]) for it in all_replicas if it["state"] == "RUNNING"]

    def kill_node(self, pid, _):
        """Kills the node of a replica's process. It is not started again."""
        parents = processes()
        starters = [process.pid for process in self.nodes.values()]
        while pid not in starters:
            pid = parents[pid]
        kill_tree(pid)

    def down(self):
        """Ends all nodes."""
        for process in self.nodes.values():
            kill_tree(process.pid)
            process.wait()


def wait(name, is_there):
    """Waits up to two minutes until something is there."""
    end = time.monotonic() + 120
    while True:
        try:
            if is_there():
                return
            failure = ""
        except (OSError, KeyError, TypeError) as error:
            failure = f": {type(error).__name__}: {error}"
        if time.monotonic() > end:
            raise TimeoutError(f"{name} did not come{failure}")
        time.sleep(0.3)


def one_of(cluster):
    """A replica: its process, and its node."""
    found = []

    def are_there():
        found[:] = cluster.replicas()
        return len(found) == 2 and all(pid in processes() for pid, _ in found)

    # One that was just killed is still in Serve's list.
    wait("two replicas", are_there)
    return found[0]


async def rounds(cluster, load, part):
    """Does one thing after the other at the beginning of each part."""
    loop = asyncio.get_running_loop()
    acts = [
        ("update", lambda: cluster.deploy(2)),
        ("rollback", cluster.roll_back),
        ("kill -9 of a replica", lambda: os.kill(one_of(cluster)[0], signal.SIGKILL)),
        ("kill of its node", lambda: cluster.kill_node(*one_of(cluster))),
    ]
    running = asyncio.create_task(load.run(part * 5))
    begins = [("nothing", 0.0)]
    await asyncio.sleep(part)
    for number, (name, act) in enumerate(acts, 1):
        begins.append((name, time.monotonic() - load.begin))
        await loop.run_in_executor(None, act)
        took = time.monotonic() - load.begin - begins[-1][1]
        print(f"{name}: done after {took:.1f} s", flush=True)
        await asyncio.sleep(max(0, load.begin + part * (number + 1) - time.monotonic()))
    await running
    return begins


def main():
    kind, program = sys.argv[1:3]
    seconds = float(sys.argv[3]) if len(sys.argv) > 3 else 300
    with tempfile.TemporaryDirectory(prefix="gl-") as folder:
        cluster = {"gpucl": Gpucl, "bare": Bare}[kind](program, pathlib.Path(folder))
        try:
            url, key = cluster.up()
            load = Load(url, 50, key)
            begins = asyncio.run(rounds(cluster, load, seconds / 5))
        finally:
            cluster.down()
    ends = [begin for _, begin in begins[1:]] + [float("inf")]
    for (name, begin), end in zip(begins, ends):
        print(load.report(name, begin, end))
    print(load.report("all"))
    print("answers:", dict(load.versions))
    lost = [it for it in load.outcomes if it[1] != "200" and it[0] < begins[3][1]]
    sys.exit(1 if lost else 0)


if __name__ == "__main__":
    main()
