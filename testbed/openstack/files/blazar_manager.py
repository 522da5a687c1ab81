"""Blazar's manager, unchanged except for its polling interval for due events, a constant of ten seconds in its code.

Leases begin and end at the first poll after their time, so each test waits for half of that, several times.
"""

import os
import sys

from blazar.cmd.manager import main
from blazar.manager import service

service.EVENT_INTERVAL = float(os.environ.get("GPUCL_OPENSTACK_TICK", "2"))
sys.exit(main())
