# What steps about NVIDIA's driver share: read with `. ./lib/nvidia.sh`, in the host's folder.

# Prints the device ids of NVIDIA's GPUs on the bus, one a line.
nvidia_ids() {
    for device in /sys/bus/pci/devices/*; do
        [ -r "$device/class" ] || continue
        case $(cat "$device/vendor")-$(cat "$device/class") in
            0x10de-0x0300* | 0x10de-0x0302* | 0x10de-0x0380*) cat "$device/device" ;;
        esac
    done
}

nvidia_count() { nvidia_ids | wc -l; }

nvidia_switches() {
    for device in /sys/bus/pci/devices/*; do
        [ ! -r "$device/class" ] || echo "$(cat "$device/vendor")-$(cat "$device/class")"
    done | grep -c '^0x10de-0x0680'
}

# The driver drives every GPU that is on the bus. nvidia-smi hangs on a sick one.
nvidia_works() {
    seen=$(timeout 30 nvidia-smi -L 2>/dev/null </dev/null | grep -c '^GPU [0-9]*:') || :
    [ "${seen:-0}" -gt 0 ] && [ "$seen" -ge "$(nvidia_count)" ]
}

# A driver is on the disk, from wherever: another one must not be put over it.
nvidia_on_disk() {
    modinfo nvidia >/dev/null 2>&1 ||
        dpkg-query -W -f '${db:Status-Status} ${Package}\n' 2>/dev/null |
        grep -q '^installed \(nvidia-headless-\|nvidia-driver-\|nvidia-dkms-\|nvidia-kernel-\|nvidia-open\|cuda-drivers\|linux-modules-nvidia-\)'
}

nvidia_uuids() { timeout 30 nvidia-smi --query-gpu=uuid --format=csv,noheader 2>/dev/null </dev/null | grep '^GPU-'; }

nvidia_version() { timeout 30 nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null </dev/null | head -n 1; }

# Every GPU can be given to a container by its UUID.
nvidia_cdi_tells() {
    any=
    for uuid in $(nvidia_uuids); do
        any=1
        grep -q -s -r -F "$uuid" /etc/cdi /var/run/cdi || return 1
    done
    [ -n "$any" ]
}
