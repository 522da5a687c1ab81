# Ends what runs of one tag on this host: asked first, then ended. Files stay.

# The numbers of the nodes' reapers, which end with a node all that came of it.
reapers() {
    for pid in $(ours); do
        if tr '\0' '\n' <"/proc/$pid/cmdline" 2>/dev/null | grep -q '/reaper\.py$'; then echo "$pid"; fi
    done
}

# Gives up the ports of this host's nodes.
release_ports() {
    for file in "$links"/ports/[0-9]*; do
        if grep -q -e " $tag\$" ${scope:+-e "^$scope[a-z0-9]*\$"} "$file" 2>/dev/null; then rm -f "$file"; fi
    done
    rmdir "$links/ports" 2>/dev/null
    return 0
}

stop_project() {
    end_supervisor || return 1
    count=$(ours | wc -l)
    told=
    { read -r told <"$home/run/.grace"; } 2>/dev/null
    case $told in '' | *[!0-9]*) ;; *) grace=$told ;; esac
    python=$(sed -n 's|^ray_env \(.*\)|\1/bin/python|p' "$home/prepared/prepare" 2>/dev/null)
    [ -x "$python" ] || python=python3
    # Whoever can pins a process before it is signalled, as its number may be a stranger's by then, and knows what reapers have written.
    if [ -f "$home/reaper.py" ] && [ -d "$home/processes" ]; then
        told=$("$python" -I -B "$home/reaper.py" end "$home" "GPUCL_HOST=$tag" "$grace" 2>&1) || echo "::unknown"
        [ -z "$told" ] || printf '%s\n' "$told"
        case $told in *"::left "*) return 1 ;; esac
    elif [ "$((count))" -gt 0 ]; then
        echo "::unknown"
    fi
    rounds=0
    while mains=$(reapers) && [ -n "$mains" ] && [ "$rounds" -lt "$((grace * 5 + 25))" ]; do
        # Asked once more, a reaper waits for its node no longer.
        # shellcheck disable=SC2086
        case $rounds in 0 | "$((grace * 5))") kill -s TERM $mains 2>/dev/null ;; esac
        rounds=$((rounds + 1))
        sleep 0.2 2>/dev/null || sleep 1
    done
    rounds=0
    # Whatever else carries a mark of ours is asked, and then ended.
    while pids=$(ours) && [ -n "$pids" ]; do
        signal=KILL
        [ "$rounds" -gt 4 ] || signal=TERM
        # shellcheck disable=SC2086
        kill -s "$signal" $pids 2>/dev/null
        rounds=$((rounds + 1))
        [ "$rounds" -lt 75 ] || return 1
        sleep 0.2 2>/dev/null || sleep 1
    done
    rm -f "$home"/run/*
    release_ports
    [ "$((count))" -eq 0 ] || echo "::removed $((count)) processes"
}
