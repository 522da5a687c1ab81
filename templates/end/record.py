"""What a host keeps about the end: files that are replaced as a whole, its clocks, and the end as last known.

`guard/end.json` is what was given last, with when it came: the number of the boot, seconds since boot, and the wall clock.
`guard/state.json` is how far the guard is. Standard library only, Python 3.6 or newer.
"""

import calendar
import contextlib
import fcntl
import json
import os
import re
import time

# Linux's number of the clock that counts since boot, and goes on while the machine sleeps. Python has a name for it since 3.7.
SINCE_BOOT = 7
# From how many seconds on it is reported that the two ways to know the end differ.
SKEW_S = 60
# The file in the data folder that says the end to programs that do not know Ray Train.
ANNOUNCED = ".gpucl-end.json"
PHASES = ("waiting", "draining", "saving", "saved", "over", "called_off")
# The longest text of a failure that is kept.
LONGEST = 300
# A time with its offset from UTC.
RFC_3339 = re.compile(r"(\d{4})-(\d\d)-(\d\d)[Tt ](\d\d):(\d\d):(\d\d)(\.\d+)?(?:([Zz])|([+-])(\d\d):(\d\d))")


class Failed(Exception):
    """What went wrong, in one line."""


def since_boot():
    """Seconds since this machine started."""
    return time.clock_gettime(SINCE_BOOT)


def boot_id():
    """What is another one after each start of this machine."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def to_text(seconds):
    """The time of the wall clock as RFC 3339 in UTC."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def to_seconds(text):
    """The time that RFC 3339 says, in seconds of the wall clock; raises ValueError."""
    found = RFC_3339.fullmatch(text)
    if not found:
        raise ValueError("not a time of RFC 3339: %s" % one_line(text))
    year, month, day, hour, minute, second = (int(part) for part in found.groups()[:6])
    if not (1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60 and second < 61):
        raise ValueError("not a time of RFC 3339: %s" % one_line(text))
    seconds = calendar.timegm((year, month, day, hour, minute, second)) + float(found.group(7) or 0)
    if found.group(9):
        offset = int(found.group(10)) * 3600 + int(found.group(11)) * 60
        seconds += -offset if found.group(9) == "+" else offset
    return seconds


def one_line(text):
    """A text that others wrote, as one line without control characters."""
    return "".join(letter if letter.isprintable() else "?" for letter in str(text).strip())[:LONGEST]


def read_json(path):
    """The JSON object in a file, or None where there is none that can be read."""
    try:
        with open(path, encoding="utf-8") as file:
            value = json.load(file)
    except (OSError, ValueError):
        return None
    return value if isinstance(value, dict) else None


def write_json(path, value):
    """Replaces a file by a JSON object: it is the old one or the new one at any moment."""
    new = "%s.%d.new" % (path, os.getpid())
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        json.dump(value, file)
        file.write("\n")
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)


def announce(data, value):
    """Replaces the file in the data folder that says the end to jobs, or removes it where `value` is None. The folder is the
    jobs': what they have put under that name is replaced, and no link of theirs is followed."""
    folder = os.open(data, os.O_RDONLY | os.O_DIRECTORY)
    try:
        new = "%s.%d.new" % (ANNOUNCED, os.getpid())
        for name in (new, ANNOUNCED) if value is None else (new,):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=folder)
        if value is not None:
            file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644, dir_fd=folder)
            with open(file, "w", encoding="utf-8") as file:
                # Jobs may be of another user.
                os.fchmod(file.fileno(), 0o644)
                json.dump(value, file)
                file.write("\n")
            os.replace(new, ANNOUNCED, src_dir_fd=folder, dst_dir_fd=folder)
    finally:
        os.close(folder)


@contextlib.contextmanager
def locked(path, limit_s):
    """Holds a lock; raises Failed when another program holds it for longer than `limit_s` seconds."""
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600), "w") as file:
        end = time.monotonic() + limit_s
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() >= end:
                    raise Failed("another program still holds %s" % path) from None
                time.sleep(0.05)
        yield


class Folder:
    """The folder `guard` of a host."""

    def __init__(self, home):
        self.home = home
        self.own = os.path.join(home, "guard")
        self.saved = os.path.join(self.own, "saved")
        os.makedirs(self.saved, mode=0o700, exist_ok=True)

    def path(self, name):
        """The path of a file in it."""
        return os.path.join(self.own, name)

    def settings(self):
        """What `guard.json` says; raises Failed."""
        path = os.path.join(self.home, "guard.json")
        found = read_json(path)
        if found is None or found.get("v") != 1:
            raise Failed("%s is missing or of another version: run `gpucl up`" % path)
        return found

    def is_guarded(self):
        """Whether a guard runs."""
        try:
            with locked(self.path(".guard.lock"), 0):
                return False
        except Failed:
            return True

    def state(self):
        """The guard's state as last written."""
        state = fresh_state()
        state.update(read_json(self.path("state.json")) or {})
        return state

    def end(self):
        """The end as last known."""
        return End(read_json(self.path("end.json")) or {})

    def tell(self, given):
        """Takes an end that was given. One whose revision is not above the last one's changes nothing."""
        known = checked(given)
        with locked(self.path(".end.lock"), 10):
            last = read_json(self.path("end.json"))
            if last is not None and known["revision"] <= last.get("revision", -1):
                return
            known.update({"boot": boot_id(), "since_boot": since_boot(), "wall": time.time()})
            write_json(self.path("end.json"), known)


def checked(given):
    """The parts of an end that was given; raises Failed."""
    if not isinstance(given, dict) or given.get("v") != 1:
        raise Failed("what is given is no end of version 1")
    at, left, revision = given.get("at"), given.get("left_s"), given.get("revision")
    if isinstance(revision, bool) or not isinstance(revision, int):
        raise Failed("`revision` is no whole number")
    if left is not None and (isinstance(left, bool) or not isinstance(left, (int, float)) or not abs(left) < 1e10):
        raise Failed("`left_s` is no number of seconds")
    try:
        if at is not None:
            to_seconds(at)
    except (TypeError, ValueError):
        raise Failed("`at` is no time of RFC 3339, such as 2026-11-29T16:50:00Z") from None
    if at is None:
        # The end is called off.
        left = None
    return {"v": 1, "at": at, "left_s": left, "why": one_line(given.get("why") or ""), "revision": revision}


class End:
    """The end as last known."""

    def __init__(self, known):
        self.at, self.revision, self.why = known.get("at"), known.get("revision", 0), known.get("why", "")
        self.known = known

    def ways(self):
        """How many seconds are left by each way to know it."""
        if self.at is None:
            return []
        found = [to_seconds(self.at) - time.time()]
        left = self.known.get("left_s")
        if left is not None:
            if self.known.get("boot") == boot_id():
                found.append(self.known["since_boot"] + left - since_boot())
            else:
                # The clock since boot has started again: only the wall clock knows how long ago that was.
                found.append(self.known["wall"] + left - time.time())
        return found

    def left(self):
        """How many seconds are left, or None without an end. The way that says least decides: what comes too early costs
        time, and what comes too late costs the work."""
        return min(self.ways(), default=None)

    def skew(self):
        """By how many seconds the ways differ, where that is worth a report; otherwise 0."""
        ways = self.ways()
        apart = round(ways[0] - ways[1], 1) if len(ways) == 2 else 0
        return apart if abs(apart) > SKEW_S else 0


def fresh_state():
    """The state of a guard that has done nothing."""
    return {
        "v": 1, "phase": "waiting", "revision": 0, "end": None, "since": None, "skew_s": 0, "drained": [], "jobs": [],
        "saved": [], "rate": None, "fits": True, "missing_bytes": 0, "activity": None, "trouble": None,
    }
