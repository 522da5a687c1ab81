"""Runs the program of one node, and ends with it whatever it started. Standard library only.

    python3 reaper.py run HOME KEY PROGRAM ARGUMENT...
    python3 reaper.py end HOME NAME=VALUE [SECONDS]

A job can empty its environment, leave its session, fork twice and take another name. What it cannot do is choose its
parent: a process whose parent has ended becomes a child of the nearest subreaper above it (man 2 prctl). `run` is one, so
that everything that its program ever started is below it in the tree of processes for as long as it lives. On SIGTERM it asks
the program to end; a second SIGTERM ends it at once. When the program has ended, all that is below it is ended too.

SIGKILL ends a reaper before it can do that. Its orphans then go to the supervisor, which is a subreaper as well and ends them
(`end_adopted`). When both are killed, what helps is what `run` has written down, in `HOME/processes/KEY`, twice a second:

    boot ID                    a process number means nothing after a restart
    reaper PID TICKS
    group PATH                 a control group that nothing but this node is in, where this user may make one
    session PID                led, now or before, by a process that is below
    process PID TICKS SESSION  each that is below
    lost                       an earlier reaper of this node was killed, and nobody was there to see what it left
    over                       all have ended; without this line, somebody may have been missed

`end` asks the reapers that carry NAME=VALUE in their environment, waits for them so many seconds, and asks once more. Then it ends what is written down there, what carries NAME=VALUE in its environment, and what is below any of these; it prints
`::left` lines for what it cannot end, and `::unknown` lines for what cannot be known.
"""

import os
import signal
import sys
import time

# How often processes are looked at; a process that is hidden more quickly than that is missed if everybody is killed then.
INTERVAL = 0.5
# Every so many looks all processes are read again, and not only those that are new.
WHOLE = 120
# How long a program that was asked to end may take; who asked may ask again before that.
LONGEST_END = 600
# How long a reaper that was asked twice may take to end its node.
AFTER_SECOND = 5
# How long it may take to stop all, and then how long after SIGKILL a process may take to vanish.
AFTER_KILL = 10
SET_CHILD_SUBREAPER, SET_PDEATHSIG = 36, 1
ASKS_TO_END = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def fail(message):
    """Ends with a message that the log shows."""
    sys.stderr.write(f"reaper.py: {message}\n")
    sys.exit(70)


def read(path):
    """A file's text; nothing when it is not there."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def variables(pid):
    """The environment of a process that this user may look at."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            parts = file.read().split(b"\0")
    except OSError:
        return {}
    return dict(part.decode(errors="replace").partition("=")[::2] for part in parts if part)


class Process:
    """What the kernel says of one process."""

    def __init__(self, pid, fields):
        self.pid, self.parent, self.session, self.ticks = pid, int(fields[1]), int(fields[3]), fields[19]
        # One whose first thread has ended shows as a zombie while others of its threads run on.
        self.runs = fields[0] not in "ZX" or int(fields[17]) > 1

    @staticmethod
    def of(pid):
        """The process of this number; nothing when there is none."""
        # The name stands in parentheses and may hold blanks: what follows the last one is regular (man 5 proc).
        fields = read(f"/proc/{pid}/stat").rpartition(")")[2].split()
        return Process(pid, fields) if len(fields) > 19 else None

    @property
    def identity(self):
        """What no other process has: its number, and when it started."""
        return (self.pid, self.ticks)


def started(pid):
    """When a process started, in ticks; nothing when it is gone or has ended."""
    process = Process.of(pid)
    return process.ticks if process and process.runs else None


def numbers():
    """The numbers of all processes."""
    return {int(name) for name in os.listdir("/proc") if name.isdigit()}


def table():
    """All processes."""
    found = (Process.of(pid) for pid in numbers())
    return {process.pid: process for process in found if process}


def below(processes, roots):
    """The numbers of all processes that descend from one of these."""
    children = {}
    for process in processes.values():
        children.setdefault(process.parent, []).append(process.pid)
    found, left = set(), list(roots)
    while left:
        for child in children.get(left.pop(), []):
            if child not in found:
                found.add(child)
                left.append(child)
    return found


def send(identity, number):
    """Signals this very process: it is pinned before it is looked at, as its number may be a stranger's by now."""
    pid, ticks = identity
    try:
        pinned = os.pidfd_open(pid)
    except OSError:
        return
    try:
        process = Process.of(pid)
        if process and process.ticks == ticks:
            signal.pidfd_send_signal(pinned, number)
    except OSError:
        pass
    finally:
        os.close(pinned)


def end(collect, limit=AFTER_KILL):
    """Ends all that `collect` finds, a set of identities; hands back those that cannot be ended.

    What was stopped starts nothing any more. So all are stopped until no other is found, and are killed only then: a parent
    that is killed before its children are known would take away what they are known by.
    """
    stopped = set()
    until = time.monotonic() + limit
    while time.monotonic() < until:
        found = collect()
        if found <= stopped:
            break
        for identity in found - stopped:
            send(identity, signal.SIGSTOP)
        stopped |= found
    until = time.monotonic() + limit
    while True:
        left = {identity for identity in stopped | collect() if started(identity[0]) == identity[1]}
        if not left or time.monotonic() > until:
            return sorted(left)
        for identity in left:
            send(identity, signal.SIGKILL)
        time.sleep(0.02)


def collect_ended():
    """Collects all children that have ended; hands back how each did."""
    ended = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if not pid:
            return ended
        ended[pid] = status


def become_subreaper():
    """From now on orphans that descend of this process become its children; hands back whether the kernel agreed."""
    try:
        import ctypes

        return ctypes.CDLL(None, use_errno=True).prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    except (ImportError, OSError, AttributeError):
        return False


def end_adopted(own):
    """Ends all children that this process did not start itself, and what is below them; `own` are those that it did.

    Hands back those that cannot be ended.
    """
    # Most often there are none, and the kernel says so at once, where it was built to.
    known = read(f"/proc/self/task/{os.getpid()}/children").split()
    if known and not {int(pid) for pid in known} - own:
        return []

    def adopted():
        processes = table()
        me = os.getpid()
        roots = {process.pid for process in processes.values() if process.parent == me and process.pid not in own}
        return {processes[pid].identity for pid in roots | below(processes, roots) if processes[pid].runs}

    left = end(adopted)
    # Those alone: whoever started the others wants to know how they ended.
    for process in table().values():
        if process.parent == os.getpid() and process.pid not in own and not process.runs:
            try:
                os.waitpid(process.pid, os.WNOHANG)
            except ChildProcessError:
                pass
    return left


class Group:
    """A control group (version 2) of one node. Whoever is born in it is in it."""

    def __init__(self, path):
        self.path = path

    @staticmethod
    def above():
        """The folder of the group that this process is in; nothing where version 2 is not mounted, or not for us to change."""
        own = next((line[3:] for line in read("/proc/self/cgroup").splitlines() if line.startswith("0::/")), None)
        for line in read("/proc/self/mountinfo").splitlines():
            fields, _, kind = line.partition(" - ")
            root, mount = fields.split()[3:5]
            if own is None or not kind.startswith("cgroup2 ") or "/.." in own:
                continue
            inner = os.path.relpath(own, root)
            folder = os.path.normpath(f"{mount}/{inner}")
            if not inner.startswith("..") and os.access(f"{folder}/cgroup.procs", os.W_OK):
                return folder
        return None

    @staticmethod
    def make(name):
        """Makes a group that this process can go into and out of; nothing where that cannot be."""
        above = Group.above()
        if above is None:
            return None
        group = Group(f"{above}/{name}")
        try:
            os.mkdir(group.path, 0o755)
            # Without it (before Linux 5.14) a group cannot be ended at one blow.
            if not os.path.exists(f"{group.path}/cgroup.kill"):
                raise OSError("no cgroup.kill")
            group.join()
            group.leave()
            return group
        except OSError:
            group.remove()
            return None

    def join(self):
        """Goes into it."""
        self.write("cgroup.procs", "0")

    def leave(self):
        """Goes out of it again, to the group above."""
        with open(f"{os.path.dirname(self.path)}/cgroup.procs", "w", encoding="ascii") as file:
            file.write("0")

    def write(self, name, text):
        """Writes one of its files."""
        with open(f"{self.path}/{name}", "w", encoding="ascii") as file:
            file.write(text)

    def end(self, limit=AFTER_KILL):
        """Ends all that is in it, and removes it; hands back whether that was done."""
        until = time.monotonic() + limit
        while os.path.isdir(self.path):
            try:
                self.write("cgroup.kill", "1")
            except OSError:
                pass
            if self.remove():
                return True
            if time.monotonic() > until:
                return False
            time.sleep(0.01)
        return True

    def remove(self):
        """Removes it with the groups in it; hands back whether it is gone. One in which something runs stays."""
        for folder, _, _ in os.walk(self.path, topdown=False):
            try:
                os.rmdir(folder)
            except OSError:
                pass
        return not os.path.isdir(self.path)


class Record:
    """What is written down of one node."""

    def __init__(self, path):
        self.path, self.text = path, None
        self.reaper, self.group, self.over, self.lost = None, None, False, False
        self.sessions, self.processes = set(), {}

    @staticmethod
    def load(path):
        """What an earlier reaper has written; nothing when there is nothing of this boot."""
        record = Record(path)
        record.text = read(path)
        lines = [line.split(" ") for line in record.text.splitlines()]
        if ["boot", read("/proc/sys/kernel/random/boot_id").strip()] not in lines:
            return None
        for line in lines:
            kind, words = line[0], line[1:]
            if kind == "reaper" and len(words) == 2:
                record.reaper = (int(words[0]), words[1])
            elif kind == "group" and words:
                # Nobody writes a folder there that is not a node's group.
                path = " ".join(words)
                record.group = Group(path) if os.path.basename(path).startswith("gpucl-") else None
            elif kind == "session" and len(words) == 1:
                record.sessions.add(int(words[0]))
            elif kind == "process" and len(words) == 3:
                record.processes[int(words[0])] = (words[1], int(words[2]))
            elif kind in ("over", "lost"):
                setattr(record, kind, True)
        return record

    def write(self):
        """Writes it, when it says something new. A full disk or a folder that is gone ends nobody."""
        lines = ["boot " + read("/proc/sys/kernel/random/boot_id").strip()]
        if self.reaper:
            lines.append("reaper {} {}".format(*self.reaper))
        if self.group:
            lines.append(f"group {self.group.path}")
        lines += [f"session {session}" for session in sorted(self.sessions)]
        lines += [f"process {pid} {ticks} {session}" for pid, (ticks, session) in sorted(self.processes.items())]
        lines += ["lost"] * self.lost + ["over"] * self.over
        text = "\n".join(lines) + "\n"
        if text == self.text:
            return
        try:
            with open(f"{self.path}.new", "w", encoding="utf-8") as file:
                file.write(text)
            os.replace(f"{self.path}.new", self.path)
            self.text = text
        except OSError:
            pass

    def finish(self):
        """Writes down that all have ended."""
        self.group, self.processes, self.sessions, self.over = None, {}, set(), True
        self.write()

    def living(self, processes):
        """The numbers of those of its processes that run, and of whoever is in a session of theirs."""
        found, sessions = set(), set()
        identities = [(pid, ticks) for pid, (ticks, _) in self.processes.items()]
        for identity in identities + [self.reaper] * (self.reaper is not None):
            process = processes.get(identity[0])
            if process and process.identity == identity and process.runs:
                found.add(process.pid)
                # While one of ours is in it, its number cannot have become a stranger's session.
                if process.session in self.sessions:
                    sessions.add(process.session)
        return found | {process.pid for process in processes.values() if process.session in sessions and process.runs}


class Tree:
    """The processes below this one. Who is a stranger stays one, as nobody becomes a descendant later: so few are read again."""

    def __init__(self):
        self.strangers, self.looks = set(), 0

    def look(self, whole=False):
        """All that is below now, ended or not."""
        there = numbers()
        self.looks += 1
        # A number may have become another process.
        self.strangers = set() if whole or self.looks % WHOLE == 0 else self.strangers & there
        found = {pid: process for pid in there - self.strangers for process in [Process.of(pid)] if process}
        me = os.getpid()
        ours = below(found, [me])
        for pid in found:
            # One whose parent ended between two reads may have come to us since: it is read again.
            if pid not in ours and pid != me and self.is_rooted(pid, found):
                self.strangers.add(pid)
        return {pid: found[pid] for pid in ours}

    def is_rooted(self, pid, found):
        """Its ancestors are known up to the first process, or to a stranger."""
        while pid in found:
            pid = found[pid].parent
        return pid == 0 or pid in self.strangers

    def living(self):
        """The identities of all that is below and runs; read anew."""
        return {process.identity for process in self.look(whole=True).values() if process.runs}


def start(command, group):
    """Starts the program in a session of its own; should this process be killed, it is asked to end."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    me = os.getpid()
    if group:
        group.join()
    child = os.fork()
    if child:
        if group:
            group.leave()
        return child
    try:
        os.setsid()
        for ignored_by_python in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(ignored_by_python, signal.SIG_DFL)
        libc.prctl(SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        if os.getppid() == me:
            os.execvp(command[0], command)
    except OSError as error:
        sys.stderr.write(f"reaper.py: {command[0]} cannot be started: {error}\n")
    os._exit(127)


def run(home, key, command):
    """Runs the program of a node to its end, and to the end of all that came of it."""
    if not become_subreaper():
        fail("this system lets no process look after its orphans (PR_SET_CHILD_SUBREAPER)")
    watched = {signal.SIGCHLD, *ASKS_TO_END}
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    os.makedirs(f"{home}/processes", mode=0o700, exist_ok=True)
    record = Record(f"{home}/processes/{key}")
    before = Record.load(record.path)
    if before and not before.over:
        # Whoever started this one has ended what an earlier one has left.
        record.lost = before.lost or before.group is None
        if before.group:
            before.group.end()
    elif before:
        record.lost = before.lost
    record.reaper = Process.of(os.getpid()).identity
    record.group = Group.make(f"{os.environ.get('GPUCL_TAG', f'gpucl-{key}')}.{os.getpid()}")
    # Before there is anything to be found.
    record.write()
    child = start(command, record.group)
    tree, status, asked, looked = Tree(), None, None, 0.0
    while status is None:
        now = time.monotonic()
        if now - looked >= INTERVAL:
            ours = tree.look()
            looked = now
            record.sessions |= {process.pid for process in ours.values() if process.session == process.pid}
            record.processes = {pid: (process.ticks, process.session) for pid, process in ours.items() if process.runs}
            record.sessions &= {session for _, session in record.processes.values()}
            record.write()
        heard = signal.sigtimedwait(watched, INTERVAL)
        status = collect_ended().get(child)
        if heard and heard.si_signo in ASKS_TO_END and status is None:
            # Whoever asks twice does not want to wait.
            if asked is not None:
                break
            asked = now
            os.kill(child, signal.SIGTERM)
        if status is None and asked is not None and now - asked > LONGEST_END:
            break
    left = [f"process {pid}" for pid, _ in end(tree.living)]
    if record.group and not record.group.end():
        left.append(record.group.path)
    if not left:
        record.finish()
    for what in left:
        sys.stderr.write(f"reaper.py: {what} cannot be ended\n")
    ends_as(collect_ended().get(child, signal.SIGKILL) if status is None else status)


def ends_as(status):
    """Ends as another process did."""
    if os.WIFSIGNALED(status):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        number = os.WTERMSIG(status)
        if number != signal.SIGKILL:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.kill(os.getpid(), number)
    sys.exit(os.WEXITSTATUS(status))


def carrying(name, value):
    """The numbers of the processes in whose environment this very variable stands."""
    return {pid for pid in numbers() if variables(pid).get(name) == value}


def is_reaper(pid):
    """Whether a process is one that runs a node."""
    return any(word.rpartition("/")[2] == "reaper.py" for word in read(f"/proc/{pid}/cmdline").split("\0"))


def ask_to_end(marks, seconds):
    """Asks the reapers that carry one of these marks to end their nodes, and waits; asked once more, they wait for nobody."""
    for limit in (seconds, AFTER_SECOND):
        found = {pid for mark in marks for pid in carrying(*mark) if is_reaper(pid)}
        asked = {process.identity for process in map(Process.of, found) if process and process.runs}
        for identity in asked:
            send(identity, signal.SIGTERM)
        until = time.monotonic() + limit
        while any(started(pid) == ticks for pid, ticks in asked) and time.monotonic() < until:
            time.sleep(0.03)


def end_node(home, key, tag):
    """Ends what is left of one node; hands back what cannot be ended."""
    return end_recorded([f"{home}/processes/{key}"], ("GPUCL_TAG", tag))


def end_recorded(paths, mark):
    """Ends what is written down in these files, and what carries the mark; hands back what cannot be ended."""
    records = [record for record in map(Record.load, paths) if record and not record.over]

    def collect():
        processes = table()
        roots = {pid for pid in carrying(*mark) if pid in processes and processes[pid].runs}
        for record in records:
            roots |= record.living(processes)
        found = roots | below(processes, roots)
        return {processes[pid].identity for pid in found if processes[pid].runs}

    for record in records:
        # As long as its reaper is there, all that a node started is below it, and nothing is missed; in a group nothing is.
        is_there = record.reaper is not None and started(record.reaper[0]) == record.reaper[1]
        record.lost |= not is_there and record.group is None
    left = [f"process {pid}" for pid, _ in end(collect)]
    for record in records:
        if record.group and not record.group.end():
            left.append(record.group.path)
        elif not left:
            record.finish()
    return left


def tell_end(home, mark, seconds):
    """Ends all of a host's nodes and what is left of them, and says what could not be done, and what cannot be known."""
    ask_to_end([mark.partition("=")[::2]], seconds)
    folder = f"{home}/processes"
    keys = sorted(os.listdir(folder)) if os.path.isdir(folder) else []
    paths = {key: f"{folder}/{key}" for key in keys if not key.endswith(".new")}
    for what in end_recorded(paths.values(), mark.partition("=")[::2]):
        print(f"::left {what}")
    for key, path in paths.items():
        record = Record.load(path)
        if record and record.lost:
            print(f"::unknown {key}")


def main():
    """One command, and what it takes."""
    if len(sys.argv) > 4 and sys.argv[1] == "run":
        run(os.path.abspath(sys.argv[2]), sys.argv[3], sys.argv[4:])
    elif len(sys.argv) in (4, 5) and sys.argv[1] == "end":
        tell_end(os.path.abspath(sys.argv[2]), sys.argv[3], float(sys.argv[4]) if len(sys.argv) == 5 else 0.0)
    else:
        fail("it takes `run HOME KEY PROGRAM ...` or `end HOME NAME=VALUE [SECONDS]`")


if __name__ == "__main__":
    main()
