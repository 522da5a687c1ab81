"""Archives whose entries come in any order, unpacked by fill.py: nothing outside of the set changes.

    orders.py FILL SEED COUNT

Each archive follows from the seed and its number alone. It prints how many were tried, unpacked and refused; what failed
is printed with its entries, and the exit code is 1.
"""

import contextlib
import importlib.util
import io
import os
import random
import stat
import sys
import tarfile
import tempfile
import warnings
import zipfile

NAMES = ["a", "b", "s", "t", "A", "\u00e9", "n" * 255]
# Where archives would like to be: from the set, below DATA/.gpucl/set.new.
OUT = ["home/.ssh", "home/.ssh/id", "home", "data/other/f", "data/.gpucl/set.state", "data/.gpucl/set.new/a", ""]
KINDS = [tarfile.REGTYPE] * 4 + [tarfile.DIRTYPE] * 4 + [tarfile.SYMTYPE] * 6 + [tarfile.LNKTYPE] * 3
RARE = [tarfile.FIFOTYPE, tarfile.CHRTYPE, tarfile.CONTTYPE, tarfile.GNUTYPE_SPARSE]
MODES = [0o777, 0o644, 0o755, 0o4755, 0o1777, 0, 0o7777]


class World:
    """A data folder, and what is around it."""

    def __init__(self, root):
        self.root, self.data = root, os.path.join(root, "data")
        for folder in ("home/.ssh", "data/other", "data/.gpucl"):
            os.makedirs(os.path.join(root, folder), 0o755)
        for file in ("home/.ssh/id", "home/.bashrc", "data/other/f", "data/.gpucl/other.state"):
            with open(os.path.join(root, file), "w") as made:
                made.write(file)
        os.symlink("../home/.ssh", os.path.join(root, "data/link"))
        os.chmod(os.path.join(root, "home/.ssh"), 0o700)
        self.before = self.fingerprint()

    def fingerprint(self):
        """All around the set: kinds, modes, times, numbers of links, contents. What fill.py itself keeps is left out."""
        seen = {}
        for folder, folders, names in os.walk(self.root):
            folders[:] = [name for name in folders if os.path.join(folder, name) != os.path.join(self.data, "set")]
            for name in ["", *folders, *names]:
                path = os.path.join(folder, name)
                short = os.path.relpath(path, self.root)
                if short.startswith("data/.gpucl/set."):
                    continue
                found = os.lstat(path)
                # Our own files come and go in these.
                time = 0 if short in ("data", "data/.gpucl") else found.st_mtime_ns
                links = 0 if stat.S_ISDIR(found.st_mode) else found.st_nlink
                content = os.readlink(path) if os.path.islink(path) else None
                if stat.S_ISREG(found.st_mode):
                    with open(path, "rb") as file:
                        content = file.read()
                seen[short] = (found.st_mode, found.st_uid, time, links, content)
            if os.path.relpath(folder, self.root) == "data/.gpucl":
                folders[:] = [name for name in folders if name != "set.new"]
        return seen


def some_path(chance, names):
    parts = [chance.choice(names) for _ in range(chance.choice([1, 1, 1, 1, 2, 2, 3]))]
    if chance.random() < 0.03:
        parts.insert(chance.randrange(len(parts) + 1), chance.choice(["..", ".", "", "..", "\\", "d" * 300]))
    if chance.random() < 0.005:
        parts = ["d"] * chance.choice([120, 129, 400])
    path = "/".join(parts)
    return "/" + path if chance.random() < 0.01 else path + "/" if chance.random() < 0.05 else path


def some_target(chance, names, root):
    if chance.random() < 0.3:
        return chance.choice(names)
    ups, out = "../" * chance.randrange(5), chance.choice(OUT)
    return chance.choice([
        some_path(chance, names), ups + some_path(chance, names), ups, ups, ups + out, os.path.join(root, out), ".", "..", "", "/",
        chance.choice(names) + "/" + ups + out, chance.choice(names) + "/" + ups + out, "./" + some_path(chance, names), "x" * 5000,
    ])


def some_entries(chance, root):
    # Few names, so that entries meet; and deep ones, below which a link may go up.
    names, top = chance.sample(NAMES, 3), chance.choice(["", "", "d/", "d/e/", "d/e/f/"])
    entries = []
    for _ in range(chance.choice([1, 2, 3, 4, 5, 8])):
        kind = chance.choice(RARE if chance.random() < 0.02 else KINDS)
        entries.append((kind, top + some_path(chance, names), some_target(chance, names, root), chance.choice(MODES)))
    if chance.random() < 0.2:
        # What got out once, in any order and with something missing.
        known = [
            (tarfile.SYMTYPE, "d/e/f/t", "s/../../../home/.ssh", 0o777), (tarfile.SYMTYPE, "d/e/f/s", "../../..", 0o777),
            (tarfile.DIRTYPE, "d/e/f/t", "", 0o777), (tarfile.REGTYPE, "d/e/f/t/id", "", 0o666),
            (tarfile.LNKTYPE, "h", "d/e/f/t/id", 0o666),
        ]
        entries += [entry for entry in known if chance.random() < 0.8]
        if chance.random() < 0.5:
            chance.shuffle(entries)
    return entries


def as_tar(chance, entries):
    made = io.BytesIO()
    form = chance.choice([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
    with tarfile.open(fileobj=made, mode=chance.choice(["w", "w:gz"]), format=form) as tar:
        for kind, name, target, mode in entries:
            entry = tarfile.TarInfo(name)
            entry.type, entry.linkname, entry.mode = kind, target if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE) else "", mode
            entry.mtime = chance.choice([0, 1e9, 1e9, 2.0**40])
            if form == tarfile.PAX_FORMAT and chance.random() < 0.1:
                entry.pax_headers = {"mtime": chance.choice(["nan", "1e400", "-1e18", "x", "1.5"])}
            content = b"new" if kind in (tarfile.REGTYPE, tarfile.CONTTYPE) else b""
            entry.size = len(content)
            if chance.random() < 0.03 and kind == tarfile.REGTYPE:
                entry.name = "./"
            tar.addfile(entry, io.BytesIO(content))
    return made.getvalue()


def as_zip(chance, entries):
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", chance.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])) as archive:
        for kind, name, target, mode in entries:
            is_link = kind == tarfile.SYMTYPE
            entry = zipfile.ZipInfo(name + "/" if kind == tarfile.DIRTYPE else name)
            special = stat.S_IFLNK if is_link else chance.choice([stat.S_IFREG, stat.S_IFREG, stat.S_IFIFO, stat.S_IFCHR])
            entry.external_attr = (special | mode) << 16
            archive.writestr(entry, os.fsencode(target) if is_link else b"" if kind == tarfile.DIRTYPE else b"new")
    return made.getvalue()


def look(top):
    """What is wrong with a finished set."""
    real = os.path.realpath(top)
    for folder, folders, names in os.walk(top):
        for name in folders + names:
            path = os.path.join(folder, name)
            mode = os.lstat(path).st_mode
            if stat.S_ISLNK(mode):
                end = os.path.realpath(path)
                if end != real and not end.startswith(real + "/"):
                    return f"{path} leads to {end}"
                if os.readlink(path).startswith("/"):
                    return f"{path} is absolute"
            elif not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)) or mode & 0o7000:
                return f"{path} has the mode {mode:o}"
    return None


def attempt(fill, world, number, archive, is_zip):
    """Unpacks one archive; returns whether it was taken, and what is wrong."""
    name = "a.zip" if is_zip else "a.tar"
    one = fill.Set(world.data, {"name": "set", "digest": str(number)})
    one.begin()
    with open(one.part, "wb") as file:
        file.write(archive)
    taken, wrong = True, None
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            one.unpack(f"http://server/{name}")
    except (fill.Failed, OSError):
        taken = False
    except Exception as error:
        taken, wrong = False, f"it is not refused in one line: {error!r}"
    if taken:
        wrong = look(one.new)
        os.rename(one.new, one.folder)
        # Nothing depends on where it was unpacked.
        wrong = wrong or look(one.folder)
        fill.remove(one.folder)
    else:
        fill.remove(one.new)
    left = [path for path in (one.new, one.folder) if os.path.lexists(path)]
    changed = world.fingerprint()
    for path in sorted({*changed, *world.before}):
        if changed.get(path) != world.before.get(path):
            wrong = f"{path} changed from {world.before.get(path)} to {changed.get(path)}"
    return taken, wrong or (f"{left} are left" if left else None)


def main():
    path, seed, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    found = importlib.util.spec_from_file_location("fill", path)
    fill = importlib.util.module_from_spec(found)
    found.loader.exec_module(fill)
    warnings.simplefilter("ignore")
    os.umask(0o022)
    taken = failures = 0
    with tempfile.TemporaryDirectory() as top:
        world = None
        for number in range(count):
            if world is None:
                world = World(os.path.join(top, f"world-{number}"))
            chance = random.Random(f"{seed} {number}")
            entries = some_entries(chance, world.root)
            is_zip = chance.random() < 0.25
            archive = as_zip(chance, entries) if is_zip else as_tar(chance, entries)
            if chance.random() < 0.05:
                at = chance.randrange(len(archive))
                archive = archive[:at] + chance.randbytes(3) + archive[at + 3 :]
            was_taken, wrong = attempt(fill, world, number, archive, is_zip)
            taken += was_taken
            if wrong:
                failures += 1
                if failures <= 10:
                    print(f"archive {number} of seed {seed}: {wrong}\n    {[(kind.decode(), *rest) for kind, *rest in entries]!r}"[:2000])
                world = None
    print(f"{count} archives: {taken} unpacked, {count - taken} refused, {failures} failures")
    sys.exit(failures > 0)


main()
