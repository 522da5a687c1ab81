"""Blazar's manager as it is, but for how often it looks for what is due: a constant of its code, ten seconds.

Leases begin and end at the first look after their time, so each test waits for half of it, several times.
"""

import os
import sys

from blazar.cmd.manager import main
from blazar.manager import service

service.EVENT_INTERVAL = float(os.environ.get("GPUCL_OPENSTACK_TICK", "2"))
sys.exit(main())
