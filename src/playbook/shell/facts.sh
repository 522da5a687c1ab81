# Collects and prints the facts of this machine. Changes nothing, and works without any tool that may be missing.

fact() { say fact "$@"; }

# The value of $1 in /etc/os-release, without quotes.
release() { sed -n "s/^$1=//p" /etc/os-release 2>/dev/null | tr -d '"' | head -n 1; }

# The free KiB of the file system that path $1 is on, or will be on.
free_of() {
    place=$1
    until [ -e "$place" ] || [ -z "$place" ]; do place=${place%/*}; done
    df -Pk "${place:-/}" 2>/dev/null | awk 'END { print $4 }'
}

# Sets `found` to version and path when the command $1 is a working Python, and `fit` when Ray supports it.
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

# Asks nvidia-smi for the fields $1; sets `output`, one line per GPU, and `output_code`. It prints errors on stdout.
nvidia_query() {
    # It hangs on a sick GPU.
    output=$(timeout 20 nvidia-smi "--query-gpu=$1" --format=csv,noheader,nounits 2>/dev/null </dev/null)
    output_code=$?
}

facts_nvidia() {
    if [ -r /proc/driver/nvidia/version ]; then
        fact nvidia_loaded "$(head -n 1 /proc/driver/nvidia/version)"
    elif [ -r /sys/module/nvidia/version ]; then
        fact nvidia_loaded "$(cat /sys/module/nvidia/version)"
    fi
    if command -v modinfo >/dev/null 2>&1; then fact nvidia_on_disk "$(modinfo -F version nvidia 2>/dev/null | head -n 1)"; fi
    command -v nvidia-smi >/dev/null 2>&1 || return 0
    nvidia_query pci.bus_id,uuid,name,memory.total,driver_version,mig.mode.current
    # Old drivers do not know the last field.
    [ "$output_code" -ne 2 ] || nvidia_query pci.bus_id,uuid,name,memory.total,driver_version
    [ -z "$output" ] || printf '%s\n' "$output" | while read -r line; do fact nvidia "$line"; done
    [ "$output_code" -eq 0 ] || fact nvidia_error "$output_code" "$(printf '%s\n' "$output" | head -n 1)"
}

# Names of AMD products. Their tools wait for a missing driver, so they are asked only when it is loaded.
facts_amd() {
    [ -e /dev/kfd ] || return 0
    for tool in rocm-smi /opt/rocm/bin/rocm-smi /opt/rocm/core-*/bin/rocm-smi; do
        command -v "$tool" >/dev/null 2>&1 || continue
        fact amd "$(timeout 20 "$tool" --showproductname --showuniqueid --showbus --json 2>/dev/null </dev/null | tr -d '\r\n')"
        return 0
    done
    for tool in amd-smi /opt/rocm/bin/amd-smi /opt/rocm/core-*/bin/amd-smi; do
        command -v "$tool" >/dev/null 2>&1 || continue
        fact amd "$(timeout 20 "$tool" static --asic --bus --json 2>/dev/null </dev/null | tr -d '\r\n')"
        return 0
    done
}

facts_gpus() {
    nvidia=
    amd=
    switches=0
    for device in /sys/bus/pci/devices/*; do
        [ -r "$device/class" ] || continue
        read -r class <"$device/class"
        case $class in 0x0300* | 0x0302* | 0x0380* | 0x1200* | 0x0680*) ;; *) continue ;; esac
        read -r vendor <"$device/vendor"
        case $vendor-$class in
            0x10de-0x0680*) switches=$((switches + 1)); continue ;;
            *-0x0680*) continue ;;
            0x10de-*) nvidia=1 ;;
            0x1002-*) amd=1 ;;
            *) continue ;;
        esac
        read -r model <"$device/device"
        driver=-
        [ ! -e "$device/driver" ] || driver=$(basename "$(readlink "$device/driver")")
        render=-
        for node in "$device"/drm/renderD*; do
            [ ! -e "$node" ] || render=${node##*/}
        done
        unique=-
        { read -r unique <"$device/unique_id"; } 2>/dev/null
        fact gpu "${device##*/}" "$vendor" "$model" "$driver" "$render" "${unique:--}"
    done
    [ "$switches" -eq 0 ] || fact nvswitches "$switches"
    if [ -n "$nvidia" ] || command -v nvidia-smi >/dev/null 2>&1; then facts_nvidia; fi
    [ -z "$amd" ] || facts_amd
}

facts_engine() {
    command -v docker >/dev/null 2>&1 || return 0
    # The client's version, which needs no running engine.
    fact docker "$(timeout 10 docker --version 2>/dev/null)"
    fact compose "$(timeout 10 docker compose version --short 2>/dev/null)"
    # Without this socket the client may ask a remote engine.
    [ -S /var/run/docker.sock ] || return 0
    fact docker_engine "$(DOCKER_HOST=unix:///var/run/docker.sock timeout 10 docker version --format '{{.Server.Version}}' 2>/dev/null)"
    DOCKER_HOST=unix:///var/run/docker.sock timeout 10 docker ps --format '{{.Names}} {{.Label "gpucl.tag"}}' 2>/dev/null |
        while read -r name tag; do [ -n "$tag" ] || fact stranger "$name"; done
}

is_active() { [ -n "$systemd" ] && timeout 10 systemctl is-active --quiet "$1" 2>/dev/null; }

facts_secure_boot() {
    if command -v mokutil >/dev/null 2>&1; then
        case $(timeout 10 mokutil --sb-state 2>/dev/null) in *'SecureBoot enabled'*) fact secure_boot yes ;; esac
        return 0
    fi
    for file in /sys/firmware/efi/efivars/SecureBoot-*; do
        [ -r "$file" ] || continue
        case $(od -An -t u1 "$file" 2>/dev/null) in *' 1') fact secure_boot yes ;; esac
    done
}

facts_system() {
    systemd=
    [ ! -d /run/systemd/system ] || { systemd=1; fact systemd yes; }
    [ -z "${SUDO_USER:-}" ] || fact sudo_user "$SUDO_USER"
    [ ! -e /var/run/reboot-required ] || fact reboot_required yes
    if [ -e /run/cloud-init/result.json ]; then fact cloud_init done; elif [ -e /run/cloud-init/status.json ]; then fact cloud_init running; fi
    ! is_active firewalld || fact firewall firewalld
    if grep -q -s '^ENABLED=yes' /etc/ufw/ufw.conf && is_active ufw; then fact firewall ufw; fi
    ! is_active nftables || fact firewall nftables
    sed -n 's/^\(video\|render\):[^:]*:\([0-9]*\):.*/\1 \2/p' /etc/group 2>/dev/null | while read -r line; do fact group "$line"; done
    for file in /etc/cdi/*.yaml /etc/cdi/*.json /var/run/cdi/*.yaml /var/run/cdi/*.json; do
        [ ! -e "$file" ] || fact cdi "$file"
    done
    facts_secure_boot
    # In the kernel's own format; parsed by the caller.
    fact listening "$(awk '$4 == "0A" { print $2 }' /proc/net/tcp /proc/net/tcp6 2>/dev/null | sort -u | tr '\n' ' ')"
    fact addresses "$(awk '/\/32 host LOCAL/ { print last } { last = $2 }' /proc/net/fib_trie 2>/dev/null | sort -u | tr '\n' ' ')"
}

facts() {
    # A glance needs to know only whether the machine was rebooted, and nothing that takes time.
    if [ -n "${brief:-}" ]; then
        fact boot_id "$boot"
        say facts-end
        return 0
    fi
    fact os "$(release ID)"
    fact os_version "$(release VERSION_ID)"
    fact kernel "$(uname -r)"
    fact arch "$(uname -m)"
    fact boot_id "$boot"
    fact cpus "$(getconf _NPROCESSORS_ONLN 2>/dev/null || nproc)"
    fact memory "$(sed -n 's/^MemTotal: *\([0-9]*\) kB$/\1/p' /proc/meminfo)"
    fact user "$(id -un 2>/dev/null || id -u)"
    fact disk_free "$(free_of "$home")"
    fact lib_free "$(free_of /var/lib)"
    fact shm_free "$(df -Pk /dev/shm 2>/dev/null | awk 'END { print $4 }')"
    facts_python
    if command -v uv >/dev/null 2>&1; then fact uv "$(timeout 10 uv --version 2>/dev/null)"; fi
    facts_engine
    facts_gpus
    facts_system
    say facts-end
}
