"""Holds memory of the first visible GPU, through the driver's own library: MIB, or `all` that is free.

    python3 cuda.py 256     prints `holds MIB`, and keeps it until it is ended
"""

import ctypes
import sys
import time


class Held:
    """Memory of the first visible GPU, held as long as this process lives."""

    def __init__(self, mib):
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.call("cuInit", ctypes.c_uint(0))
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(0))
        self.call("cuCtxCreate_v2", ctypes.byref(context), ctypes.c_uint(0), device)
        self.mib, self.parts = 0, []
        if mib != "all":
            self.take(int(mib))
            return
        for size in (4096, 256, 16, 1):
            while self.take(size, may_fail=True):
                pass

    def call(self, name, *arguments):
        code = getattr(self.cuda, name)(*arguments)
        assert code == 0, f"{name}: error {code}"

    def take(self, mib, may_fail=False):
        part = ctypes.c_uint64()
        code = self.cuda.cuMemAlloc_v2(ctypes.byref(part), ctypes.c_size_t(mib << 20))
        assert code == 0 or may_fail, f"cuMemAlloc: error {code}"
        if code == 0:
            self.parts.append((part, mib << 20))
            self.mib += mib
        return code == 0

    def write(self, seconds):
        """Keeps the GPU busy."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            for part, size in self.parts[:1]:
                for _ in range(20):
                    self.call("cuMemsetD8_v2", part, ctypes.c_ubyte(1), ctypes.c_size_t(size))
            self.call("cuCtxSynchronize")


if __name__ == "__main__":
    held = Held(sys.argv[1])
    print(f"holds {held.mib}", flush=True)
    while True:
        time.sleep(60)
