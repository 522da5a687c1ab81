# Collects and prints the facts of this machine. Changes nothing, and works without any tool that may be missing.

# The values of ID and VERSION_ID in /etc/os-release, without quotes.
facts_release() {
    [ -r /etc/os-release ] || return 0
    while IFS='=' read -r name text; do
        text=${text#[\"\']}
        case $name in
            ID) fact os "${text%[\"\']}" ;;
            VERSION_ID) fact os_version "${text%[\"\']}" ;;
        esac
    done </etc/os-release
}

# Sets `found` to version and path when the command $1 is a Python that answers, and `fit` when Ray supports it.
python_of() {
    path=$(command -v "$1") || return 1
    case $path in
        # pyenv's and its like choose the interpreter, which is the one to name.
        */shims/*)
            found=$(timeout 10 "$1" -S -c 'import sys; print("%d.%d.%d" % sys.version_info[:3], sys.executable)' 2>/dev/null) ||
                return 1
            ;;
        # A fifth of the time that running a program takes. The system's own needs no limit for that.
        *)
            case $path in /usr/bin/*) found=$("$1" -V 2>/dev/null) ;; *) found=$(timeout 10 "$1" -V 2>/dev/null) ;; esac || return 1
            found=${found#Python }
            found="${found%%[!0-9.]*} $path"
            ;;
    esac
    case $found in 3.1[0-3].* | 3.[0-9].* | 3.[1-9][0-9].*) ;; *) return 1 ;; esac
    case $found in 3.1[0-3].*) fit=1 ;; esac
}

facts_python() {
    fit=
    kept=
    for name in python3 python3.13 python3.12 python3.11 python3.10; do
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

# The GPUs of a batch job: its part of those on the bus, which are those that the driver's tool may open.
facts_gpus_of_job() {
    command -v nvidia-smi >/dev/null 2>&1 || return 1
    nvidia_query pci.bus_id,pci.device_id
    # Old drivers do not know the second field.
    [ "$output_code" -ne 2 ] || nvidia_query pci.bus_id
    [ "$output_code" -eq 0 ] || return 1
    printf '%s\n' "$output" | tr 'A-Z' 'a-z' | while IFS=', ' read -r bus model; do
        # The tool's domain has eight digits, and its model is followed by the vendor's id.
        case $bus in ????????:*) bus=${bus#????} ;; *:*) ;; *) continue ;; esac
        case $model in 0x????10de) model=${model%10de} ;; 0x????) ;; *) model=0x0000 ;; esac
        fact gpu "$bus" 0x10de "$model" nvidia - -
    done
    facts_nvidia
}

facts_gpus() {
    if [ -n "${GPUCL_CPUS:-}" ] && facts_gpus_of_job; then return 0; fi
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

# Prints which firewalls systemd runs.
facts_firewalls() {
    # One word for each, in this order.
    set -- $(timeout 10 systemctl is-active firewalld ufw nftables 2>/dev/null)
    [ "${1:-}" != active ] || fact firewall firewalld
    # Its service also runs while it is off.
    if [ "${2:-}" = active ] && grep -q -s '^ENABLED=yes' /etc/ufw/ufw.conf; then fact firewall ufw; fi
    [ "${3:-}" != active ] || fact firewall nftables
}

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
    [ ! -e /var/run/reboot-required ] || fact reboot_required yes
    if [ -e /run/cloud-init/result.json ]; then fact cloud_init done; elif [ -e /run/cloud-init/status.json ]; then fact cloud_init running; fi
    [ -z "$systemd" ] || facts_firewalls
    while IFS=: read -r name _ gid _; do
        case $name in video | render) fact group "$name $gid" ;; esac
    done </etc/group
    for file in /etc/cdi/*.yaml /etc/cdi/*.json /var/run/cdi/*.yaml /var/run/cdi/*.json; do
        [ ! -e "$file" ] || fact cdi "$file"
    done
    facts_secure_boot
    facts_network
}

# The sockets that listen, and the machine's addresses, in the kernel's own format; parsed by the caller.
facts_network() {
    set --
    for file in /proc/net/tcp /proc/net/tcp6 /proc/net/fib_trie; do
        [ ! -r "$file" ] || set -- "$@" "$file"
    done
    listening= addresses=
    while read -r kind text; do
        case $kind in
            listens) listening="$listening$text " ;;
            address) addresses="$addresses$text " ;;
        esac
    done <<FOUND
$(awk 'FILENAME ~ /tcp/ { if ($4 == "0A" && !listed[$2]++) print "listens", $2; next }
       /\/32 host LOCAL/ { if (!listed[last]++) print "address", last } { last = $2 }' "$@" 2>/dev/null)
FOUND
    fact listening "$listening"
    fact addresses "$addresses"
}

# The free KiB below the home folder, /var/lib and /dev/shm, and all that the last one can have.
facts_space() {
    place=$home
    until [ -e "$place" ] || [ -z "$place" ]; do place=${place%/*}; done
    set -- "${place:-/}" /var/lib
    [ ! -d /dev/shm ] || set -- "$@" /dev/shm
    number=0
    while read -r _ size _ room _; do
        number=$((number + 1))
        case $number in
            2) fact disk_free "$room" ;;
            3) fact lib_free "$room" ;;
            4) fact shm_free "$room"; fact shm_size "$size" ;;
        esac
    done <<FOUND
$(df -Pk "$@" 2>/dev/null)
FOUND
}

facts() {
    # A glance needs to know only whether the machine was rebooted, and nothing that takes time.
    if [ -n "${brief:-}" ]; then
        fact boot_id "$boot"
        say facts-end
        return 0
    fi
    facts_release
    read -r kernel </proc/sys/kernel/osrelease
    fact kernel "$kernel"
    { read -r arch </proc/sys/kernel/arch; } 2>/dev/null || arch=$(uname -m)
    fact arch "$arch"
    fact boot_id "$boot"
    facts_who
    facts_capacity '' "$who"
    facts_space
    facts_python
    if command -v uv >/dev/null 2>&1; then fact uv "$(timeout 10 uv --version 2>/dev/null)"; fi
    facts_engine
    facts_gpus
    facts_system
    say facts-end
}
