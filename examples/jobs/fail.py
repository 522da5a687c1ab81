"""Fails with an exit status of its own: `gpucl job submit` ends with the same one."""

import sys

print("this job fails on purpose")
sys.exit(3)
