"""Saves things, most important first, and knows of each file what was saved of it.

A thing is looked at again and again. What is new since the last look is copied: of each run the newest checkpoint first,
then what belongs to no checkpoint, then older checkpoints. A checkpoint that still changes between two looks waits for
the next one. Nothing that was saved is replaced by something older or shorter without being kept under another name.
Standard library only, Python 3.6 or newer.
"""

import collections
import concurrent.futures
import hashlib
import json
import os
import re
import threading
import time

import place
import source
from record import Failed, one_line, read_json, since_boot, to_text, write_json
from s3 import Refusal

# The size of a part of a large file, in bytes, unless it had too many; a file of one part is sent whole.
PART, MOST_PARTS = 5 << 20, 9000
# How many calls are made at once, and how many bytes they carry together.
CALLS, CARRIED = 16, 64 << 20
# Up to how many seconds a call is quick, and from how many on it is slow.
QUICK_S, SLOW_S = 2, 8
# How long one look's copying goes on before the next look, in seconds; ten times the look if that takes longer.
SLICE_S = 5
# How far two looks must lie apart to see that a checkpoint changes, in seconds.
APART_S = 1
# What a file costs beside its bytes, in bytes that could be sent meanwhile.
EACH = 32 << 10
# How often what was saved is asked for again while jobs run, in seconds.
VERIFY_EVERY_S = 20
# The first and the longest pause after a failure, in seconds.
PAUSE_S, LONGEST_PAUSE_S = 1, 10
# A folder or file of one checkpoint: `checkpoint_000043`, `checkpoint-500`, `epoch=3-step=10.ckpt`, `global_step100`.
CHECKPOINT = re.compile(r"(?i)(.*[-_.])?(checkpoint|ckpt|step|epoch|iter|global[-_]?step)[-_=]?\d")
MODELS = (".ckpt", ".pt", ".pth", ".safetensors")


def unit_of(name):
    """What a file is saved with: its checkpoint, or None."""
    parts = name.split("/")
    for number, part in enumerate(parts):
        if CHECKPOINT.match(part):
            return "/".join(parts[:number + 1])
    return name if name.endswith(MODELS) else None


class Room:
    """How many bytes may be carried at once: more where calls are quick, few where the store is slow, so that what is
    newer and matters more soon has its turn."""

    def __init__(self, most):
        self.used, self.allowed, self.most, self.changed = 0, PART, most, threading.Condition()

    def take(self, count):
        """Waits until there is room; returns what to give back."""
        with self.changed:
            while self.used and self.used + count > self.allowed:
                self.changed.wait()
            self.used += count
        return count

    def give(self, count, took):
        """Gives room back, after a call that took so many seconds."""
        with self.changed:
            self.used -= count
            if took < QUICK_S:
                self.allowed = min(self.most, self.allowed + count)
            elif took > SLOW_S:
                self.allowed = max(PART, self.allowed // 2)
            self.changed.notify_all()


class Manifest:
    """What was saved of one thing: of each name its size, SHA-256, the stamp that it had here, and its tag there.

    It is a file that is replaced as a whole, and lines with what came since, so that little is lost with the guard."""

    def __init__(self, folder, number, one, host):
        self.path = os.path.join(folder, "%02d-%s.json" % (number, place.mark(one["from"] + "\0" + one["to"])))
        self.lines, self.lock = self.path[:-len(".json")] + ".lines", threading.Lock()
        found = read_json(self.path) or {}
        self.head = {"v": 1, "from": one["from"], "to": one["to"], "host": host, "begun": found.get("begun") or to_text(time.time())}
        self.files = {file["name"]: (file["size"], file["sha256"], file["stamp"], file["tag"]) for file in found.get("files", [])}
        self.bytes = sum(row[0] for row in self.files.values())
        self.uploads, self.changed = {}, False
        try:
            with open(self.lines, encoding="utf-8") as file:
                for line in file:
                    self.take(json.loads(line))
                    self.changed = True
        except (OSError, ValueError):
            # The last line is cut where the guard was killed.
            pass
        self.out = None

    def take(self, line):
        """Takes a line."""
        if "upload" in line:
            self.uploads[line["name"]] = line
        elif "part" in line:
            if line["name"] in self.uploads:
                self.uploads[line["name"]]["parts"][str(line["part"])] = [line["sha256"], line["tag"]]
        elif "gone" in line:
            self.bytes -= self.files.pop(line["name"], (0,))[0]
        else:
            self.uploads.pop(line["name"], None)
            self.bytes += line["size"] - self.files.get(line["name"], (0,))[0]
            self.files[line["name"]] = (line["size"], line["sha256"], line["stamp"], line["tag"])

    def note(self, line):
        """Takes a line and keeps it."""
        with self.lock:
            self.take(line)
            self.changed = True
            if self.out is None:
                # A line that was cut must not swallow the next one.
                self.out = open(os.open(self.lines, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600), "w", encoding="utf-8")
                self.out.write("\n" if self.out.tell() else "")
            self.out.write(json.dumps(line) + "\n")
            self.out.flush()

    def value(self):
        """The manifest as JSON."""
        rows = (dict(zip(("name", "size", "sha256", "stamp", "tag"), (name,) + tuple(row))) for name, row in sorted(self.files.items()))
        return dict(self.head, files=list(rows))

    def write(self):
        """Replaces the file by what is known; the lines are not needed any more, but those of uploads that go on."""
        with self.lock:
            if not self.changed:
                return False
            write_json(self.path, self.value())
            if self.out is not None:
                self.out.close()
                self.out = None
            if self.uploads:
                with open(self.lines + ".new", "w", encoding="utf-8") as file:
                    for line in self.uploads.values():
                        file.write(json.dumps(line) + "\n")
                os.replace(self.lines + ".new", self.lines)
            elif os.path.exists(self.lines):
                os.unlink(self.lines)
            self.changed = False
            return True


class Thing:
    """One thing to save."""

    def __init__(self, folder, number, one, settings, stores):
        self.one, self.manifest = one, Manifest(folder, number, one, settings["host"])
        below = "" if settings["leads"] or settings.get("hosts", 1) < 2 else "host-%s" % (re.sub(r"\D*", "", settings["host"]) or settings["host"])
        self.place = place.at(one["to"], below, stores)
        if one["from"].startswith("s3://"):
            if stores.get("own") is None:
                raise Failed("no store is known for %s" % one_line(one["from"]))
            self.source = source.Bucket(stores["own"], one["from"])
        else:
            self.source = source.Data(settings["data"], one["from"], os.path.dirname(folder), self.saved_stamp)
        # Per unit what it looked like, and since when.
        self.looks, self.there, self.todo, self.waiting = {}, None, [], []
        self.missing_bytes = self.missing_files = self.new_files = self.new_bytes = 0
        self.seconds, self.complete, self.failed, self.newest, self.unverified = 0.0, False, None, None, True
        self.lock, self.pause, self.again, self.verify_at = threading.Lock(), PAUSE_S, 0.0, 0.0
        # Whether the last look's copying was cut by the time, and whether there was anything to copy.
        self.cut = self.worked = False
        # Whether the last look saw a checkpoint for the first time.
        self.unknown, self.left, self.newest_at = False, {}, 0

    def look(self, final):
        """Looks what is there, and what of it has to be copied, in which order."""
        entries, now = self.source.look(), time.monotonic()
        units, self.todo, self.waiting = collections.defaultdict(list), [], []
        for name in entries:
            units[unit_of(name)].append(name)
        looks, whole, saved, self.unknown = {}, [], [], False
        for unit, names in units.items():
            if unit is None:
                continue
            seen = hash(frozenset((name, entries[name].size, entries[name].time) for name in names))
            before, since = self.looks.get(unit, (None, 0))
            looks[unit] = (seen, since if seen == before else now)
            self.unknown = self.unknown or (before is None and not final)
            wanted = [name for name in names if self.is_new(name, entries[name])]
            when = max(entries[name].time for name in names)
            if not wanted:
                saved.append((when, unit))
            elif final or (seen == before and now - since >= APART_S):
                whole.append((when, unit, wanted))
            else:
                self.waiting.extend(wanted)
        self.looks = looks
        with self.lock:
            # Of each checkpoint that is not whole there, when it was written and how many files are missing.
            self.left = {unit: [when, len(wanted)] for when, unit, wanted in whole}
            self.newest_at, self.newest = max(saved, default=(0, None))
        whole.sort(key=lambda one: (one[0], natural(one[1])), reverse=True)
        # Per run, when the newest checkpoint so far was written.
        first, later, newest = [], [], {}
        for when, unit in saved:
            run = unit.rpartition("/")[0]
            newest[run] = max(when, newest.get(run, when))
        for when, unit, wanted in whole:
            run = unit.rpartition("/")[0]
            comes_first = run not in newest or when > newest[run]
            newest[run] = max(when, newest.get(run, when))
            (first if comes_first else later).extend((name, entries[name], True) for name in sorted(wanted))
        rest = [(name, entries[name], False) for name in units.get(None, ()) if self.is_new(name, entries[name])]
        # Small ones first: one that is endless must not hold up the others.
        rest.sort(key=lambda one: (one[1].size > PART, -one[1].time, one[0]))
        self.todo = first + rest + later
        self.missing_bytes = sum(entry.size for _, entry, _ in self.todo) + sum(entries[name].size for name in self.waiting)
        self.missing_files = len(self.todo) + len(self.waiting) + len(self.source.busy)

    def is_saved(self, name):
        """Notes that a file is there now, and perhaps a whole checkpoint."""
        with self.lock:
            unit = unit_of(name)
            if unit in self.left:
                self.left[unit][1] -= 1
                if not self.left[unit][1] and self.left[unit][0] >= self.newest_at:
                    self.newest_at, self.newest = self.left[unit][0], unit

    def saved_stamp(self, name):
        """The stamp that a file had when it was saved, or None."""
        known = self.manifest.files.get(name)
        return known and known[2]

    def is_new(self, name, entry):
        """Whether a file is not saved as it is."""
        known = self.manifest.files.get(name)
        return known is None or known[2] != entry.stamp

    def report(self):
        """What came of it."""
        with self.lock:
            return {
                "from": self.one["from"], "to": self.one["to"], "files": len(self.manifest.files),
                "bytes": self.manifest.bytes, "new_files": self.new_files, "new_bytes": self.new_bytes,
                "seconds": round(self.seconds, 1), "complete": self.complete, "failed": self.failed, "newest": self.newest,
            }


def natural(text):
    """A key that sorts `checkpoint-9` before `checkpoint-10`."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", text)]


class Copying:
    """The copying of one look."""

    def __init__(self, thing, pool, room, until, final):
        self.thing, self.pool, self.room, self.final = thing, pool, room, final
        # When nothing new is begun, and when nothing is tried again.
        self.until, self.limit = until, until + 20
        self.failures, self.changed, self.running = [], [], set()
        # Whether something was left for the next look.
        self.cut = False

    def is_over(self):
        """Whether nothing more is to be begun."""
        return time.monotonic() >= self.until or any(failure.kind in ("away", "refused") for failure in self.failures) or (
            sum(failure.kind == "full" for failure in self.failures) > 8)

    def run(self):
        """Copies what is to be copied, as far as the time goes; returns whether that was all."""
        for name, entry, strict in self.thing.todo:
            if self.is_over():
                self.cut = True
                break
            if entry.size <= PART:
                self.submit(entry.size + EACH, self.copy_small, name, entry, strict)
            else:
                self.copy_large(name, entry, strict)
        self.wait(0)
        return not (self.failures or self.changed or self.cut)

    def submit(self, size, work, *arguments):
        """Has work done by another thread, once there is room for what it carries."""
        taken = self.room.take(size)
        self.wait(4 * CALLS)

        def guarded():
            begun = time.monotonic()
            try:
                return work(*arguments)
            except Refusal as refusal:
                self.failures.append(refusal)
            except source.Changed:
                self.changed.append(arguments[0])
            except OSError as error:
                self.failures.append(Refusal("other", one_line("%s cannot be saved: %s" % (arguments[0], error))))
            finally:
                self.room.give(taken, time.monotonic() - begun)

        done = self.pool.submit(guarded)
        self.running.add(done)
        return done

    def wait(self, most):
        """Waits until no more than so many are at work."""
        while len(self.running) > most:
            done, self.running = concurrent.futures.wait(self.running, return_when=concurrent.futures.FIRST_COMPLETED)
            for one in done:
                # What nobody expected must not be lost with its thread.
                one.result()

    def copy_small(self, name, entry, strict):
        """Copies a file in one call."""
        with self.thing.source.reading(name, entry, not strict or self.final) as read:
            body = read(entry.size)
        digest = hashlib.sha256(body).hexdigest()
        tag = self.same(name, entry, digest)
        if tag is None:
            tag = self.thing.place.put(name, body, digest, entry.time, self.limit)
            self.count(entry.size)
        self.note(name, entry, digest, tag)

    def same(self, name, entry, digest):
        """The tag of what is there if it is the same; otherwise what is there is kept if it has to be, and None comes."""
        thing, known = self.thing, self.thing.manifest.files.get(name)
        there = thing.there.get(name)
        if there is None:
            return None
        size, tag = there
        if known is not None and known[3] == tag:
            before, written = known[1], known[2][1] if isinstance(known[2][1], int) else None
        else:
            before, written = thing.place.known(name, self.limit)
        if size == entry.size and (before == digest if before else digest is not None and written == entry.time):
            return tag
        if written is None or written > entry.time or size > entry.size:
            thing.place.keep(name, tag, self.limit)
        return None

    def copy_large(self, name, entry, strict):
        """Copies a file in parts, and goes on where another look, or another guard, ended."""
        thing, size = self.thing, entry.size
        length = max(PART, -(-size // MOST_PARTS >> 20 << 20) if size > PART * MOST_PARTS else PART)
        upload = thing.manifest.uploads.get(name)
        try:
            if upload is not None and upload["stamp"] != entry.stamp:
                thing.place.give_up(name, upload["upload"], self.limit)
                thing.manifest.uploads.pop(name, None)
                upload = None
            fresh = upload is None
            if fresh and self.written_before(name, entry, strict):
                return
            if fresh:
                begun = thing.place.begin(name, size, entry.time, self.limit)
                thing.manifest.note({"name": name, "upload": begun, "stamp": entry.stamp, "parts": {}})
                upload = thing.manifest.uploads[name]
            sum_, number, parts = hashlib.sha256(), 0, upload["parts"]
            with thing.source.reading(name, entry, not strict or self.final) as read:
                for offset in range(0, size, length):
                    number += 1
                    body = read(min(length, size - offset))
                    sum_.update(body)
                    digest = hashlib.sha256(body).hexdigest()
                    if parts.get(str(number), [None])[0] == digest:
                        continue
                    if self.is_over():
                        self.cut = True
                        return
                    self.submit(len(body), self.copy_part, name, upload["upload"], number, offset, body, digest)
            self.wait(0)
            if len(parts) != number:
                # A part was refused, which is among the failures.
                return
            digest, tags = sum_.hexdigest(), [parts[str(one)][1] for one in range(1, number + 1)]
            self.same(name, entry, digest)
            tag = thing.place.complete(name, upload["upload"], tags, digest, entry.time, self.limit)
            self.note(name, entry, digest, tag)
            with thing.lock:
                thing.new_files += 1
        except source.Changed:
            self.changed.append(name)
        except Refusal as refusal:
            self.forget_if_gone(name, refusal)
            self.failures.append(refusal)

    def forget_if_gone(self, name, refusal):
        """Begins anew with an upload that the store does not know any more."""
        if refusal.code == "NoSuchUpload":
            self.thing.manifest.uploads.pop(name, None)

    def written_before(self, name, entry, strict):
        """Whether a large file is there already; then its digest is noted."""
        there = self.thing.there.get(name)
        if there is None or there[0] != entry.size:
            return False
        known, written = self.thing.place.known(name, self.limit)
        if written != entry.time and known is None:
            return False
        sum_, left = hashlib.sha256(), entry.size
        with self.thing.source.reading(name, entry, not strict or self.final) as read:
            while left:
                sum_.update(read(min(PART, left)))
                left -= min(PART, left)
        if known is not None and known != sum_.hexdigest():
            return False
        self.note(name, entry, sum_.hexdigest(), there[1])
        return True

    def copy_part(self, name, upload, number, offset, body, digest):
        """Copies a part."""
        try:
            tag = self.thing.place.part(name, upload, number, offset, body, digest, self.limit)
        except Refusal as refusal:
            self.forget_if_gone(name, refusal)
            raise
        self.thing.manifest.note({"name": name, "part": number, "sha256": digest, "tag": tag})
        with self.thing.lock:
            self.thing.new_bytes += len(body)
            self.thing.missing_bytes -= len(body)

    def count(self, size):
        """Counts a file that was copied in one call."""
        with self.thing.lock:
            self.thing.new_files += 1
            self.thing.new_bytes += size
            self.thing.missing_bytes -= size
            self.thing.missing_files -= 1

    def note(self, name, entry, digest, tag):
        """Notes what was saved."""
        self.thing.there[name] = (entry.size, tag)
        self.thing.manifest.note({"name": name, "size": entry.size, "sha256": digest, "stamp": entry.stamp, "tag": tag})
        self.thing.unverified = True
        self.thing.is_saved(name)


def is_there(found, row):
    """Whether what is there is what was saved. A store that gives no tag can only be asked for the size."""
    return found is not None and found[0] == row[0] and (not row[3] or found[1] == row[3])


class Saver:
    """Saves all things, from the most important on. `pass_once` is one look at each."""

    def __init__(self, folder, settings, stores):
        self.things = [Thing(folder.saved, number, one, settings, stores) for number, one in enumerate(settings["save"])]
        self.pool = concurrent.futures.ThreadPoolExecutor(CALLS)
        self.room = Room(CARRIED)

    def pass_once(self, final, slice_s=SLICE_S):
        """Looks at each thing and copies what is new; returns whether all is saved and verified."""
        complete = True
        for thing in self.things:
            if time.monotonic() < thing.again:
                complete = False
                continue
            begun = time.monotonic()
            whole = self.save(thing, final, slice_s)
            with thing.lock:
                thing.complete = whole
                if thing.worked:
                    thing.seconds += time.monotonic() - begun
            complete = complete and whole
            if thing.cut:
                # What comes first is looked at again before what comes later.
                return False
        return complete

    def save(self, thing, final, slice_s):
        """Looks at one thing; returns whether it is saved and verified."""
        try:
            thing.cut, begun = False, time.monotonic()
            thing.place.refresh()
            thing.look(final)
            if thing.unknown:
                # It comes first once two looks have seen the same of it.
                time.sleep(APART_S)
                thing.look(final)
            if thing.there is None:
                thing.there = thing.place.list(begun + 60)
            took = time.monotonic() - begun
            thing.worked = bool(thing.todo)
            copying = Copying(thing, self.pool, self.room, time.monotonic() + max(slice_s, 10 * took), final)
            whole = copying.run()
            thing.cut = copying.cut and not copying.failures
            if copying.failures:
                raise copying.failures[0]
            thing.failed, thing.pause = thing.source.missing or (thing.source.busy or [None])[0], PAUSE_S
            if not whole or thing.waiting or thing.source.busy:
                return False
            if thing.unverified and (final or time.monotonic() >= thing.verify_at):
                took = self.verify(thing)
                thing.verify_at = time.monotonic() + max(VERIFY_EVERY_S, 20 * took)
            # What a job writes from now on is for the next look. At the end nothing that matters is written any more.
            thing.look(final)
            done = not thing.unverified and (final or not (thing.todo or thing.waiting))
            if done and thing.source.skipped:
                count, first = len(thing.source.skipped), one_line(thing.source.skipped[0])[:80]
                thing.failed = "%d %s no plain file and not saved: %s" % (count, "entry is" if count == 1 else "entries are", first)
            return done
        except (Failed, OSError) as failure:
            thing.failed = one_line(failure)
            thing.again = time.monotonic() + thing.pause
            thing.pause = min(LONGEST_PAUSE_S, thing.pause * 2)
            return False

    def verify(self, thing):
        """Asks for everything that was saved once more, and writes the manifest; raises Failed where something is missing.

        Returns how many seconds that took."""
        begun = time.monotonic()
        thing.there = thing.place.list(begun + 60)
        gone = [name for name, row in list(thing.manifest.files.items()) if not is_there(thing.there.get(name), row)]
        for name in gone:
            thing.manifest.note({"name": name, "gone": True})
        if gone:
            raise Failed("%d of what was saved is not there any more, and is saved again: %s" % (len(gone), one_line(gone[0])[:80]))
        large = {name for name, row in list(thing.manifest.files.items()) if row[0] > PART}
        thing.place.tidy(large, {line["upload"] for line in list(thing.manifest.uploads.values())}, begun + 60)
        if thing.manifest.write() or thing.unverified:
            body = json.dumps(thing.manifest.value()).encode()
            name = "%s/saved-%s-%s.json" % (source.OURS, thing.manifest.head["host"], re.sub(r"\D", "", thing.manifest.head["begun"]))
            thing.place.put(name, body, hashlib.sha256(body).hexdigest(), int(since_boot() * 1e9), time.monotonic() + 60)
        thing.unverified = False
        return time.monotonic() - begun

    @property
    def sent(self):
        """How many bytes were sent so far, to all places."""
        return sum({id(one.place): one.place.sent for one in self.things}.values())

    def missing(self):
        """How many bytes and files are not saved yet."""
        return max(0, sum(one.missing_bytes for one in self.things)), max(0, sum(one.missing_files for one in self.things))
