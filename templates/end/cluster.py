"""What the guard asks of Ray: its nodes, its jobs, to drain workers and to stop jobs.

Ray's HTTP API with the cluster's token, and one command of Ray, `ray drain-node`, which is hidden and without a promise:
it is used here alone. Standard library only, Python 3.6 or newer.
"""

import http.client
import json
import os
import subprocess
import tempfile
import time
import urllib.parse

from record import Failed, one_line

# How long an answer of Ray may take, and a command of Ray, in seconds. A command imports Ray, on a busy machine.
ANSWER_S, COMMAND_S = 10, 60
LONGEST_ANSWER = 64 << 20
AT_WORK = ("PENDING", "RUNNING")


def ask(url, token, method="GET", path="", scheme="Bearer", body=None, limit_s=ANSWER_S):
    """Asks a server of this machine; returns its JSON, and raises Failed."""
    parts = urllib.parse.urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname, parts.port, timeout=limit_s)
    headers = {"Authorization": "%s %s" % (scheme, token)} if token else {}
    try:
        connection.request(method, parts.path.rstrip("/") + path, body, headers)
        answer = connection.getresponse()
        content = answer.read(LONGEST_ANSWER)
        if answer.status != 200:
            raise Failed(one_line("%s answers %d to %s" % (url, answer.status, path)))
        return json.loads(content.decode("utf-8", "replace")) if content else {}
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise Failed(one_line("no answer from %s: %s" % (url, error or type(error).__name__))) from None
    finally:
        connection.close()


def token_of(path):
    """The token in a file; none where there is no file."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read().strip()
    except (OSError, TypeError):
        return ""


class Ray:
    """Ray on the head's host."""

    def __init__(self, settings):
        self.settings = settings

    def ask(self, method, path):
        """Asks the dashboard."""
        return ask(self.settings["dashboard"], token_of(self.settings.get("token")), method, path)

    def workers(self):
        """The ids of the workers that are alive."""
        found = self.ask("GET", "/api/v0/nodes?detail=1&limit=10000")
        result = ((found.get("data") or {}).get("result") or {}).get("result") or []
        return sorted(node["node_id"] for node in result if node.get("state") == "ALIVE" and not node.get("is_head_node"))

    def drain(self, node, seconds, why):
        """Begins to say to a node that it ends in so many seconds: what runs there is asked to save, and nothing new comes."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("RAY_")}
        # As nodes have it. With 1, Ray's commands take 127.0.0.1 for this machine's address in its network, where a head that
        # keeps to the loopback does not listen: they wait for it in vain.
        environment["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0" if self.settings["gcs"].startswith("127.") else "1"
        if self.settings.get("token"):
            environment.update({"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": self.settings["token"]})
        words = [self.settings["ray"], "drain-node", "--address", self.settings["gcs"], "--node-id", node]
        words += ["--reason", "DRAIN_NODE_REASON_PREEMPTION", "--reason-message", why or "the end of the cluster"]
        words += ["--deadline-remaining-seconds", str(max(1, int(seconds)))]
        return Drain(node, words, environment)

    def jobs(self):
        """The jobs: id, status, and whether one can be stopped by its id."""
        found = []
        for job in self.ask("GET", "/api/jobs/") or []:
            name = job.get("submission_id") or job.get("job_id")
            if name:
                found.append({"id": name, "status": job.get("status", ""), "stoppable": bool(job.get("submission_id"))})
        return found

    def stop(self, job):
        """Asks for the end of a job; Ray ends its processes itself when it does not end."""
        self.ask("POST", "/api/jobs/%s/stop" % urllib.parse.quote(job, safe=""))


class Drain:
    """A command that drains a node, which takes seconds: nothing waits for it."""

    def __init__(self, node, words, environment):
        self.node, self.limit, self.output = node, time.monotonic() + COMMAND_S, tempfile.TemporaryFile()
        try:
            self.child = subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL, stdout=self.output,
                                          stderr=subprocess.STDOUT)
        except OSError as error:
            raise Failed(one_line("`ray drain-node` does not run: %s" % error)) from None

    def is_done(self):
        """Whether the node is drained; raises Failed where it cannot be."""
        code = self.child.poll()
        if code is None and time.monotonic() > self.limit:
            self.give_up()
            raise Failed("`ray drain-node` does not end within %d s" % COMMAND_S)
        if code:
            self.output.seek(0)
            lines = self.output.read(LONGEST_ANSWER).decode("utf-8", "replace").strip().splitlines() or [""]
            raise Failed(one_line("`ray drain-node` ends with exit code %d: %s" % (code, lines[-1])))
        return code == 0

    def give_up(self):
        """Ends the command; the node may be drained all the same."""
        self.child.kill()
        self.child.wait()


class Workers:
    """The workers of this host where nodes are processes: their supervisor starts one anew that Ray has lost."""

    def __init__(self, home):
        self.run = os.path.join(home, "run")

    def call_back(self):
        """Asks the supervisor for the workers that it has given up. One that was stopped by hand stays so."""
        called = []
        for key in sorted(os.listdir(self.run)) if os.path.isdir(self.run) else []:
            path = os.path.join(self.run, key)
            if key.startswith(".") or not os.path.isfile(path):
                continue
            with open(path, encoding="utf-8", errors="replace") as file:
                words = file.read().split()
            if len(words) == 7 and words[0] == "ended" and not os.path.exists(os.path.join(self.run, ".stopped-" + key)):
                open(os.path.join(self.run, ".start-" + key), "w").close()
                called.append(key)
        return called
