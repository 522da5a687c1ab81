"""Where things are saved to: a bucket of a store, or a folder of the host that outlives the cluster.

Both keep what was there before, if asked, and take large files in parts, of which those that came stay when the guard
ends. Standard library only, Python 3.6 or newer.
"""

import contextlib
import errno
import hashlib
import os
import stat

from record import Failed, one_line
from s3 import Refusal
from source import FILE, OURS, opened

# Where what would have been replaced is kept, and what is unfinished.
KEPT, NEW = OURS + "/kept/", OURS + "/new/"
BLOCK = 1 << 20


class Bucket:
    """A bucket of a store, or what is below a prefix in it."""

    def __init__(self, store, url, below):
        self.store = store
        self.bucket, _, prefix = url[len("s3://"):].partition("/")
        self.prefix = "/".join(part for part in (prefix.strip("/"), below) if part)
        self.prefix += "/" if self.prefix else ""

    @property
    def sent(self):
        """How many bytes were sent so far."""
        return self.store.sent

    def refresh(self):
        """Reads the keys again, which may have been replaced."""
        self.store.read_keys()

    def list(self, until):
        """What is there: sizes and tags by names."""
        found = self.store.list(self.bucket, self.prefix, until)
        return {key[len(self.prefix):]: (one.size, one.tag) for key, one in found.items() if not key.startswith(self.prefix + OURS + "/")}

    def known(self, name, until):
        """What was noted of a file when it was saved: digest and time, or nothing."""
        found = self.store.head(self.bucket, self.prefix + name, until) or {}
        digest, written = found.get("x-amz-meta-sha256"), found.get("x-amz-meta-written") or ""
        return digest, int(written) if written.isdigit() else None

    def keep(self, name, tag, until):
        """Keeps what is there under another name."""
        to = "%s%s.%s" % (KEPT, name, mark(tag))
        if self.store.head(self.bucket, self.prefix + to, until) is None:
            self.store.copy(self.bucket, self.prefix + name, self.prefix + to, until)

    def put(self, name, body, digest, written, until):
        """Writes a file; returns its tag."""
        return self.store.put(self.bucket, self.prefix + name, body, digest, {"sha256": digest, "written": str(written)}, until)

    def begin(self, name, size, written, until):
        """Begins to write a large file; returns what its parts belong to."""
        return self.store.begin(self.bucket, self.prefix + name, {"written": str(written)}, until)

    def part(self, name, upload, number, offset, body, digest, until):
        """Writes a part; returns its tag."""
        return self.store.part(self.bucket, self.prefix + name, upload, number, body, digest, until)

    def complete(self, name, upload, tags, digest, written, until):
        """Puts a large file in its place; returns its tag."""
        return self.store.complete(self.bucket, self.prefix + name, upload, tags, until)

    def give_up(self, name, upload, until):
        """Forgets the parts of a large file."""
        self.store.give_up(self.bucket, self.prefix + name, upload, until)

    def tidy(self, names, uploads, until):
        """Forgets what an earlier guard began of these large files and knows no more."""
        for key, upload in self.store.uploads(self.bucket, self.prefix, until) if names else ():
            if key[len(self.prefix):] in names and upload not in uploads:
                self.store.give_up(self.bucket, key, upload, until)


class Folder:
    """A folder of the host. Its files are new ones, read back after they were written; no link in it is followed."""

    def __init__(self, path, below):
        self.path, self.sent = os.path.join(os.path.expanduser(path), below) if below else os.path.expanduser(path), 0

    def refresh(self):
        """Makes the folder."""
        with failing(self.path):
            os.makedirs(self.path, mode=0o755, exist_ok=True)

    @contextlib.contextmanager
    def place(self, name, make):
        """The open folder of a file, and its name there."""
        top = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            parts = name.split("/")
            folder = opened(top, parts[:-1], make)
        finally:
            os.close(top)
        try:
            yield folder, parts[-1]
        finally:
            os.close(folder)

    def list(self, until):
        """What is there: sizes and tags by names."""
        found = {}
        top = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            left = [()]
            while left:
                parts = left.pop()
                folder = opened(top, parts)
                try:
                    for name in os.listdir(folder):
                        seen = os.stat(name, dir_fd=folder, follow_symlinks=False)
                        if stat.S_ISDIR(seen.st_mode):
                            if parts or name != OURS:
                                left.append(parts + (name,))
                        elif stat.S_ISREG(seen.st_mode):
                            path = "/".join(parts + (name,))
                            found[path.encode("utf-8", "surrogateescape").decode("utf-8", "percent")] = (seen.st_size, tag_of(seen))
                except FileNotFoundError:
                    pass
                finally:
                    os.close(folder)
        except OSError as error:
            raise Refusal("away", "%s cannot be read: %s" % (self.path, error.strerror)) from None
        finally:
            os.close(top)
        return found

    def known(self, name, until):
        """The digest of what is there, and when it was written."""
        try:
            with self.place(name, False) as (folder, leaf):
                handle = os.open(leaf, FILE, dir_fd=folder)
                try:
                    return digest_of(handle), os.fstat(handle).st_mtime_ns
                finally:
                    os.close(handle)
        except OSError:
            return None, None

    def keep(self, name, tag, until):
        """Keeps what is there under another name."""
        with failing(name), self.place(name, False) as (folder, leaf), self.place(KEPT + name, True) as (kept, _):
            to = "%s.%s" % (leaf, mark(tag))
            with contextlib.suppress(FileExistsError):
                os.link(leaf, to, src_dir_fd=folder, dst_dir_fd=kept, follow_symlinks=False)

    def put(self, name, body, digest, written, until):
        """Writes a file; returns its tag."""
        upload = self.begin(name, len(body), written, until)
        self.part(name, upload, 1, 0, body, digest, until)
        return self.complete(name, upload, [], digest, written, until)

    def begin(self, name, size, written, until):
        """Begins to write a large file; returns what its parts belong to."""
        upload = NEW + mark(name + str(written))
        with failing(name), self.place(upload, True) as (folder, leaf):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(leaf, dir_fd=folder)
            os.close(os.open(leaf, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644, dir_fd=folder))
        return upload

    def part(self, name, upload, number, offset, body, digest, until):
        """Writes a part; returns its tag."""
        with failing(name, lambda: self.give_up(name, upload, until)), self.place(upload, False) as (folder, leaf):
            handle = os.open(leaf, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            try:
                view, done = memoryview(body), 0
                while done < len(body):
                    count = os.pwrite(handle, view[done:done + (BLOCK << 2)], offset + done)
                    done += count
                    self.sent += count
            finally:
                os.close(handle)
        return digest

    def complete(self, name, upload, tags, digest, written, until):
        """Reads a file back and puts it in its place; returns its tag."""
        with failing(name), self.place(upload, False) as (new, temporary):
            handle = os.open(temporary, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=new)
            try:
                os.fsync(handle)
                # From the disk, and not from what the system remembers of it.
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
                if digest_of(handle) != digest:
                    raise Refusal("other", "%s reads back with another digest" % one_line(name))
                os.utime(handle, ns=(written, written))
                tag = tag_of(os.fstat(handle))
            finally:
                os.close(handle)
            with self.place(name, True) as (folder, leaf):
                os.rename(temporary, leaf, src_dir_fd=new, dst_dir_fd=folder)
                os.fsync(folder)
        return tag

    def give_up(self, name, upload, until):
        """Forgets the parts of a large file."""
        with contextlib.suppress(OSError), self.place(upload, False) as (folder, leaf):
            os.unlink(leaf, dir_fd=folder)

    def tidy(self, names, uploads, until):
        """Removes what an earlier guard began and knows no more."""
        with contextlib.suppress(OSError), self.place(NEW + "-", False) as (folder, _):
            for leaf in os.listdir(folder):
                if NEW + leaf not in uploads:
                    os.unlink(leaf, dir_fd=folder)


@contextlib.contextmanager
def failing(name, then=None):
    """Errors of a disk, as refusals."""
    try:
        yield
    except OSError as error:
        if then is not None:
            then()
        kind = "full" if error.errno in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT) else "other"
        # Parts that are gone are begun anew, as those of a store.
        code = "NoSuchUpload" if error.errno == errno.ENOENT else ""
        raise Refusal(kind, "%s cannot be written: %s" % (one_line(name), error.strerror), code) from None


def digest_of(handle):
    """The SHA-256 of an open file."""
    sum_ = hashlib.sha256()
    os.lseek(handle, 0, os.SEEK_SET)
    while True:
        block = os.read(handle, BLOCK)
        if not block:
            return sum_.hexdigest()
        sum_.update(block)


def tag_of(seen):
    """What changes with a file's content."""
    return "%d-%d" % (seen.st_size, seen.st_mtime_ns)


def mark(text):
    """A short name for any text."""
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:12]


def at(to, below, stores):
    """The place that `to` names."""
    if to.startswith("s3://"):
        if stores.get("outside") is None:
            raise Failed("no store is known for %s" % one_line(to))
        return Bucket(stores["outside"], to, below)
    return Folder(to, below)
