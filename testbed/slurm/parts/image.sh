# image.sh: the image of all machines, and the stand-ins of NVIDIA's programs as a job sees them.
# shellcheck shell=bash

IMAGE=$NETWORK/node:$RAY-$(digest "$SYSTEM" "$(cd "$SLURM/files" && find image.sh avail_wheels modules -type f | sort | xargs sha256sum)" 1)

image() {
  has_image "$IMAGE" && return 0
  system_root
  bake_on_system "$IMAGE" "$SYSTEM" "RAY=$RAY bash /files/image.sh" -v "$SLURM/files:/files:ro" -- 'CMD ["/usr/local/sbin/slurm-init"]'
}

# The programs of testbed/hosts, linked so that a device that the job may not open does not exist.
standin_programs() {
  local key to=$CACHE/slurm/standin; key=$(files_digest "$HERE"/standin/{standin.h,nvidia-smi.c,libcuda.c} "$SLURM/files/allowed.c")
  [ "$(cat "$to/key" 2>/dev/null)" != "$key" ] || return 0
  mkdir -p "$to"
  gcc -O2 -Wall -static -Wl,--wrap=stat -o "$to/nvidia-smi" "$HERE/standin/nvidia-smi.c" "$SLURM/files/allowed.c"
  gcc -O2 -Wall -shared -fPIC -Wl,--wrap=stat -Wl,-soname,libcuda.so.1 -o "$to/libcuda.so.1" "$HERE/standin/libcuda.c" "$SLURM/files/allowed.c"
  echo "$key" >"$to/key"
}
