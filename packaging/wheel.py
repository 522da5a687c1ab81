"""Packs a built program as maturin packs it, for `packaging/build --program`. The wheels of a release are maturin's own.

usage: packaging/wheel.py VERSION TAGS PROGRAM SHARE SOURCE TO [SBOM]
       packaging/wheel.py compare WHEEL OTHER

TAGS are the platforms, with dots between them; SBOM is a file. `compare` fails where two wheels have different files,
permissions or contents. The maker's name, and with it WHEEL's hash, may differ.
"""

import base64
import hashlib
import os
import pathlib
import re
import sys
import time
import zipfile


def metadata(version: str, source: pathlib.Path) -> str:
    # `tomllib` is of Python 3.11.
    values = dict(re.findall(r'^([a-z-]+) = "(.*)"$', (source / "pyproject.toml").read_text(), re.M))
    fields = [
        ("Metadata-Version", "2.4"),
        ("Name", values["name"]),
        ("Version", version),
        ("License-File", "LICENSE-APACHE"),
        ("License-File", "LICENSE-MIT"),
        ("Summary", values["description"]),
        ("License-Expression", values["license"]),
        ("Requires-Python", values["requires-python"]),
        ("Description-Content-Type", "text/markdown; charset=UTF-8; variant=GFM"),
    ]
    return "".join(f"{name}: {value}\n" for name, value in fields) + "\n" + (source / "README.md").read_text() + "\n"


def pack(version: str, tags: str, program: str, share: str, source: str, to: str, sbom: str = "") -> None:
    tree, home, information = pathlib.Path(share), pathlib.Path(source), f"gpucl-{version}.dist-info"
    lines = ["Wheel-Version: 1.0", "Generator: packaging/wheel.py", "Root-Is-Purelib: false"]
    lines += [f"Tag: py3-none-{tag}" for tag in tags.split(".")]
    files = {
        f"gpucl-{version}.data/data/share/{path.relative_to(tree).as_posix()}": path.read_bytes()
        for path in sorted(tree.rglob("*"))
        if path.is_file()
    }
    script = f"gpucl-{version}.data/scripts/gpucl"
    files[script] = pathlib.Path(program).read_bytes()
    files[f"{information}/METADATA"] = metadata(version, home).encode()
    files[f"{information}/WHEEL"] = ("\n".join(lines) + "\n").encode()
    for name in ("LICENSE-APACHE", "LICENSE-MIT"):
        files[f"{information}/licenses/{name}"] = (home / name).read_bytes()
    if sbom:
        files[f"{information}/sboms/gpucl.cyclonedx.json"] = pathlib.Path(sbom).read_bytes()
    record = "".join(
        f"{name},sha256={base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip('=')},{len(data)}\n"
        for name, data in files.items()
    )
    files[f"{information}/RECORD"] = (record + f"{information}/RECORD,,\n").encode()
    made = time.gmtime(int(os.environ["SOURCE_DATE_EPOCH"]))[:6]
    with zipfile.ZipFile(pathlib.Path(to) / f"gpucl-{version}-py3-none-{tags}.whl", "w") as wheel:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, made)
            entry.external_attr = (0o100755 if name == script else 0o100644) << 16
            wheel.writestr(entry, data, zipfile.ZIP_DEFLATED, 1)


def contents(path: str) -> dict[str, tuple[int, bytes]]:
    with zipfile.ZipFile(path) as wheel:
        found = {entry.filename: (entry.external_attr >> 16, wheel.read(entry)) for entry in wheel.infolist()}
    for name, (mode, data) in found.items():
        if name.endswith(".dist-info/WHEEL"):
            data = re.sub(rb"(?m)^Generator: .*$", b"", data)
        elif name.endswith(".dist-info/RECORD"):
            data = b"\n".join(sorted(re.sub(rb"(/WHEEL),.*", rb"\1", line) for line in data.splitlines()))
        found[name] = (mode, data)
    return found


def compare(one: str, other: str) -> None:
    left, right = contents(one), contents(other)
    different = sorted(name for name in left.keys() | right.keys() if left.get(name) != right.get(name))
    if different:
        sys.exit(f"{one} and {other} differ in: {', '.join(different)}")


if sys.argv[1] == "compare":
    compare(*sys.argv[2:])
else:
    pack(*sys.argv[1:])
