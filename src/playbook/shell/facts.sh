# Learns what this machine is, and says it as facts. Nothing here changes anything.

fact() { say fact "$@"; }

# What follows the = in line $1 of /etc/os-release, without quotes.
release() { sed -n "s/^$1=//p" /etc/os-release 2>/dev/null | tr -d '"' | head -n 1; }

# Sets `fit` when the command $1 is a Python that runs, and says what it is.
python_of() {
    found=$(timeout 10 "$1" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3], sys.executable)' 2>/dev/null) || return 1
    case $found in 3.1[0-3].* | 3.[0-9].* | 3.[1-9][0-9].*) ;; *) return 1 ;; esac
    case $found in 3.1[0-3].*) fit=1 ;; esac
}

facts_python() {
    fit=
    kept=
    for name in python3 python3.13 python3.12 python3.11 python3.10; do
        command -v "$name" >/dev/null 2>&1 || continue
        python_of "$name" || continue
        [ -n "$kept" ] || kept=$found
        [ -z "$fit" ] || { kept=$found; break; }
    done
    [ -z "$kept" ] || fact python "$kept"
}

facts_gpus() {
    for device in /sys/bus/pci/devices/*; do
        [ -r "$device/class" ] || continue
        read -r class <"$device/class"
        case $class in 0x0300* | 0x0302* | 0x0380* | 0x1200*) ;; *) continue ;; esac
        read -r vendor <"$device/vendor"
        case $vendor in 0x10de | 0x1002) ;; *) continue ;; esac
        read -r model <"$device/device"
        driver=-
        [ ! -e "$device/driver" ] || driver=$(basename "$(readlink "$device/driver")")
        fact gpu "${device##*/}" "$vendor" "$model" "$driver"
    done
    command -v nvidia-smi >/dev/null 2>&1 || return 0
    # It hangs on a sick GPU.
    timeout 10 nvidia-smi --query-gpu=pci.bus_id,uuid,name --format=csv,noheader,nounits 2>/dev/null |
        while read -r line; do fact nvidia "$line"; done
}

facts() {
    fact os "$(release ID)"
    fact os_version "$(release VERSION_ID)"
    fact kernel "$(uname -r)"
    fact arch "$(uname -m)"
    fact boot_id "$boot"
    fact cpus "$(getconf _NPROCESSORS_ONLN 2>/dev/null || nproc)"
    fact memory "$(sed -n 's/^MemTotal: *\([0-9]*\) kB$/\1/p' /proc/meminfo)"
    fact user "$(id -un 2>/dev/null || id -u)"
    fact disk_free "$(df -Pk "$home" 2>/dev/null | awk 'END { print $4 }')"
    fact shm_free "$(df -Pk /dev/shm 2>/dev/null | awk 'END { print $4 }')"
    facts_python
    if command -v uv >/dev/null 2>&1; then fact uv "$(timeout 10 uv --version 2>/dev/null)"; fi
    # The client's own version: asking the engine would need it to run.
    if command -v docker >/dev/null 2>&1; then fact docker "$(timeout 10 docker --version 2>/dev/null)"; fi
    facts_gpus
    say facts-end
}
