#!/usr/bin/env python3
"""Passes on the output of tests that run one at a time, and adds after each test how long it took.

The same lines, "SECONDS s  NAME", are added to the file that the argument names. The name of a test comes with the first
line that it prints, so that only ends tell the time.
"""

import re
import sys
import time

TEST = re.compile(r"test (\S+) \.\.\. (.*)")
RESULTS = ("ok", "FAILED")


def main() -> None:
    name, last = None, time.monotonic()
    with open(sys.argv[1], "a", encoding="utf-8") as times:
        for line in sys.stdin:
            sys.stdout.write(line)
            test = TEST.match(line)
            result = line.rstrip("\n")
            if test:
                name, result = test[1], test[2]
            if name and result in RESULTS:
                took = f"{time.monotonic() - last:5.0f} s  {name}\n"
                sys.stdout.write(took)
                times.write(took)
                name, last = None, time.monotonic()
            sys.stdout.flush()


main()
