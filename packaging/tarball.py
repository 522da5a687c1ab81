"""Packs a folder, under its name, as a .tar.gz whose bytes depend on nothing but what is in it and SOURCE_DATE_EPOCH.

usage: packaging/tarball.py FOLDER FILE LEVEL     (LEVEL: how much it is compressed, 1 to 9)
"""

import gzip
import os
import pathlib
import sys
import tarfile


def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = "root"
    entry.mtime = int(os.environ["SOURCE_DATE_EPOCH"])
    entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
    return entry


folder, file = map(pathlib.Path, sys.argv[1:3])
with open(file, "wb") as raw, gzip.GzipFile("", "wb", int(sys.argv[3]), raw, mtime=0) as packed:
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        for path in [folder, *sorted(folder.rglob("*"))]:
            tar.add(path, str(path.relative_to(folder.parent)), recursive=False, filter=plain)
