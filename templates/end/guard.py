"""Sees to the end of a cluster on one host: asks jobs to save, and copies what matters to where it outlives the cluster.

    guard.py run HOME       runs until SIGTERM, beside Ray
    guard.py tell HOME      takes an end from its input, and prints the guard's state: one JSON object each
    guard.py report HOME    prints the guard's state
    guard.py save HOME      saves everything once, now, and prints the guard's state; exits with 1 where not all was saved

HOME is the host's folder: `guard.json` in it says what to do, and `guard/` has what the guard knows. What the other files
beside this one do, each of them says. Standard library only, Python 3.6 or newer.

Everything that is done here may be done twice. A guard that was killed reads its state and goes on.
"""

import collections
import contextlib
import json
import os
import signal
import sys
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import activity
import cluster
import record
import s3
import saving
from record import Failed, one_line, to_text

# How often the end, nodes and jobs are looked at near the end, and how often whether the cluster is used, in seconds.
TICK_S, ACTIVITY_S = 1, 15
# How often Ray is asked near the end, in seconds.
RAY_S = 3
# How many workers are drained at the same time: Ray's command takes a second of processor time, and memory.
DRAINS = 4
# The least share of the warning that is kept for the last copy, where this host leads and where it does not: a host that
# does not lead knows nothing of jobs, and copies last when they are stopped.
LAST, LAST_OF_OTHERS = 0.1, 0.05
# The least seconds for it, however short the warning: jobs that are stopped take some seconds to end.
LAST_S = 10
# The most of the warning that the last copy may take from the jobs.
MOST = 0.5
# What a measured time may be wrong by.
CARE = 1.2
# How long jobs may take to end when they are stopped, in seconds; Ray kills them after 3.
STOPS_S = 15
# Over how many seconds of copying its rate is measured.
MEASURED_S = 20
# How long `save` waits for a checkpoint that is being written, in seconds, and for another pass.
PATIENCE_S, LOCK_S = 15, 120
# How long `save` goes on trying where something fails, in seconds.
REFUSED_S = 5
# How often `save` says how far it is, in seconds.
PROGRESS_S = 1
# How often it is looked whether something is new after everything was saved, in seconds.
AFTER_S = 5
WINDOW = ("draining", "saving", "saved")


class Guard:
    """What a host does about the end."""

    def __init__(self, home):
        self.folder = record.Folder(home)
        self.settings = self.folder.settings()
        self.warning = max(1, self.settings.get("warning_s", 600))
        self.ray = cluster.Ray(self.settings["ray"]) if self.settings.get("ray") else None
        self.state, self.written = self.folder.state(), None
        stores = {name: s3.Store(one["endpoint"], one.get("region"), one["credentials"]) if one else None
                  for name, one in (self.settings.get("stores") or {}).items()}
        self.saver = saving.Saver(self.folder, self.settings, stores)
        for thing, before in zip(self.saver.things, self.state["saved"]):
            if (before.get("from"), before.get("to")) == (thing.one["from"], thing.one["to"]):
                thing.new_files, thing.new_bytes, thing.seconds = before["new_files"], before["new_bytes"], before["seconds"]
        self.copies = Copies(self.saver, self.folder)
        self.ray_at = self.activity_at = 0.0
        self.stopped_at, self.drains = None, []
        # Whether jobs were looked at since the last minutes began.
        self.knows_jobs = False
        self.announced = ""

    def write(self):
        """Writes the state, if it is another one."""
        value = json.dumps(self.state, sort_keys=True)
        if value != self.written:
            record.write_json(self.folder.path("state.json"), self.state)
            self.written = value

    def enter(self, phase):
        """Begins a phase."""
        if self.state["phase"] != phase:
            self.state.update({"phase": phase, "since": to_text(time.time())})
            self.write()
            say("%s, %s" % (phase, "the end is at %s" % self.state["end"] if self.state["end"] else "without an end"))

    def run(self):
        """Sees to it until the process is asked to end, or its settings are other ones."""
        self.copies.start()
        while not self.is_outdated():
            self.tick()
            time.sleep(TICK_S)

    def is_outdated(self):
        """Whether its settings are others than those that it began with. Where they cannot be read, they are the same."""
        try:
            return self.folder.settings() != self.settings
        except Failed:
            return False

    def tick(self):
        """Looks once at the end, and does what is due."""
        end = self.folder.end()
        left = end.left()
        self.state.update({"revision": end.revision, "end": end.at, "skew_s": end.skew()})
        self.report_copies(left)
        phase = self.state["phase"]
        if left is None or left > self.warning:
            self.wait(phase, left)
        else:
            if phase not in WINDOW and phase != "over":
                self.begin()
            self.near(end, left)
        self.write()

    def announce(self, end):
        """Has the file say the end that programs look for in the data folder; no end: removes it."""
        value = None if end is None else {"v": 1, "end": end.at, "why": end.why}
        if value != self.announced:
            try:
                record.announce(self.settings["data"], value)
            except OSError as error:
                say("%s: %s" % (record.ANNOUNCED, error))
            self.announced = value

    def wait(self, phase, left):
        """What is done while the end is far."""
        self.announce(None)
        self.copies.mode = None
        if phase in WINDOW or phase == "over":
            # Called off: workers that Ray has lost become nodes again.
            called = cluster.Workers(self.folder.home).call_back()
            if called:
                say("asked for %s again" % ", ".join(called))
            for drain in self.drains:
                drain.give_up()
            self.state.update({"drained": [], "jobs": []})
            self.stopped_at, self.drains = None, []
            self.enter("called_off" if left is None else "waiting")
        elif phase == "called_off" and left is not None:
            self.enter("waiting")
        if self.settings.get("idle") and time.monotonic() >= self.activity_at:
            self.activity_at = time.monotonic() + ACTIVITY_S
            self.look_for_activity()

    def look_for_activity(self):
        """Notes whether the cluster is used, and since when it is not."""
        before = self.state["activity"] or {"since": None, "saw": None}
        try:
            saw = activity.seen(self.settings, self.ray)
        except Failed as failure:
            # Unknown is not unused.
            saw = "unknown: %s" % failure
        if saw:
            self.state["activity"] = {"since": None, "saw": saw}
        else:
            self.state["activity"] = {"since": before["since"] or to_text(time.time()), "saw": before["saw"]}

    def begin(self):
        """Begins the last minutes."""
        for thing in self.saver.things:
            thing.new_files, thing.new_bytes, thing.seconds, thing.complete = 0, 0, 0.0, False
        self.state.update({"drained": [], "jobs": [], "activity": None})
        self.stopped_at, self.ray_at, self.knows_jobs = None, 0.0, False
        self.enter("draining")

    def near(self, end, left):
        """What is done in the last minutes: the phases follow one another as time goes."""
        self.announce(end)
        reserve = self.reserve()
        phase = self.state["phase"]
        if left <= 0:
            # What is not saved is tried on: the machine may be there for a while.
            self.enter("over")
        elif phase == "over":
            # It was moved after all.
            self.enter("saving")
        if self.copies.mode is None:
            self.copies.mode = "pass"
        if self.ray is not None and time.monotonic() >= self.ray_at and phase != "over":
            self.ray_at = time.monotonic() + (TICK_S if self.drains else RAY_S)
            self.see_to_ray(end, left, reserve)
        if phase == "draining" and (left <= reserve or self.is_free()) and self.is_stopped():
            self.copies.finish()
            self.enter("saving")
        elif phase in ("saving", "saved", "over") and self.copies.mode != "final":
            self.copies.finish()
        elif phase == "saving" and self.copies.is_finished():
            self.report_copies(left)
            self.enter("saved")

    def see_to_ray(self, end, left, reserve):
        """Stops jobs whose grace is over, and drains workers that are not drained yet. What fails of the one does not hold up
        the other."""
        troubles = []
        for see in (lambda: self.see_to_jobs(left <= reserve), lambda: self.see_to_workers(end, left - reserve)):
            try:
                see()
            except Failed as failure:
                troubles.append(str(failure))
        trouble = "; ".join(troubles) or None
        if trouble and trouble != self.state["trouble"]:
            say(trouble)
        self.state["trouble"] = trouble

    def see_to_jobs(self, is_over):
        """Looks at jobs, and stops those at work once their grace is over."""
        before = {job["id"]: job for job in self.state["jobs"]}
        found, self.knows_jobs = self.ray.jobs(), True
        jobs = [job for job in found if job["status"] in cluster.AT_WORK or job["id"] in before]
        self.state["jobs"] = [
            {"id": job["id"], "status": job["status"], "stopped": before.get(job["id"], {}).get("stopped", False)} for job in jobs
        ]
        for job, row in zip(jobs, self.state["jobs"]):
            if is_over and job["status"] in cluster.AT_WORK and job["stoppable"] and not row["stopped"]:
                self.ray.stop(job["id"])
                row["stopped"] = True
                self.write()

    def see_to_workers(self, end, seconds):
        """Drains workers that are not drained yet, a few at a time. The supervisor starts a drained one anew as another node,
        which is drained as well."""
        failed = None
        for drain in list(self.drains):
            try:
                if drain.is_done():
                    self.drains.remove(drain)
                    self.state["drained"].append(drain.node)
                    self.write()
            except Failed as failure:
                self.drains.remove(drain)
                failed = failure
        known = set(self.state["drained"]) | {drain.node for drain in self.drains}
        for node in self.ray.workers():
            if node not in known and self.state["phase"] in ("draining", "saving") and len(self.drains) < DRAINS:
                self.drains.append(self.ray.drain(node, max(1, seconds), end.why))
        if failed:
            raise failed

    def is_free(self):
        """Whether nothing works any more, so that the last copy can begin early; never known where this host does not lead."""
        if self.ray is None or not self.knows_jobs or self.drains or self.state["trouble"] or any(job["status"] in cluster.AT_WORK for job in self.state["jobs"]):
            return False
        try:
            return activity.of_jupyter(self.settings.get("jupyter")) is None
        except Failed:
            return True

    def is_stopped(self):
        """Whether no job works any more, or none is waited for any longer."""
        if self.ray is None:
            return True
        if self.stopped_at is None:
            self.stopped_at = time.monotonic()
        at_work = any(job["status"] in cluster.AT_WORK for job in self.state["jobs"])
        if at_work:
            # What is asked for was asked just now.
            self.ray_at = 0.0
        return not at_work or time.monotonic() - self.stopped_at > min(STOPS_S, self.warning * LAST / 2)

    def reserve(self):
        """How many seconds before the end the last copy begins."""
        expected = self.copies.expected_s()
        least = self.warning * (LAST if self.settings["leads"] else LAST_OF_OTHERS)
        return min(self.warning * MOST, max(least, LAST_S if self.settings["leads"] else LAST_S / 2, CARE * expected))

    def report_copies(self, left):
        """Takes over what the copies came to."""
        missing, _ = self.saver.missing()
        expected = self.copies.expected_s()
        rate = self.copies.rate()
        is_stuck = rate is None and any(thing.failed for thing in self.saver.things)
        self.state.update({
            "saved": [thing.report() for thing in self.saver.things],
            "rate": None if rate is None else int(rate),
            "missing_bytes": missing,
            "fits": left is None or left > self.warning or missing == 0 or (expected <= max(0, left) and not is_stuck),
        })


class Copies(threading.Thread):
    """Copies in a thread of its own, so that a store that does not answer holds up nothing else."""

    def __init__(self, saver, folder):
        super().__init__(daemon=True)
        self.saver, self.folder = saver, folder
        # `pass` while jobs work, `final` at the end, None while the end is far.
        self.mode, self.asked, self.finished = None, 0, 0
        # How long it copied, and how many bytes it sent meanwhile, in the last seconds.
        self.busy, self.last, self.samples = False, None, collections.deque()

    def finish(self):
        """Asks for the last pass."""
        self.mode, self.asked = "final", self.asked + 1

    def is_finished(self):
        """Whether a pass that began after it was asked for has saved everything."""
        return self.mode == "final" and self.finished == self.asked

    def run(self):
        """Copies whenever there is a reason."""
        while True:
            mode, asked = self.mode, self.asked
            if mode is None:
                time.sleep(TICK_S / 4)
                continue
            begun = time.monotonic()
            try:
                with record.locked(self.folder.path(".pass.lock"), LOCK_S):
                    self.busy = True
                    whole = self.saver.pass_once(mode == "final")
            except Failed as failure:
                say(str(failure))
                whole = False
            except Exception as error:  # a mistake of this program must not end what it is there for
                say("failed to save: %r" % error)
                whole = False
            self.busy = False
            if whole and mode == "final":
                self.finished = asked
            # A look costs something: it is not made all the time.
            took = time.monotonic() - begun
            if any(thing.cut for thing in self.saver.things):
                time.sleep(TICK_S / 10)
            else:
                time.sleep(AFTER_S if self.is_finished() else max(TICK_S, 0 if mode == "final" else took))

    def measure(self):
        """Takes a sample of how much is sent."""
        now, sent, (_, files) = time.monotonic(), self.saver.sent, self.saver.missing()
        files = sum(thing.new_files for thing in self.saver.things)
        if self.last is not None and self.busy:
            before, sent_before, files_before = self.last
            if now - before < 0.5:
                return
            self.samples.append((now - before, sent - sent_before, max(0, files - files_before)))
            while sum(one[0] for one in self.samples) > MEASURED_S and len(self.samples) > 1:
                self.samples.popleft()
        self.last = (now, sent, files)

    def rate(self):
        """How many bytes per second are sent, or None before anything was measured."""
        self.measure()
        sent, seconds = sum(one[1] for one in self.samples), sum(one[0] for one in self.samples)
        return sent / seconds if sent and seconds else None

    def expected_s(self):
        """How many seconds the copy of what is missing takes, as far as that is known."""
        missing, files = self.saver.missing()
        seconds = sum(one[0] for one in self.samples)
        done = sum(one[1] + saving.EACH * one[2] for one in self.samples)
        return (missing + saving.EACH * files) * seconds / done if done and seconds else 0.0


def say(text):
    """Writes a line to the guard's log."""
    sys.stderr.write("%s %s\n" % (to_text(time.time()), one_line(text)))
    sys.stderr.flush()


def printed(folder, state=None):
    """Prints the state, and whether a guard runs."""
    print(json.dumps(dict(state or folder.state(), running=folder.is_guarded())), flush=True)


def run(home):
    """Runs the guard."""
    guard = Guard(home)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    with record.locked(guard.folder.path(".guard.lock"), 20):
        guard.run()
    say("its settings have changed: it starts anew")
    os.execv(sys.executable, [sys.executable, "-I", "-B"] + sys.argv)


def tell(home):
    """Takes an end."""
    folder = record.Folder(home)
    folder.settings()
    try:
        given = json.load(sys.stdin)
    except ValueError as error:
        raise Failed("what is given is no JSON: %s" % error) from None
    folder.tell(given)
    printed(folder)


@contextlib.contextmanager
def progress_of(saver):
    """Says every few seconds how many bytes were copied, of how many; for whoever follows the program."""
    done, before = threading.Event(), sum(thing.new_bytes for thing in saver.things)

    def tell():
        while not done.wait(PROGRESS_S):
            copied = sum(thing.new_bytes for thing in saver.things) - before
            sys.stderr.write("::progress %d %d\n" % (copied, copied + saver.missing()[0]))
            sys.stderr.flush()

    thread = threading.Thread(target=tell, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


def save(home):
    """Saves everything once."""
    guard = Guard(home)
    whole, least, end = False, None, time.monotonic() + PATIENCE_S
    with record.locked(guard.folder.path(".pass.lock"), LOCK_S), progress_of(guard.saver):
        while not whole:
            whole = guard.saver.pass_once(False, slice_s=3600)
            # As long as less is missing than ever before, it goes on.
            missing = guard.saver.missing()
            if least is None or missing < least:
                least, end = missing, time.monotonic() + PATIENCE_S
            if not whole and time.monotonic() > end - (PATIENCE_S - REFUSED_S if any(thing.failed for thing in guard.saver.things) else 0):
                break
            if not whole:
                time.sleep(TICK_S)
        for thing in guard.saver.things:
            if thing.waiting and not thing.failed:
                thing.failed = "%s is being written" % saving.unit_of(thing.waiting[0])
    guard.report_copies(None)
    state = dict(guard.folder.state(), **{name: guard.state[name] for name in ("saved", "missing_bytes")})
    if not guard.folder.is_guarded():
        record.write_json(guard.folder.path("state.json"), state)
    printed(guard.folder, state)
    return 0 if whole else 1


def main():
    """Runs the command given on the command line."""
    commands = {"run": run, "tell": tell, "save": save, "report": lambda home: printed(record.Folder(home))}
    if len(sys.argv) != 3 or sys.argv[1] not in commands:
        sys.exit("usage: guard.py run|tell|report|save HOME")
    with contextlib.suppress(BrokenPipeError):
        try:
            code = commands[sys.argv[1]](os.path.abspath(sys.argv[2]))
        except (Failed, OSError) as failure:
            sys.exit("guard: %s" % one_line(failure))
        sys.stdout.flush()
        # Threads that copy have nothing left to do.
        os._exit(code or 0)


if __name__ == "__main__":
    main()
