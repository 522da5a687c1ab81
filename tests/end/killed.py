"""Runs the guard in a hurry, and kills it right after its n-th effect: a request that changes something, a file that is
replaced or renamed, a command of Ray. Each effect is a line in the file of effects.

    python3 killed.py GUARD N EFFECTS VERB HOME
"""

import os
import signal
import sys
import threading

program, last, effects = sys.argv[1], int(sys.argv[2]), sys.argv[3]
sys.path.insert(0, os.path.dirname(program))

import cluster
import guard
import record
import s3
import saving

count, lock, out = [0], threading.Lock(), os.open(effects, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def after(where, name, is_one=lambda *_: True):
    """Counts the calls of a function that has an effect."""
    whole = getattr(where, name)

    def wrapped(*arguments, **named):
        done = whole(*arguments, **named)
        if is_one(*arguments):
            with lock:
                count[0] += 1
                os.write(out, ("%s\n" % name).encode())
                if count[0] == last:
                    os.kill(os.getpid(), signal.SIGKILL)
        return done

    setattr(where, name, wrapped)


after(record, "write_json")
saving.write_json = record.write_json
after(s3.Store, "once", lambda _, method, *rest: method not in ("GET", "HEAD"))
after(saving.Manifest, "note")
after(os, "rename")
after(os, "unlink")
after(cluster.Ray, "drain")
after(cluster.Ray, "stop")
guard.TICK_S = guard.RAY_S = 0.05
saving.APART_S, saving.VERIFY_EVERY_S = 0.1, 0.2
sys.argv = [program] + sys.argv[4:]
guard.main()
