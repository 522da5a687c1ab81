"""What is saved: a path in the data folder, or a bucket of the cluster's store.

Jobs write there while it is read, and what they leave there is not trusted: folders are opened one by one and never
through a link, and what is no plain file is not opened. Standard library only, Python 3.6 or newer.
"""

import codecs
import contextlib
import os
import stat

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

    def __init__(self, data, path):
        self.data, self.path = data, path
        self.parts = [part for part in path.split("/") if part not in ("", ".")]
        if ".." in self.parts:
            raise Failed("%s leads out of the data folder" % one_line(path))
        # Where each name is read from, and what cannot be saved.
        self.base, self.paths, self.skipped, self.missing = (), {}, [], None

    def look(self):
        """All files below the path, by their names."""
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

    @contextlib.contextmanager
    def reading(self, name, entry, may_grow=False):
        """A function that reads the next bytes of a file; raises Changed where it is not what was seen any more.

        Where it may grow, what is appended meanwhile is left for another time."""
        parts = self.base + self.paths[name]
        try:
            top = os.open(self.data, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                folder = opened(top, parts[:-1])
            finally:
                os.close(top)
            try:
                handle = os.open(parts[-1], FILE, dir_fd=folder)
            finally:
                os.close(folder)
        except OSError:
            raise Changed() from None
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
        self.store, self.skipped, self.missing = store, [], None
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
