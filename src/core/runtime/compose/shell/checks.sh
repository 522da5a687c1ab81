# Checks everything that this host runs. Prints one line per check; changes nothing.
dir=$(mktemp -d) || exit 0

# Makes text safe for a JSON string.
plain() { tr -d '"\\' | tr -c '[:print:]' ' ' | cut -c 1-400; }

# Prints a failed check: check name, target, text.
failed() { printf '::check {"check": "%s", "target": "%s", "ok": false, "saw": "%s"}\n' "$1" "$2" "$3"; }

# Prints what the check $check of $target found; its program ended with exit code $1. If that is not 0, some results may be
# missing.
results() {
    grep -a '^::check ' "$dir/$target-$check" && [ "$1" -eq 0 ] && return 0
    why=$(tail -n 2 "$dir/$target-$check.err" | plain)
    why="the check ended with exit code $1${why:+: $why}"
    [ "$1" -ne 124 ] || why="no answer within $limit s"
    failed "$check" "$target" "$why"
}

# Runs a check in a container: check name, target, seconds, container, command. Stdin is passed on. Workers that were
# stopped by hand, which the caller names in $stopped, are left out.
in_container() {
    check=$1 target=$2 limit=$3 container=$4
    shift 4
    case " ${stopped:-} " in *" $target "*) return 0 ;; esac
    timeout "$limit" docker exec -i --env "GPUCL_STOPPED=${stopped:-}" "$container" "$@" >"$dir/$target-$check" 2>"$dir/$target-$check.err"
    results $?
}

# Runs the client's check: the containers that it depends on, then what `in_container` takes. It joins Ray and runs a
# task on each worker, which keeps every processor busy for seconds. Where $recent is set and it passed within that many
# seconds, and none of the containers was started since, that result is shown again, with its age.
client() {
    of=$1
    shift
    kept=$home/client
    read -r now _ </proc/uptime
    now=${now%.*}
    # shellcheck disable=SC2086
    state=$(cat /proc/sys/kernel/random/boot_id; docker inspect -f '{{.Id}} {{.State.StartedAt}} {{.State.Status}}' $of 2>&1)
    if [ "${recent:-0}" -gt 0 ] && [ "$(cat "$kept/state" 2>/dev/null)" = "$state" ]; then
        ago=$((now - $(cat "$kept/at")))
        if [ "$ago" -ge 0 ] && [ "$ago" -lt "$recent" ]; then
            # A result of the same stage needs no age.
            if [ -n "${same_stage:-}" ]; then
                cat "$kept/lines"
            else
                sed "s/\", \"gpus\": / ($ago s ago; nothing was restarted since)&/" "$kept/lines"
            fi
            return 0
        fi
    fi
    in_container "$@" >"$dir/client-lines"
    cat "$dir/client-lines"
    if [ -s "$dir/client-lines" ] && ! grep -q '"ok": false' "$dir/client-lines"; then
        mkdir -p "$kept" && cp "$dir/client-lines" "$kept/lines" && printf '%s\n' "$now" >"$kept/at" && printf '%s\n' "$state" >"$kept/state"
    else
        rm -rf "$kept"
    fi
}

# Checks the GPUs shown by the host's own tool: the host, the expected number, the vendor.
host_gpus() {
    if [ "$3" = amd ]; then
        seen=$(for device in /sys/bus/pci/devices/*; do
            case $(cat "$device/vendor" "$device/class" 2>/dev/null | tr '\n' ' ') in
                0x1002\ 0x0300* | 0x1002\ 0x0302* | 0x1002\ 0x0380* | 0x1002\ 0x1200*) ;;
                *) continue ;;
            esac
            case $(readlink "$device/driver") in
                */amdgpu) echo "${device##*/} $(cat "$device/unique_id" 2>/dev/null)" ;;
            esac
        done)
    else
        seen=$(timeout 20 nvidia-smi --query-gpu=uuid,name --format=csv,noheader 2>&1)
    fi
    count=$(printf '%s\n' "$seen" | grep -c -E '^(GPU-|[0-9a-f]{4}:)')
    ok=true
    [ "$count" -ge "$2" ] || ok=false
    printf '::check {"check": "host gpus", "target": "%s", "ok": %s, "saw": "%s"}\n' "$1" "$ok" \
        "$count of $2 GPUs: $(printf '%s' "$seen" | tr '\n' ';' | plain)"
}

# Checks that gpucl's ports on this host listen only on the loopback.
closed_ports() {
    target=$1
    shift
    if ! command -v ss >/dev/null 2>&1; then
        failed "closed ports" "$target" "the command ss is missing, so the listening ports are unknown"
        return 0
    fi
    open=
    count=0
    for port in "$@"; do
        for address in $(ss -lntH "sport = :$port" | awk '{ print $4 }'); do
            count=$((count + 1))
            case $address in 127.0.0.1:* | '[::1]:'*) ;; *) open="$open $address" ;; esac
        done
    done
    if [ -n "$open" ]; then
        failed "closed ports" "$target" "these are open to others:$open"
    else
        printf '::check {"check": "closed ports", "target": "%s", "ok": true, "saw": "%s listening ports, all on the loopback"}\n' "$target" "$count"
    fi
}

# Runs a check in its own temporary container: check name, target, seconds, network, image, files of `secrets/` to
# mount, command. Not in the nodes' containers, where jobs could read these secrets.
apart() {
    check=$1 target=$2 limit=$3 network=$4 image=$5 files=$6 program=$7
    shift 7
    mounts=
    for name in $files; do
        mounts="$mounts --mount type=bind,src=$home/secrets/$name,dst=/run/gpucl/secrets/$name,readonly"
    done
    # shellcheck disable=SC2086
    timeout "$limit" docker run --rm --pull never --network "$network" --read-only --cap-drop ALL --security-opt no-new-privileges:true \
        --label "com.docker.compose.project=$tag" --label com.docker.compose.oneoff=True --label gpucl.probe=services --log-driver none \
        --env NVIDIA_VISIBLE_DEVICES=void --env "GPUCL_STOPPED=${stopped:-}" --workdir / --mount "type=bind,src=$home/lib,dst=/opt/gpucl,readonly" $mounts \
        --entrypoint "$program" "$image" "$@" >"$dir/$target-$check" 2>"$dir/$target-$check.err"
    results $?
}

# Checks that the rules against neighbours, and for the cloud's metadata, are in the kernel unchanged.
closed_host() {
    if [ "$(nft list table inet "$closed" 2>/dev/null | cksum)" != "$(cat "$home/closed/sum" 2>/dev/null)" ]; then
        failed "closed host" "$1" "the rules of the nftables table $closed are gone or changed; the next up sets them again"
    else
        saw="its loopback and its containers are closed to neighbours, the cloud's metadata to its containers"
        [ ! -s "$home/closed/open" ] || saw="its loopback is closed to neighbours; the cloud's metadata is open to containers: $(plain <"$home/closed/open")"
        printf '::check {"check": "closed host", "target": "%s", "ok": true, "saw": "%s"}\n' "$1" "$saw"
    fi
}

