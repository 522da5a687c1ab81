"""What is saved: a path in the data folder, or a bucket of the cluster's store.

Jobs write there while it is read, and what they leave there is not trusted: folders are opened one by one and never
through a link, and what is no plain file is not opened. Standard library only, Python 3.6 or newer.
"""

import codecs
import contextlib
import os
import shutil
import stat
import subprocess
import sys
import time

from record import Failed, one_line, to_seconds
from s3 import Refusal

# Opens a folder, and never a link to one.
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Opens a file, and never a link to one, nor waits for the other end of a pipe.
FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# How deep folders may lie in one another, and how many files are looked at.
DEPTH, MOST = 128, 5000000
# The folder of what gpucl keeps in a data folder and at a destination.
OURS = ".gpucl"
# How SQLite's databases begin, what they are called, and what stands beside one in use: a copy of these files one after another
# is of several moments.
MAGIC, DATABASES, BESIDE = b"SQLite format 3\0", (".db", ".db3", ".sqlite", ".sqlite3"), ("-wal", "-shm", "-journal")
# How long a snapshot may take at least, in seconds, what it copies per second, and what is left free beside it, in bytes.
SNAPSHOT_S, SNAPSHOT_RATE, FREE = 30, 5 << 20, 64 << 20
# How many databases one look copies, and for how many seconds: what matters more must not wait for all of them.
SNAPSHOTS, SNAPSHOTS_S = 32, 10
SNAPSHOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "snapshot.py")


class Changed(Exception):
    """A file was changed, replaced or removed while it was read."""


class Entry:
    """A file as it was seen: `stamp` changes with its content, `time` is when it was written, in nanoseconds."""

    __slots__ = ("size", "stamp", "time")

    def __init__(self, size, stamp, written):
        self.size, self.stamp, self.time = size, stamp, written


def opened(top, parts, make=False):
    """Opens a folder by its path's parts in an open one, never through a link; it is made if wanted."""
    at = os.dup(top)
    for part in parts:
        try:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, 0o755, dir_fd=at)
            inner = os.open(part, FOLDER, dir_fd=at)
        finally:
            os.close(at)
        at = inner
    return at


def named(path):
    """The name of a file at its destination. What is no UTF-8 in it is written as `%FF`: no store takes it as it is."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "percent")


def percent(error):
    """What stands for bytes that are no UTF-8."""
    return "".join("%%%02X" % byte for byte in error.object[error.start:error.end]), error.end


codecs.register_error("percent", percent)


class Data:
    """A path in the data folder."""

    def __init__(self, data, path, scratch, saved):
        # `saved` says the stamp that a name had when it was saved, or None.
        self.data, self.path, self.scratch, self.saved = data, path, scratch, saved
        self.parts = [part for part in path.split("/") if part not in ("", ".")]
        if ".." in self.parts:
            raise Failed("%s leads out of the data folder" % one_line(path))
        # Where each name is read from, and what cannot be saved.
        self.base, self.paths, self.skipped, self.missing = (), {}, [], None
        # Databases as they were at one moment: stamp, open file, entry. And which could not be copied now.
        self.snapshots, self.busy, self.until = {}, [], 0.0
        # Databases that are copied as they are, and whole or not at all.
        self.whole = set()

    def look(self):
        """All files below the path, by their names."""
        found = self.look_at_files()
        self.busy, self.whole = [], set()
        before, self.snapshots, self.until = self.snapshots, {}, time.monotonic() + SNAPSHOTS_S
        for name in [name for name in found if is_named_database(name, found)]:
            self.take_database(name, found, before)
        for _, handle, _ in before.values():
            handle.close()
        return found

    def take_database(self, name, found, before):
        """Puts a copy of one moment in the place of a database, and of the files beside it."""
        entry, beside = found[name], [name + end for end in BESIDE if name + end in found]
        try:
            folder, handle = self.open(name)
        except OSError:
            return
        try:
            if os.pread(handle, len(MAGIC), 0) != MAGIC:
                return
            log = found.get(name + "-wal")
            self.whole.add(name)
            # One that is not in use has its log in it already, and cannot be opened for reading alone.
            if log is None and os.pread(handle, 2, 18) == b"\2\2":
                return
            stamp = entry.stamp + [log.size, log.time] if log else entry.stamp + [0, 0]
            saved, known = self.saved(name), before.pop(name, None)
            if saved is not None and saved[2:] == stamp:
                found[name] = Entry(saved[0], saved, saved[1])
            elif known is not None and known[0] == stamp:
                self.snapshots[name] = known
                found[name] = known[2]
            else:
                if known is not None:
                    known[1].close()
                if len(self.snapshots) >= SNAPSHOTS or time.monotonic() > self.until:
                    raise Failed("others come first")
                copy = self.snapshot(folder, os.fstat(handle), self.paths[name][-1], entry.size + (log.size if log else 0))
                if copy is None:
                    return
                size, written = os.fstat(copy.fileno()).st_size, max(entry.time, log.time) if log else entry.time
                found[name] = Entry(size, [size, written] + stamp, written)
                self.snapshots[name] = (stamp, copy, found[name])
        except Failed as failure:
            self.busy.append("%s is a database of SQLite that cannot be copied now: %s" % (one_line(name)[:80], failure))
            found.pop(name)
        except OSError:
            return
        finally:
            os.close(handle)
            os.close(folder)
        for one in beside:
            found.pop(one, None)

    def snapshot(self, folder, seen, leaf, size):
        """A copy of one moment as an open file without a name; None where the file is to be copied as it is, and Failed where
        it cannot be copied now."""
        to, most = os.path.join(self.scratch, ".snapshot"), 2 * size + FREE
        remove(to)
        if shutil.disk_usage(self.scratch).free < size + FREE:
            raise Failed("%s has no room for %d bytes" % (self.scratch, size))
        words = [sys.executable, "-I", "-B", SNAPSHOT, str(folder), str(seen.st_dev), str(seen.st_ino), leaf, to, str(most)]
        try:
            done = subprocess.run(words, env={}, pass_fds=(folder,), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.DEVNULL, timeout=SNAPSHOT_S + size / SNAPSHOT_RATE)
            if done.returncode == 3:
                return None
            if done.returncode:
                why = done.stdout.decode("utf-8", "replace")
                raise Failed(one_line(why) or "its copy ended with %d" % done.returncode)
            return open(to, "rb")
        except subprocess.TimeoutExpired:
            raise Failed("it took too long; it may be locked") from None
        finally:
            remove(to)

    def look_at_files(self):
        """All files below the path, by their names, as they are."""
        self.paths, self.skipped, self.missing, found = {}, [], None, {}
        try:
            top = os.open(self.data, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            self.missing = "%s cannot be read: %s" % (self.data, error.strerror)
            return found
        try:
            try:
                above = opened(top, self.parts[:-1])
            except OSError as error:
                self.missing = "%s is not there: %s" % (self.path, error.strerror)
                return found
            try:
                self.look_at(above, found)
            finally:
                os.close(above)
        finally:
            os.close(top)
        return found

    def look_at(self, above, found):
        """Looks at the path itself, which is a file or a folder."""
        leaf = self.parts[-1] if self.parts else "."
        try:
            seen = os.stat(leaf, dir_fd=above, follow_symlinks=False)
        except OSError as error:
            self.missing = "%s is not there: %s" % (self.path, error.strerror)
            return
        if stat.S_ISREG(seen.st_mode):
            self.base = tuple(self.parts[:-1])
            self.note(found, (), leaf, seen)
        elif stat.S_ISDIR(seen.st_mode):
            self.base = tuple(self.parts)
            try:
                top = os.open(leaf, FOLDER, dir_fd=above)
            except OSError as error:
                self.missing = "%s cannot be read: %s" % (self.path, error.strerror)
                return
            try:
                self.walk(top, found)
            finally:
                os.close(top)
        else:
            self.missing = "%s is neither a file nor a folder; links are not followed" % self.path

    def walk(self, top, found):
        """Looks at all folders below an open one."""
        left = [()]
        while left:
            parts = left.pop()
            try:
                folder = opened(top, parts)
            except OSError:
                # A job removed it, or put a link in its place.
                continue
            try:
                for name in os.listdir(folder):
                    try:
                        seen = os.stat(name, dir_fd=folder, follow_symlinks=False)
                    except OSError:
                        continue
                    if stat.S_ISREG(seen.st_mode):
                        self.note(found, parts, name, seen)
                    elif stat.S_ISDIR(seen.st_mode) and len(parts) < DEPTH and not (name == OURS and not parts):
                        left.append(parts + (name,))
                    else:
                        self.skipped.append("/".join(parts + (name,)))
                    if len(found) > MOST:
                        raise Failed("%s has more than %d files" % (self.path, MOST))
            except OSError as error:
                self.skipped.append("%s: %s" % ("/".join(parts), error.strerror))
            finally:
                os.close(folder)

    def note(self, found, parts, leaf, seen):
        """Takes a file into the list."""
        name = named("/".join(parts + (leaf,)))
        if name in found:
            # Another name that would be the same at the destination.
            self.skipped.append(name)
            return
        found[name] = Entry(seen.st_size, [seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns, seen.st_ino], seen.st_mtime_ns)
        self.paths[name] = parts + (leaf,)

    def open(self, name):
        """The folder of a file, and the file, both open, and never through a link."""
        parts = self.base + self.paths[name]
        top = os.open(self.data, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            folder = opened(top, parts[:-1])
        finally:
            os.close(top)
        try:
            return folder, os.open(parts[-1], FILE, dir_fd=folder)
        except OSError:
            os.close(folder)
            raise

    @contextlib.contextmanager
    def reading(self, name, entry, may_grow=False):
        """A function that reads the next bytes of a file; raises Changed where it is not what was seen any more.

        Where it may grow, what is appended meanwhile is left for another time."""
        if name in self.snapshots:
            yield from_start(self.snapshots[name][1])
            return
        try:
            folder, handle = self.open(name)
            os.close(folder)
        except OSError:
            raise Changed() from None
        may_grow = may_grow and name not in self.whole
        try:
            check(handle, entry, may_grow)

            def read(count):
                """Returns exactly that many bytes."""
                blocks = []
                while count:
                    block = os.read(handle, count)
                    if not block:
                        raise Changed()
                    blocks.append(block)
                    count -= len(block)
                return blocks[0] if len(blocks) == 1 else b"".join(blocks)

            yield read
            check(handle, entry, may_grow)
        finally:
            os.close(handle)


def remove(snapshot):
    """Removes a snapshot that is in use or was left, and its journal."""
    for path in (snapshot, snapshot + "-journal"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def is_named_database(name, found):
    """Whether a file may be a database, by its name or by what is beside it."""
    return name.lower().endswith(DATABASES) or name + "-wal" in found or name + "-journal" in found


def from_start(handle):
    """A function that reads the next bytes of an open file, from its start."""
    at = [0]

    def read(count):
        """Returns exactly that many bytes."""
        blocks = []
        while count:
            block = os.pread(handle.fileno(), count, at[0])
            if not block:
                raise Changed()
            at[0] += len(block)
            count -= len(block)
            blocks.append(block)
        return blocks[0] if len(blocks) == 1 else b"".join(blocks)

    return read


def check(handle, entry, may_grow):
    """Raises Changed where an open file is not the one that was seen."""
    now = os.fstat(handle)
    size, changed, _, number = entry.stamp
    same = now.st_size == size and now.st_mtime_ns == changed
    if not stat.S_ISREG(now.st_mode) or now.st_ino != number or not (same or (may_grow and now.st_size > size)):
        raise Changed()


class Bucket:
    """A bucket, or the objects in it whose keys begin with a prefix."""

    def __init__(self, store, url):
        self.store, self.skipped, self.missing, self.busy = store, [], None, []
        self.bucket, _, prefix = url[len("s3://"):].partition("/")
        self.prefix = prefix.strip("/") + "/" if prefix.strip("/") else ""

    def look(self):
        """All objects, by their keys without the prefix."""
        self.skipped, self.missing = [], None
        try:
            listed = self.store.list(self.bucket, self.prefix)
        except Refusal as refusal:
            if refusal.kind != "missing":
                raise
            self.missing = "the bucket %s is not there" % self.bucket
            return {}
        found = {}
        for key, one in listed.items():
            name = key[len(self.prefix):]
            if not name or name.endswith("/"):
                continue
            if any(part in ("", ".", "..") for part in name.split("/")) or "\0" in name:
                self.skipped.append(name)
            else:
                found[name] = Entry(one.size, [one.size, one.tag], written_at(one.time))
        return found

    @contextlib.contextmanager
    def reading(self, name, entry, may_grow=False):
        """As for a file."""
        at = [0]

        def read(count):
            try:
                block = self.store.get(self.bucket, self.prefix + name, at[0], count, entry.stamp[1])
            except Refusal as refusal:
                if refusal.kind in ("changed", "missing"):
                    raise Changed() from None
                raise
            at[0] += count
            return block

        yield read


def written_at(text):
    """A time of a store in nanoseconds; 0 where it cannot be read."""
    try:
        return int(to_seconds(text) * 1e9)
    except ValueError:
        return 0
