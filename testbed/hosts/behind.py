"""behind: hosts of testbed/hosts behind the machines of a cloud that is a stand-in, or whose machines are. Used by the
daemons `wire` of testbed/openstack and testbed/lambda, which decide which machines exist."""
import http.client
import json
import os
import subprocess
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ATTEMPTS = 3


def say(text):
    print("%s %s" % (time.strftime("%H:%M:%S"), text), flush=True)


def run(*command, text=None):
    done = subprocess.run(command, input=text, capture_output=True, text=True)
    if done.returncode != 0:
        raise OSError("%s: %s" % (" ".join(command[:3]), (done.stderr or done.stdout).strip()[-600:]))
    return done.stdout


class Behind:
    """Hosts with a label that holds the machine's id; a host's name is `prefix` plus the id."""

    def __init__(self, label, prefix, of=None):
        # `of`: an additional label of all of this daemon's hosts, if several daemons run
        self.label, self.prefix, self.of = label, prefix, of
        self.lock, self.failed, self.booting = threading.Lock(), {}, set()

    def labelled(self):
        also = ["--filter", "label=" + self.of] if self.of else []
        return set(run("docker", "ps", "-a", "--filter", "label=" + self.label, *also, "--format", '{{.Label "%s"}}' % self.label).split())

    def listed(self):
        """Returns the ids of machines whose host exists or boots. In this order, no boot that ends meanwhile is missed."""
        with self.lock:
            booting = set(self.booting)
        return booting | self.labelled()

    def container(self, id):
        return "gpucl-testbed-" + self.prefix + id

    def remove(self, id):
        run("docker", "rm", "-fv", self.container(id))

    def remove_all_but(self, ids):
        """Removes the hosts of machines that are gone; those still booting are left to the next poll."""
        for id in self.labelled() - set(ids):
            with self.lock:
                if id in self.booting:
                    continue
            self.remove(id)
            say("%s is gone, and its host" % id)

    def may_boot(self, id):
        return self.failed.get(id, 0) < ATTEMPTS

    def begin(self, id, name, make):
        """Calls `make` in a thread and logs the line it returns. Does nothing while another call runs for this id."""
        with self.lock:
            if id in self.booting:
                return
            self.booting.add(id)
        threading.Thread(target=self._boot, args=(id, name, make), daemon=True).start()

    def _boot(self, id, name, make):
        try:
            t0 = time.time()
            text = make()
            say("%s (%s) %s, switched on in %.1f s" % (name, id, text, time.time() - t0))
        except (OSError, ValueError, KeyError) as e:
            self.failed[id] = self.failed.get(id, 0) + 1
            say("%s (%s) does not boot, attempt %d of %d: %s" % (name, id, self.failed[id], ATTEMPTS, e))
            # What is left of it would be listed as a host, and never be booted again.
            subprocess.run(["docker", "rm", "-fv", self.container(id)], capture_output=True)
        finally:
            with self.lock:
                self.booting.discard(id)

    def host(self, id, user_data, keys, *options):
        """Starts a host; returns the output of testbed/hosts/host."""
        with tempfile.TemporaryDirectory() as d:
            data, key = os.path.join(d, "user-data"), os.path.join(d, "key")
            with open(data, "wb") as f:
                f.write(user_data or b"#cloud-config\n")
            with open(key, "w") as f:
                f.write("".join(k.strip() + "\n" for k in keys))
            labels = ["--label", "%s=%s" % (self.label, id)] + (["--label", self.of] if self.of else [])
            return json.loads(run(os.path.join(HERE, "host"), self.prefix + id, "--user-data", data, "--public-key", key, "--no-wait", *labels, *options))


def forever(step, poll):
    """Polls forever. The services may be starting or stopping: a repeated error is logged once."""
    logged = None
    while True:
        try:
            step()
            logged = None
        except (OSError, http.client.HTTPException, ValueError, KeyError) as e:
            if str(e) != logged:
                say("poll failed: %s" % e)
            logged = str(e)
        time.sleep(poll)
