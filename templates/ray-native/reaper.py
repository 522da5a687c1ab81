"""Runs the program of one node, and ends everything it started when it ends. Standard library only.

    python3 reaper.py run HOME KEY PROGRAM ARGUMENT...
    python3 reaper.py end HOME NAME=VALUE [SECONDS]

A job can empty its environment, leave its session, fork twice and take another name. What it cannot do is choose its
parent: a process whose parent has ended becomes a child of the nearest subreaper above it (man 2 prctl). `run` is
one, so every process that its program ever started is its descendant. On SIGTERM it asks the program to end; a second
SIGTERM ends it at once. When the program has ended, all descendants are ended too.

SIGKILL ends a reaper before it can do that. Its orphans then go to the supervisor, which is a subreaper as well and
ends them (`end_adopted`). If both are killed, the record remains that `run` writes to `HOME/processes/KEY` twice a
second:

    boot ID                    a process id means nothing after a reboot
    reaper PID TICKS
    group PATH                 a control group for this node only, where this user may make one
    session PID                led, now or earlier, by a descendant
    process PID TICKS SESSION  a descendant
    lost                       an earlier reaper of this node was killed, and what it left behind is unknown
    over                       all have ended; without this line, a process may have been missed

`end` asks the reapers with NAME=VALUE in their environment to end, waits SECONDS for them, and asks once more. Then
it ends the recorded processes, those with NAME=VALUE in their environment, and the descendants of both; it prints
`::left` lines for processes that it cannot end, and `::unknown` lines for nodes whose processes cannot be known.
"""

import os
import signal
import sys
import time

# Seconds between scans; a process that hides faster than that is missed if reaper and supervisor are killed then.
INTERVAL = 0.5
# Every so many scans, all processes are read again, not only new ones.
WHOLE = 120
# Seconds that a program may take to end when asked; the caller may ask again before that.
LONGEST_END = 600
# Seconds that a reaper may take to end its node when asked twice.
AFTER_SECOND = 5
# Seconds to stop all processes, and again seconds for them to vanish after SIGKILL.
AFTER_KILL = 10
SET_CHILD_SUBREAPER, SET_PDEATHSIG = 36, 1
ASKS_TO_END = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def fail(message):
    """Logs a message and exits."""
    sys.stderr.write(f"reaper.py: {message}\n")
    sys.exit(70)


def read(path):
    """Returns a file's text; empty if it cannot be read."""
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def variables(pid):
    """Returns the environment of a process; empty if this user may not read it."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            parts = file.read().split(b"\0")
    except OSError:
        return {}
    return dict(part.decode(errors="replace").partition("=")[::2] for part in parts if part)


class Process:
    """A process as /proc shows it."""

    def __init__(self, pid, fields):
        self.pid, self.parent, self.session, self.ticks = pid, int(fields[1]), int(fields[3]), fields[19]
        # A process whose first thread has ended shows as a zombie while its other threads run on.
        self.runs = fields[0] not in "ZX" or int(fields[17]) > 1

    @staticmethod
    def of(pid):
        """Returns the process with this id, or None."""
        # The name is in parentheses and may contain spaces: the fields after the last one are regular (man 5 proc).
        fields = read(f"/proc/{pid}/stat").rpartition(")")[2].split()
        return Process(pid, fields) if len(fields) > 19 else None

    @property
    def identity(self):
        """A unique identity: the process id and the start time."""
        return (self.pid, self.ticks)


def started(pid):
    """Returns a process's start time in ticks; None if it has ended."""
    process = Process.of(pid)
    return process.ticks if process and process.runs else None


def numbers():
    """Returns the ids of all processes."""
    return {int(name) for name in os.listdir("/proc") if name.isdigit()}


def table():
    """Returns all processes by id."""
    found = (Process.of(pid) for pid in numbers())
    return {process.pid: process for process in found if process}


def below(processes, roots):
    """Returns the ids of all descendants of these processes."""
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
    """Signals exactly this process: a pidfd pins it before the check, since its id may have been reused."""
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
    """Ends all processes that `collect` finds (a set of identities); returns those that cannot be ended.

    A stopped process starts no others. So all are stopped until no new one is found, and only then killed: killing a
    parent before its children are found would cut the link by which they are found.
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
    """Reaps all ended children; returns their wait statuses by process id."""
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
    """Makes orphaned descendants children of this process from now on; returns whether that worked."""
    try:
        import ctypes

        return ctypes.CDLL(None, use_errno=True).prctl(SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0
    except (ImportError, OSError, AttributeError):
        return False


def end_adopted(own):
    """Ends all children that this process did not start itself (those not in `own`), and their descendants.

    Returns those that cannot be ended.
    """
    # Usually there are none, which the kernel reports quickly if built with this file.
    known = read(f"/proc/self/task/{os.getpid()}/children").split()
    if known and not {int(pid) for pid in known} - own:
        return []

    def adopted():
        processes = table()
        me = os.getpid()
        roots = {process.pid for process in processes.values() if process.parent == me and process.pid not in own}
        return {processes[pid].identity for pid in roots | below(processes, roots) if processes[pid].runs}

    left = end(adopted)
    # Only those: the exit status of `own` children belongs to whoever started them.
    for process in table().values():
        if process.parent == os.getpid() and process.pid not in own and not process.runs:
            try:
                os.waitpid(process.pid, os.WNOHANG)
            except ChildProcessError:
                pass
    return left


class Group:
    """A control group (version 2) of one node. Children start in their parent's group."""

    def __init__(self, path):
        self.path = path

    @staticmethod
    def above():
        """Returns the folder of this process's own group; None where version 2 is not mounted, or not writable."""
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
        """Makes a group that this process can join and leave; None where that is impossible."""
        above = Group.above()
        if above is None:
            return None
        group = Group(f"{above}/{name}")
        try:
            os.mkdir(group.path, 0o755)
            # Without it (before Linux 5.14), a group cannot be killed at once.
            if not os.path.exists(f"{group.path}/cgroup.kill"):
                raise OSError("no cgroup.kill")
            group.join()
            group.leave()
            return group
        except OSError:
            group.remove()
            return None

    def join(self):
        """Moves this process into the group."""
        self.write("cgroup.procs", "0")

    def leave(self):
        """Moves this process back to the parent group."""
        with open(f"{os.path.dirname(self.path)}/cgroup.procs", "w", encoding="ascii") as file:
            file.write("0")

    def write(self, name, text):
        """Writes one of the group's files."""
        with open(f"{self.path}/{name}", "w", encoding="ascii") as file:
            file.write(text)

    def end(self, limit=AFTER_KILL):
        """Kills all processes in the group and removes it; returns whether that worked."""
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
        """Removes the group and its subgroups; returns whether it is gone. A group with a running process stays."""
        for folder, _, _ in os.walk(self.path, topdown=False):
            try:
                os.rmdir(folder)
            except OSError:
                pass
        return not os.path.isdir(self.path)


class Record:
    """The record of one node's processes."""

    def __init__(self, path):
        self.path, self.text = path, None
        self.reaper, self.group, self.over, self.lost = None, None, False, False
        self.sessions, self.processes = set(), {}

    @staticmethod
    def load(path):
        """Reads the record of an earlier reaper; None if there is none from this boot."""
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
                # Only a node's group is trusted: other paths are never removed.
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
        """Writes the record if it changed. A full disk or a missing folder is ignored."""
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
        """Records that all processes have ended."""
        self.group, self.processes, self.sessions, self.over = None, {}, set(), True
        self.write()

    def living(self, processes):
        """Returns the ids of its running processes, and of all running processes in their sessions."""
        found, sessions = set(), set()
        identities = [(pid, ticks) for pid, (ticks, _) in self.processes.items()]
        for identity in identities + [self.reaper] * (self.reaper is not None):
            process = processes.get(identity[0])
            if process and process.identity == identity and process.runs:
                found.add(process.pid)
                # While one of our processes is in the session, its id cannot have been reused.
                if process.session in self.sessions:
                    sessions.add(process.session)
        return found | {process.pid for process in processes.values() if process.session in sessions and process.runs}


class Tree:
    """The descendants of this process. A stranger never becomes a descendant later, so few processes are read again."""

    def __init__(self):
        self.strangers, self.scans = set(), 0

    def scan(self, whole=False):
        """Returns all current descendants, ended or not."""
        there = numbers()
        self.scans += 1
        # A process id may have been reused.
        self.strangers = set() if whole or self.scans % WHOLE == 0 else self.strangers & there
        found = {pid: process for pid in there - self.strangers for process in [Process.of(pid)] if process}
        me = os.getpid()
        ours = below(found, [me])
        for pid in found:
            # A process whose parent ended between two reads may be our child since: it is read again.
            if pid not in ours and pid != me and self.is_rooted(pid, found):
                self.strangers.add(pid)
        return {pid: found[pid] for pid in ours}

    def is_rooted(self, pid, found):
        """Returns whether its ancestors are known up to the first process, or to a stranger."""
        while pid in found:
            pid = found[pid].parent
        return pid == 0 or pid in self.strangers

    def living(self):
        """Returns the identities of all running descendants, after a full scan."""
        return {process.identity for process in self.scan(whole=True).values() if process.runs}


def start(command, group):
    """Starts the program in its own session; it gets SIGTERM if this process is killed."""
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
    """Runs the program of a node to its end, and then ends all its descendants."""
    if not become_subreaper():
        fail("this system does not support subreapers (PR_SET_CHILD_SUBREAPER)")
    watched = {signal.SIGCHLD, *ASKS_TO_END}
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_BLOCK, watched)
    os.makedirs(f"{home}/processes", mode=0o700, exist_ok=True)
    record = Record(f"{home}/processes/{key}")
    before = Record.load(record.path)
    if before and not before.over:
        # Our caller has already ended what the earlier reaper left behind.
        record.lost = before.lost or before.group is None
        if before.group:
            before.group.end()
    elif before:
        record.lost = before.lost
    record.reaper = Process.of(os.getpid()).identity
    record.group = Group.make(f"{os.environ.get('GPUCL_TAG', f'gpucl-{key}')}.{os.getpid()}")
    # Written before there is any process to record.
    record.write()
    child = start(command, record.group)
    tree, status, asked, scanned = Tree(), None, None, 0.0
    while status is None:
        now = time.monotonic()
        if now - scanned >= INTERVAL:
            ours = tree.scan()
            scanned = now
            record.sessions |= {process.pid for process in ours.values() if process.session == process.pid}
            record.processes = {pid: (process.ticks, process.session) for pid, process in ours.items() if process.runs}
            record.sessions &= {session for _, session in record.processes.values()}
            record.write()
        received = signal.sigtimedwait(watched, INTERVAL)
        status = collect_ended().get(child)
        if received and received.si_signo in ASKS_TO_END and status is None:
            # A second request means: do not wait.
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
    """Exits with the wait status of another process."""
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
    """Returns the ids of the processes with this variable in their environment."""
    return {pid for pid in numbers() if variables(pid).get(name) == value}


def is_reaper(pid):
    """Returns whether a process is a reaper."""
    return any(word.rpartition("/")[2] == "reaper.py" for word in read(f"/proc/{pid}/cmdline").split("\0"))


def ask_to_end(marks, seconds):
    """Asks the reapers with one of these marks to end their nodes, and waits; a second request ends them at once."""
    for limit in (seconds, AFTER_SECOND):
        found = {pid for mark in marks for pid in carrying(*mark) if is_reaper(pid)}
        asked = {process.identity for process in map(Process.of, found) if process and process.runs}
        for identity in asked:
            send(identity, signal.SIGTERM)
        until = time.monotonic() + limit
        while any(started(pid) == ticks for pid, ticks in asked) and time.monotonic() < until:
            time.sleep(0.03)


def end_node(home, key, tag):
    """Ends what is left of one node; returns what cannot be ended."""
    return end_recorded([f"{home}/processes/{key}"], ("GPUCL_TAG", tag))


def end_recorded(paths, mark):
    """Ends the processes in these records, and those with the mark; returns what cannot be ended."""
    records = [record for record in map(Record.load, paths) if record and not record.over]

    def collect():
        processes = table()
        roots = {pid for pid in carrying(*mark) if pid in processes and processes[pid].runs}
        for record in records:
            roots |= record.living(processes)
        found = roots | below(processes, roots)
        return {processes[pid].identity for pid in found if processes[pid].runs}

    for record in records:
        # While its reaper runs, all of a node's processes are its descendants and none is missed; nor in a group.
        is_there = record.reaper is not None and started(record.reaper[0]) == record.reaper[1]
        record.lost |= not is_there and record.group is None
    left = [f"process {pid}" for pid, _ in end(collect)]
    for record in records:
        if record.group and not record.group.end():
            left.append(record.group.path)
        elif not left:
            record.finish()
    return left


def end_all(home, mark, seconds):
    """Ends all nodes of a host and their leftovers; prints what cannot be ended and what cannot be known."""
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
    """Runs the command given on the command line."""
    if len(sys.argv) > 4 and sys.argv[1] == "run":
        run(os.path.abspath(sys.argv[2]), sys.argv[3], sys.argv[4:])
    elif len(sys.argv) in (4, 5) and sys.argv[1] == "end":
        end_all(os.path.abspath(sys.argv[2]), sys.argv[3], float(sys.argv[4]) if len(sys.argv) == 5 else 0.0)
    else:
        fail("it takes `run HOME KEY PROGRAM ...` or `end HOME NAME=VALUE [SECONDS]`")


if __name__ == "__main__":
    main()
