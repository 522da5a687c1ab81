"""gpucl_compute: nova-compute with node ids that a restart keeps. The fake driver draws new ones in each process, and Nova then refuses to
start a second time."""
import sys
import uuid
import nova.cmd  # noqa: F401  (it patches the standard library, before anything else is imported)
from oslo_utils import fixture


class Fixed(object):
    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return str(uuid.uuid5(uuid.NAMESPACE_DNS, name))


fixture.uuidsentinel = Fixed()
from nova.cmd.compute import main  # noqa: E402

sys.argv[0] = "nova-compute"
main()
