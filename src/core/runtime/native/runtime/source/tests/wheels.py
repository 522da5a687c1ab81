"""Makes the wheels of a site for tests: python3 wheels.py FOLDER NAME=VERSION[:REQUIREMENT,...] ...

A requirement may have an extra: `lib;train`. The wheel `ray` has the modules that an environment is checked by.
"""

import os
import sys
import zipfile

folder, wheels = sys.argv[1], sys.argv[2:]
os.makedirs(folder, exist_ok=True)
for wheel in wheels:
    name, _, rest = wheel.partition("=")
    version, _, needs = rest.partition(":")
    needs = [need.partition(";") for need in needs.split(",") if need]
    extras = sorted({extra for _, _, extra in needs if extra})
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    lines += [f"Provides-Extra: {extra}" for extra in extras]
    lines += [f'Requires-Dist: {need}; extra == "{extra}"' if extra else f"Requires-Dist: {need}" for need, _, extra in needs]
    files = {f"{name}/__init__.py": f"__version__ = {version!r}\n\n\ndef main():\n    print({version!r})\n"}
    if name == "ray":
        files.update({"grpc.py": "", "aiohttp.py": ""})
    info = f"{name}-{version}.dist-info"
    files[f"{info}/METADATA"] = "\n".join(lines) + "\n"
    files[f"{info}/WHEEL"] = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files[f"{info}/entry_points.txt"] = f"[console_scripts]\n{name} = {name}:main\n"
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(os.path.join(folder, f"{name}-{version}-py3-none-any.whl"), "w") as file:
        for path, text in files.items():
            file.writestr(path, text)
