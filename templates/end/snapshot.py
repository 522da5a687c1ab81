"""Copies an SQLite database as it is at one moment, although others write to it.

    snapshot.py FOLDER DEVICE INODE NAME TO MOST

FOLDER is the number of an open folder, NAME a file in it with this device and inode, and TO a file that is made, of at most
MOST bytes. It exits with 0, with 3 where the file can only be copied as it is, and with 4 where not even that is right; why
is in its output.

The file is somebody else's: it is opened for reading alone, in a process of its own with limits and without the keys of the
guard, none of its SQL is run, and what is opened is compared with what the guard has seen. Standard library only.
"""

import os
import resource
import sys
import urllib.parse

# How long another program may hold the database, in seconds.
LOCKED_S = 2
# Processor time in seconds, and memory in bytes.
PROCESSOR_S, MEMORY = 600, 1 << 30
AS_IT_IS, NOT_NOW = 3, 4
# How a journal ends that names another file, which SQLite would look into and remove.
NAMES_ANOTHER = bytes.fromhex("d9d505f920a163d7")
BLOCK = 1 << 20


def is_open(device, inode):
    """Whether this process has that file open."""
    for number in os.listdir("/proc/self/fd"):
        try:
            seen = os.stat("/proc/self/fd/" + number)
        except OSError:
            continue
        # The folder is open, and no file of a database is among the first three.
        if int(number) > 2 and (seen.st_dev, seen.st_ino) == (device, inode):
            return True
    return False


def copied(name, to):
    """Copies a file as it is; returns the device and inode, its end, and whether it stayed the same meanwhile."""
    with open(os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as given, open(to, "wb") as copy:
        before, end = os.fstat(given.fileno()), b""
        while True:
            block = given.read(BLOCK)
            if not block:
                break
            copy.write(block)
            end = (end + block)[-8:]
        after = os.fstat(given.fileno())
    same = (before.st_size, before.st_mtime_ns, before.st_ctime_ns) == (after.st_size, after.st_mtime_ns, after.st_ctime_ns)
    return (before.st_dev, before.st_ino), end, same


def mended(name, to, wanted):
    """Has SQLite take back a change whose writer died, in a copy of the database and its journal; returns whether it could."""
    import sqlite3
    which, _, same = copied(name, to)
    _, end, journal_same = copied(name + "-journal", to + "-journal")
    if which != wanted or not (same and journal_same) or end == NAMES_ANOTHER:
        return False
    copy = sqlite3.connect(to, isolation_level=None)
    copy.execute("PRAGMA schema_version").fetchone()
    copy.close()
    return not os.path.exists(to + "-journal")


def main():
    """Copies."""
    folder, device, inode, name, to, most = sys.argv[1:7]
    os.fchdir(int(folder))
    try:
        import sqlite3
    except ImportError:
        print("the Python of this host has no module sqlite3")
        return NOT_NOW
    for what, limit in ((resource.RLIMIT_FSIZE, int(most)), (resource.RLIMIT_CPU, PROCESSOR_S), (resource.RLIMIT_AS, MEMORY),
                        (resource.RLIMIT_CORE, 0)):
        resource.setrlimit(what, (limit, limit))
    try:
        given = sqlite3.connect("file:%s?mode=ro" % urllib.parse.quote(name), uri=True, timeout=LOCKED_S, isolation_level=None)
        if not hasattr(given, "backup"):
            print("the Python of this host is older than 3.7")
            return NOT_NOW
        if not is_open(int(device), int(inode)):
            print("it was replaced meanwhile")
            return NOT_NOW
        # Others write on after this, and it does not see it.
        given.execute("BEGIN")
        given.execute("PRAGMA schema_version").fetchone()
        copy = sqlite3.connect(to, isolation_level=None)
        copy.execute("PRAGMA journal_mode = OFF")
        copy.execute("PRAGMA synchronous = OFF")
        given.backup(copy)
        copy.close()
    except (sqlite3.Error, MemoryError) as error:
        print(str(error) or type(error).__name__)
        # No database, or a damaged one.
        if any(part in str(error) for part in ("not a database", "malformed")):
            return AS_IT_IS
        if "readonly" not in str(error) or os.path.lexists(name + "-wal"):
            return NOT_NOW
        try:
            return 0 if mended(name, to, (int(device), int(inode))) else NOT_NOW
        except (sqlite3.Error, OSError) as another:
            print(another)
            return NOT_NOW
    return 0


if __name__ == "__main__":
    sys.exit(main())
