"""Fills the data folder of a host: data sets, which appear there only when they are whole, and files of others.

fill.py fill|begin|finish DATA  <  {"name": …, "digest": …, "check": …, "url": …, "sha256": …, "command": …}

`fill` does everything. `begin` makes the folder for a program that this one does not start, and prints nothing; `finish`
checks what that program left there. Everything unfinished is in DATA/.gpucl, and a download that was cut goes on from
there.

fill.py have|wants DATA  <  {"to": …, "files": [[name, size, time, mode, sha256], …]}
fill.py take DATA        <  a tar file: that list, and the files that `wants` named, by their numbers
fill.py clone|cloned DATA  <  {"to": …, "url": …, "ref": …, "commit": …}

Files of the user's machine: whether all are there, which are wanted, and their delivery. Clones of git, and whether one
is there. Standard library only; errors are one line.
"""

import contextlib
import hashlib
import http.client
import json
import os
import shutil
import stat
import subprocess
import sys
import tarfile
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile

# How often progress is shown, in seconds.
EVERY = 2
# How long a server may be silent, in seconds.
SILENCE = 60
# How many times in a row a download may be cut without a byte of progress.
ATTEMPTS = 5
CHUNK = 1 << 20
# Room that stays free on the disk.
MARGIN = 64 << 20
# Opens a folder, and never a link to one.
FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# The most entries of an archive, and how deep and long a name in it may be: the set must be usable by its paths.
ENTRIES, DEPTH, LONGEST = 10_000_000, 128, 2048
ARCHIVES = (".tar", ".tar.gz", ".tgz", ".tar.bz2", ".tbz2", ".tar.xz", ".txz", ".zip")


class Failed(Exception):
    """What went wrong, in one line."""


def say(text):
    print(text, flush=True)


def size(count):
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if count < 1024 or unit == "GiB":
            return f"{count} {unit}" if unit == "bytes" else f"{count:.1f} {unit}"
        count /= 1024


class Set:
    """One data set and its places."""

    def __init__(self, data, wanted):
        self.wanted, self.data, self.name = wanted, data, wanted["name"]
        self.work = os.path.join(data, ".gpucl")
        self.folder = os.path.join(data, self.name)
        self.new = os.path.join(self.work, self.name + ".new")
        self.old = os.path.join(self.work, self.name + ".old")
        self.part = os.path.join(self.work, self.name + ".part")
        self.state = os.path.join(self.work, self.name + ".state")

    def begin(self):
        """Makes the empty folder that is filled. A folder of the set's name that is not ours stays as it is."""
        make_work(self.work)
        if os.path.lexists(self.folder) and not os.path.lexists(self.state):
            raise Failed(f"$GPUCL_DATA/{self.name} exists, and gpucl did not fill it: move it away, or use another name")
        self.mark("filling")
        remove(self.old)
        remove(self.new)
        os.mkdir(self.new)

    def mark(self, state):
        with open(self.state + ".new", "w") as file:
            file.write(f"{state} {self.wanted['digest']}\n")
        os.replace(self.state + ".new", self.state)

    def finish(self):
        """Checks the filled folder and puts it in its place."""
        check = self.wanted["check"]
        code = shell(check, self.new)
        if code:
            raise Failed(f"the check of {self.name} fails ({ended(code)}): {one_line(check)}")
        os.sync()
        # From here on what is in its place is ours, whatever happens.
        if os.path.lexists(self.folder):
            os.rename(self.folder, self.old)
        os.rename(self.new, self.folder)
        self.mark("filled")
        remove(self.old)
        for path in (self.part, self.part + ".json"):
            remove(path)
        count, total = measure(self.folder)
        say(f"{self.name}: {count} file{'' if count == 1 else 's'}, {size(total)}")

    def fill(self):
        url = self.wanted.get("url")
        if url is None:
            self.begin()
            code = shell(self.wanted["command"], self.new)
            if code:
                raise Failed(f"the command of {self.name} failed ({ended(code)})")
        else:
            self.begin()
            self.download(url)
            self.unpack(url)
        self.finish()

    # Downloads.

    def download(self, url):
        """Downloads to the file of the part, and goes on where an earlier download was cut."""
        wanted = {"url": url, "sha256": self.wanted["sha256"].lower()}
        noted = {}
        try:
            with open(self.part + ".json") as file:
                noted = json.load(file)
        except (OSError, ValueError):
            pass
        if not isinstance(noted, dict) or any(noted.get(key) != value for key, value in wanted.items()):
            remove(self.part)
            noted = dict(wanted)
        sum_, have = hashlib.sha256(), 0
        if os.path.exists(self.part):
            with open(self.part, "rb") as file:
                while block := file.read(CHUNK):
                    sum_.update(block)
                    have += len(block)
        if noted.get("total") is None or have != noted["total"]:
            cuts = 0
            while True:
                before = have
                try:
                    sum_, have = self.receive(url, noted, sum_, have)
                    break
                except urllib.error.HTTPError as error:
                    if error.code < 500 and error.code != 429:
                        raise Failed(f"{shown(url)} answers {error.code} {error.reason}") from None
                    why = f"{error.code} {error.reason}"
                except (OSError, EOFError, http.client.HTTPException) as error:
                    reason = getattr(error, "reason", error)
                    if getattr(reason, "errno", None) in (28, 27, 122):
                        raise
                    why = str(reason) or type(reason).__name__
                have = os.path.getsize(self.part) if os.path.exists(self.part) else 0
                sum_ = self.sum_of(have)
                cuts = 1 if have > before else cuts + 1
                if cuts >= ATTEMPTS:
                    raise Failed(f"{shown(url)} cannot be downloaded: {one_line(why)} ({size(have)} are kept, and the next `up` goes on)")
                say(f"{self.name}: the download was cut after {size(have)}: {one_line(why)}; going on")
                time.sleep(min(8, 2**cuts) / 4)
        if sum_.hexdigest() != wanted["sha256"]:
            remove(self.part)
            remove(self.part + ".json")
            raise Failed(f"{shown(url)} has the SHA-256 {sum_.hexdigest()}, and the spec says {wanted['sha256']}")

    def sum_of(self, have):
        sum_ = hashlib.sha256()
        if have:
            with open(self.part, "rb") as file:
                while block := file.read(CHUNK):
                    sum_.update(block)
        return sum_

    def receive(self, url, noted, sum_, have):
        """Receives what is missing; returns the sum and the size of the whole."""
        request = urllib.request.Request(url, headers={"User-Agent": "gpucl", "Accept-Encoding": "identity"})
        if have:
            request.add_header("Range", f"bytes={have}-")
            # The rest of another version would not fit what is here.
            if noted.get("version"):
                request.add_header("If-Range", noted["version"])
        try:
            answer = urllib.request.urlopen(request, timeout=SILENCE, context=None)
        except urllib.error.HTTPError as error:
            if error.code != 416 or not have:
                raise
            remove(self.part)
            return self.receive(url, noted, hashlib.sha256(), 0)
        with answer:
            goes_on = answer.status == 206 and answer.headers.get("Content-Range", "").startswith(f"bytes {have}-")
            if have and not goes_on:
                say(f"{self.name}: the server sends all of it again")
                sum_, have = hashlib.sha256(), 0
            elif have:
                say(f"{self.name}: going on after {size(have)}")
            length = answer.headers.get("Content-Length", "")
            total = have + int(length) if length.isdigit() else None
            tag = answer.headers.get("ETag", "")
            noted["version"] = tag if tag.startswith('"') else answer.headers.get("Last-Modified")
            noted["total"] = total
            with open(self.part + ".json.new", "w") as file:
                json.dump(noted, file)
            os.replace(self.part + ".json.new", self.part + ".json")
            if total is not None:
                self.fits(total - have + (total if is_archive(url) else 0), total)
            shown_at, text = time.monotonic(), size(total) if total is not None else "an unknown size"
            with open(self.part, "ab" if have else "wb") as file:
                while block := answer.read1(CHUNK):
                    file.write(block)
                    sum_.update(block)
                    have += len(block)
                    if time.monotonic() - shown_at >= EVERY:
                        shown_at = time.monotonic()
                        say(f"{self.name}: {size(have)} of {text}" + (f" ({have * 100 // total} %)" if total else ""))
            if total is not None and have < total:
                raise EOFError("the connection ended early")
            say(f"{self.name}: {size(have)} received")
            return sum_, have

    def fits(self, needed, total):
        """Refuses what does not fit on the disk, before it is received."""
        free = shutil.disk_usage(self.data).free
        if needed + MARGIN > free:
            raise Failed(f"{self.name} ({size(total)}) needs {size(needed)} on the disk, and {size(free)} are free there")

    # Archives.

    def unpack(self, url):
        path = urllib.parse.unquote(urllib.parse.urlsplit(url).path)
        if not is_archive(url):
            name = os.path.basename(path.rstrip("/"))
            name = name if name not in ("", ".", "..") and "\0" not in name else self.name
            # The same file system: it takes no room a second time.
            os.rename(self.part, os.path.join(self.new, name))
            return
        say(f"{self.name}: unpacking")
        with contextlib.closing(Tree(self.new)) as tree:
            try:
                if path.lower().endswith(".zip"):
                    self.unzip(tree)
                else:
                    self.untar(tree)
                tree.finish()
            except Unwanted as error:
                raise Failed(f"{self.name}: the archive has {error}") from None
            except (Failed, OSError):
                raise
            except Exception as error:
                # What an archive is not supposed to be, each module says in its own way.
                raise Failed(f"{shown(url)} cannot be unpacked: {one_line(str(error) or type(error).__name__)}") from None

    def untar(self, tree):
        with tarfile.open(self.part, "r:*") as archive:
            for entry in archive:
                # It keeps all entries otherwise.
                archive.members = []
                if entry.isdir():
                    tree.make_folder(entry.name, entry.mode)
                elif entry.issym():
                    tree.note_link(entry.name, entry.linkname)
                elif entry.islnk():
                    tree.link_file(entry.name, entry.linkname)
                elif entry.isfile():
                    with archive.extractfile(entry) as source:
                        tree.write(entry.name, source, entry.mode, entry.mtime)
                else:
                    raise Unwanted(f"a device or pipe in it: {one_line(entry.name)}")

    def unzip(self, tree):
        with zipfile.ZipFile(self.part) as archive:
            self.fits(sum(entry.file_size for entry in archive.infolist()), os.path.getsize(self.part))
            for entry in archive.infolist():
                mode = entry.external_attr >> 16
                if entry.is_dir():
                    tree.make_folder(entry.filename, None)
                    continue
                with archive.open(entry) as source:
                    if stat.S_ISLNK(mode):
                        tree.note_link(entry.filename, os.fsdecode(source.read(LONGEST + 1)))
                    else:
                        tree.write(entry.filename, source, mode, None)


class Unwanted(Exception):
    """What an archive may not have in it: `a link that …`."""


class Tree:
    """A new folder that an archive fills. In whatever order its entries come, nothing outside of the folder changes.

    Folders are opened one by one, and never through a link; files are new ones. Links are made last, when all folders
    are there: then it is known of each which folders it passes through on its way up."""

    def __init__(self, root):
        self.root, self.count = os.open(root, FOLDER), 0
        # The modes of folders, and the targets of links, by their paths.
        self.modes, self.links = {}, {}

    def close(self):
        os.close(self.root)

    def parts(self, name):
        """The parts of an entry's path."""
        self.count += 1
        if self.count > ENTRIES:
            raise Unwanted(f"more than {ENTRIES} entries")
        parts = tuple(part for part in name.split("/") if part not in ("", "."))
        if name.startswith("/") or ".." in parts or "\0" in name:
            raise Unwanted(f"an entry that leads out of it: {one_line(name)}")
        if len(parts) > DEPTH or len(os.fsencode(name)) > LONGEST:
            raise Unwanted(f"an entry whose path is too long: {one_line(name)}")
        return parts

    @contextlib.contextmanager
    def parent(self, name, parts):
        """The open folder of an entry, which is made when it is not there."""
        try:
            folder = opened(self.root, parts[:-1], make=True)
        except NotADirectoryError:
            raise Unwanted(f"an entry below one that is no folder: {one_line(name)}") from None
        try:
            yield folder
        except (FileExistsError, IsADirectoryError):
            raise Unwanted(f"two entries of one name and different kinds: {one_line(name)}") from None
        finally:
            os.close(folder)

    def make_folder(self, name, mode):
        parts = self.parts(name)
        with self.parent(name, (*parts, "")):
            if parts and mode is not None:
                self.modes[parts] = mode & 0o777 | 0o700

    def write(self, name, source, mode, changed):
        if parts := self.parts(name):
            with self.parent(name, parts) as folder:
                write(parts[-1], source, mode & 0o777 | 0o600, changed, folder)

    def link_file(self, name, target):
        """Makes a hard link to a file that came before."""
        parts, source = self.parts(name), self.parts(target)
        if not parts:
            return
        try:
            at = opened(self.root, source[:-1])
        except (FileNotFoundError, NotADirectoryError):
            raise Unwanted(f"a link to what is no file in it: {one_line(name)}") from None
        try:
            if not source or not is_file(source[-1], at):
                raise Unwanted(f"a link to what is no file in it: {one_line(name)}")
            with self.parent(name, parts) as folder:
                os.link(source[-1], parts[-1], src_dir_fd=at, dst_dir_fd=folder, follow_symlinks=False)
        finally:
            os.close(at)

    def note_link(self, name, target):
        if parts := self.parts(name):
            self.links[parts] = (name, target)

    def finish(self):
        for parts, mode in self.modes.items():
            folder = opened(self.root, parts)
            os.fchmod(folder, mode)
            os.close(folder)
        for parts, (name, target) in self.links.items():
            if not self.stays_within(parts[:-1], target):
                raise Unwanted(f"a link that leads out of it: {one_line(name)} to {one_line(target)}")
            with self.parent(name, parts) as folder:
                os.symlink(target, parts[-1], dir_fd=folder)

    def stays_within(self, at, target):
        """Whether a link in a folder leads to something in the tree: on its way up it passes through folders only.

        From there it goes down, and where it meets another link, the same is true of that one."""
        parts = [part for part in target.split("/") if part not in ("", ".")]
        if target.startswith("/") or len(os.fsencode(target)) > LONGEST:
            return False
        ups = [number for number, part in enumerate(parts) if part == ".."]
        at = list(at)
        for part in parts[: ups[-1] + 1] if ups else ():
            if part != "..":
                at.append(part)
                try:
                    os.close(opened(self.root, at))
                except (FileNotFoundError, NotADirectoryError):
                    return False
            elif at:
                at.pop()
            else:
                return False
        return True


class Files:
    """Files of the user's machine, at one place in the data folder."""

    def __init__(self, data, listed):
        self.work = os.path.join(data, ".gpucl")
        self.data, self.to, self.files = data, listed["to"], listed["files"]
        name = "files-" + hashlib.sha256(self.to.encode()).hexdigest()[:16]
        self.new, self.last = os.path.join(self.work, name + ".new"), os.path.join(self.work, name + ".json")
        self.listed = listed

    def path(self, name):
        return os.path.join(self.data, self.to, name) if name else os.path.join(self.data, self.to)

    @contextlib.contextmanager
    def place(self, name):
        """The open folder of a file, which no link of a job leads to, and its name there."""
        parts = [part for part in f"{self.to}/{name}".split("/") if part not in ("", ".")]
        top = os.open(self.data, os.O_RDONLY | os.O_DIRECTORY)
        try:
            folder = opened(top, parts[:-1])
        finally:
            os.close(top)
        try:
            yield folder, parts[-1]
        finally:
            os.close(folder)

    def state(self, entry):
        """`same`, `size` when only the size is the same, or `other`."""
        name, length, changed, mode, _ = entry
        try:
            with self.place(name) as (folder, leaf):
                found = os.stat(leaf, dir_fd=folder, follow_symlinks=False)
        except OSError:
            return "other"
        if not stat.S_ISREG(found.st_mode) or found.st_size != length:
            return "other"
        return "same" if int(found.st_mtime) == changed and found.st_mode & 0o777 == mode else "size"

    def have(self):
        return all(self.state(entry) == "same" for entry in self.files)

    def wants(self):
        for number, entry in enumerate(self.files):
            state = self.state(entry)
            if state == "other" or (state == "size" and file_sum(self.path(entry[0])) != entry[4]):
                say(f"::want {number}")
        say("::wanted")

    def take(self, archive):
        make_work(self.work)
        remove(self.new)
        os.mkdir(self.new)
        came, new = set(), os.open(self.new, FOLDER)
        for member in archive:
            # The list, which was read before.
            if not member.name.isdigit():
                continue
            number = int(member.name)
            with archive.extractfile(member) as source:
                write(member.name, source, 0o600, None, new)
            if file_sum(os.path.join(self.new, member.name)) != self.files[number][4]:
                raise Failed(f"{self.to}: a file changed while it was sent: {one_line(self.files[number][0])}")
            came.add(number)
        for number, (name, length, changed, mode, sum_) in enumerate(self.files):
            path = self.path(name)
            if number in came:
                self.make_parents(path)
                if os.path.isdir(path) and not os.path.islink(path):
                    remove(path)
                os.replace(os.path.join(self.new, str(number)), path)
            elif self.state(self.files[number]) == "other":
                raise Failed(f"{self.to}: a file is gone and was not sent: {one_line(name)}")
            if self.state(self.files[number]) != "same":
                with self.place(name) as (folder, leaf), open(leaf, "rb", opener=in_folder(folder)) as file:
                    os.fchmod(file.fileno(), mode)
                    os.utime(file.fileno(), (changed, changed))
        os.close(new)
        gone = self.remove_old()
        os.rmdir(self.new)
        with open(self.last + ".new", "w") as file:
            json.dump(self.listed, file)
        os.replace(self.last + ".new", self.last)
        say(f"{self.to}: {len(came)} of {len(self.files)} files sent" + (f", {gone} removed" if gone else ""))

    def make_parents(self, path):
        parent = self.data
        for part in os.path.relpath(os.path.dirname(path), self.data).split(os.sep):
            parent = os.path.normpath(os.path.join(parent, part))
            if os.path.islink(parent) or (os.path.lexists(parent) and not os.path.isdir(parent)):
                # A file became a folder. Nothing is written through a link.
                os.unlink(parent)
            if not os.path.lexists(parent):
                os.mkdir(parent)

    def remove_old(self):
        """Removes what an earlier delivery brought and this one does not have."""
        try:
            with open(self.last) as file:
                old = {entry[0] for entry in json.load(file)["files"]}
        except (OSError, ValueError, KeyError, TypeError):
            return 0
        gone = 0
        for name in sorted(old - {entry[0] for entry in self.files}):
            path = self.path(name)
            if ".." in name.split("/"):
                continue
            try:
                with self.place(name) as (folder, leaf):
                    os.unlink(leaf, dir_fd=folder)
                gone += 1
                while (path := os.path.dirname(path)) != self.data:
                    os.rmdir(path)
            except OSError:
                pass
        return gone


class Clone:
    """A clone of a repository, at one commit."""

    # No other protocol, no hooks of anybody's template, no question that nobody could answer.
    SAFE = ["-c", "protocol.allow=never", "-c", "protocol.https.allow=always", "-c", "protocol.ssh.allow=always"]
    SAFE += ["-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "-c", "advice.detachedHead=false"]

    def __init__(self, data, wanted):
        self.work, self.wanted, self.to = os.path.join(data, ".gpucl"), wanted, wanted["to"]
        name = "git-" + hashlib.sha256(self.to.encode()).hexdigest()[:16]
        self.new, self.old = os.path.join(self.work, name + ".new"), os.path.join(self.work, name + ".old")
        self.state, self.folder = os.path.join(self.work, name + ".state"), os.path.join(data, self.to)
        self.mark = json.dumps([wanted["url"], wanted["commit"]])

    def git(self, folder, *words, quiet=False):
        variables = {**os.environ, "GIT_TERMINAL_PROMPT": "0", "GIT_ASKPASS": "true", "GIT_LFS_SKIP_SMUDGE": "1"}
        variables.setdefault("GIT_SSH_COMMAND", "ssh -oBatchMode=yes")
        try:
            return subprocess.run(["git", *self.SAFE, "-C", folder, *words], stdin=subprocess.DEVNULL, env=variables,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT if not quiet else subprocess.DEVNULL)
        except FileNotFoundError:
            raise Failed(f"{self.to}: git is missing where jobs run") from None

    def cloned(self):
        try:
            with open(self.state) as file:
                if file.read() != self.mark:
                    return False
        except OSError:
            return False
        done = self.git(self.folder, "status", "--porcelain", "--untracked-files=no", "--ignore-submodules", quiet=True)
        return done.returncode == 0 and not done.stdout.strip()

    def clone(self):
        if os.path.lexists(self.folder) and not os.path.lexists(self.state):
            raise Failed(f"$GPUCL_DATA/{self.to} exists, and gpucl did not clone it: move it away, or use another `to`")
        make_work(self.work)
        with open(self.state, "w") as file:
            file.write("cloning")
        remove(self.old)
        remove(self.new)
        os.mkdir(self.new)
        url, commit = self.wanted["url"], self.wanted["commit"]
        done = self.git(self.new, "init", "-q", "--template=")
        for what in (["--depth", "1", url, commit], [url, "+refs/heads/*:refs/remotes/origin/*", "+refs/tags/*:refs/tags/*"]):
            # Some servers give only what a branch or tag points to.
            done = self.git(self.new, "fetch", "-q", "--no-recurse-submodules", *what)
            if done.returncode == 0:
                break
        if done.returncode == 0:
            done = self.git(self.new, "checkout", "-q", "--detach", commit)
        if done.returncode:
            said = one_line((done.stdout or b"").decode(errors="replace").replace("\n", "; "))
            raise Failed(f"{url} cannot be cloned at {commit[:12]} ({self.wanted['ref']}): {said}")
        self.git(self.new, "remote", "add", "origin", url)
        if os.path.lexists(self.folder):
            os.rename(self.folder, self.old)
        os.makedirs(os.path.dirname(self.folder), exist_ok=True)
        os.rename(self.new, self.folder)
        with open(self.state, "w") as file:
            file.write(self.mark)
        remove(self.old)
        say(f"{self.to}: {url} at {commit[:12]} ({self.wanted['ref']})")


def make_work(path):
    """Makes the folder of what is unfinished. A job may have put anything in its place."""
    if os.path.islink(path) or (os.path.lexists(path) and not os.path.isdir(path)):
        raise Failed(f"{path} is not a folder")
    os.makedirs(path, exist_ok=True)


def file_sum(path):
    sum_ = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(CHUNK):
            sum_.update(block)
    return sum_.hexdigest()


def opened(top, parts, make=False):
    """Opens a folder by its path's parts in an open one, never through a link; it is made if wanted."""
    at = os.dup(top)
    for part in parts:
        try:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=at)
            inner = os.open(part, FOLDER, dir_fd=at)
        finally:
            os.close(at)
        at = inner
    return at


def in_folder(folder):
    """How `open` opens a file in an open folder, and never through a link."""
    return lambda name, flags: os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)


def is_file(name, folder):
    """Whether there is a file, and no link, of this name in an open folder."""
    with contextlib.suppress(FileNotFoundError):
        return stat.S_ISREG(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
    return False


def write(name, source, mode, changed, folder):
    """Writes a file in an open folder, as a new one: nothing that is there is written through."""
    if is_file(name, folder):
        os.unlink(name, dir_fd=folder)
    made = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
    with open(made, "wb") as file:
        shutil.copyfileobj(source, file, CHUNK)
        file.flush()
        os.fchmod(made, mode)
        if changed is not None:
            # A time that the file system cannot store is no reason to lose the file.
            with contextlib.suppress(OSError, OverflowError, ValueError):
                os.utime(made, (changed, changed))


def is_archive(url):
    return urllib.parse.unquote(urllib.parse.urlsplit(url).path).lower().endswith(ARCHIVES)


def shown(url):
    """A URL without its query, which may be a signature."""
    return url.split("?")[0].split("#")[0]


def one_line(text):
    return "".join(letter if letter.isprintable() else "?" for letter in text.strip())[:300]


def ended(code):
    return f"exit code {code}" if code > 0 else f"signal {-code}"


def shell(command, folder):
    """Runs a shell command in a folder; its output is ours."""
    sys.stdout.flush()
    return subprocess.run(["sh", "-c", command], cwd=folder, stdin=subprocess.DEVNULL, stderr=subprocess.STDOUT).returncode


def remove(path):
    """Removes whatever is there. A folder without write permission is made writable first."""
    if os.path.islink(path) or os.path.isfile(path):
        os.unlink(path)
    elif os.path.isdir(path):
        for folder, _, _ in os.walk(path):
            os.chmod(folder, 0o700)
        shutil.rmtree(path)


def measure(folder):
    count = total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            count += 1
            total += os.lstat(os.path.join(path, name)).st_size
    return count, total


def filling(verb, data):
    one = Set(data, json.load(sys.stdin))
    guarded(one.name, data, one.new, {"fill": one.fill, "begin": one.begin, "finish": one.finish}[verb])


def taking(data):
    with tarfile.open(fileobj=sys.stdin.buffer, mode="r|") as archive:
        first = archive.next()
        files = Files(data, json.load(archive.extractfile(first)))
        guarded(files.to, data, files.new, lambda: files.take(archive))


def guarded(name, data, unfinished, work):
    try:
        work()
    except Failed as error:
        remove(unfinished)
        sys.exit(f"data: {error}")
    except OSError as error:
        # A full disk must leave room for others; what was downloaded is kept.
        remove(unfinished)
        sys.exit(f"data: {name}: {one_line(error.strerror or str(error))} ({one_line(str(error.filename or data))})")


def main():
    verb, data = sys.argv[1:]
    os.umask(0o022)
    if verb == "take":
        taking(data)
    elif verb in ("have", "wants"):
        files = Files(data, json.load(sys.stdin))
        sys.exit(not files.have()) if verb == "have" else files.wants()
    elif verb in ("clone", "cloned"):
        one = Clone(data, json.load(sys.stdin))
        sys.exit(not one.cloned()) if verb == "cloned" else guarded(one.to, data, one.new, one.clone)
    else:
        filling(verb, data)


if __name__ == "__main__":
    main()
