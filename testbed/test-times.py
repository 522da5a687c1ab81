#!/usr/bin/env python3
"""Passes on the output of tests that run one at a time, and adds after each test how long it took.

The same lines, "SECONDS s  NAME", are added to the file that the argument names.
"""

import re
import sys
import time

BEGINNING = re.compile(r"test (\S+) \.\.\. ")


def main() -> None:
    name, began = None, time.monotonic()
    with open(sys.argv[1], "a", encoding="utf-8") as times:

        def ended() -> None:
            if name:
                line = f"{time.monotonic() - began:5.0f} s  {name}\n"
                times.write(line)
                sys.stdout.write(line)

        for line in sys.stdin:
            beginning = BEGINNING.match(line)
            if beginning or line.startswith(("failures:", "test result:")):
                ended()
                name, began = beginning and beginning[1], time.monotonic()
            sys.stdout.write(line)
            sys.stdout.flush()


main()
