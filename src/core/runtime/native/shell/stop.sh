# Ends everything running with one tag on this host: SIGTERM first, then SIGKILL. Files stay.

# The pids of the nodes' reapers, each of which ends a node with all its descendants.
reapers() {
    for pid in $(ours); do
        if tr '\0' '\n' <"/proc/$pid/cmdline" 2>/dev/null | grep -q '/reaper\.py$'; then echo "$pid"; fi
    done
}

# Releases the ports of this host's nodes.
release_ports() {
    links_are_private >/dev/null || return 0
    for file in "$links"/ports/[0-9]*; do
        # The object store's program has sockets there, named after its ports, and leaves them when it is killed.
        base=${file##*/}
        rm -f "/tmp/seaweedfs-"*"-grpc-${base%?}"[0-9].sock
    done
    rm -rf "$links/ports"
}

stop_project() {
    end_supervisor || return 1
    # Nodes need not finish what they run: nothing is left that could take it over.
    if [ -n "$ends_cluster" ] && [ -d "$home/run" ]; then touch "$home/run/.ending" || :; fi
    count=$(ours | wc -l)
    limit=
    { read -r limit <"$home/run/.grace"; } 2>/dev/null
    case $limit in '' | *[!0-9]*) ;; *) grace=$limit ;; esac
    python=$(sed -n 's|^ray_env \(.*\)|\1/bin/python|p' "$home/prepared/prepare" 2>/dev/null)
    [ -x "$python" ] || python=python3
    # The reaper can pin a process before signalling it, so that a reused pid is safe, and knows the reapers' records.
    if [ -f "$home/reaper.py" ] && [ -d "$home/processes" ]; then
        output=$("$python" -I -B "$home/reaper.py" end "$home" "GPUCL_HOST=$tag" "$grace" 2>&1) || echo "::unknown"
        [ -z "$output" ] || printf '%s\n' "$output"
        case $output in *"::left "*) return 1 ;; esac
    elif [ "$((count))" -gt 0 ]; then
        echo "::unknown"
    fi
    rounds=0
    while mains=$(reapers) && [ -n "$mains" ] && [ "$rounds" -lt "$((grace * 5 + 25))" ]; do
        # After a second SIGTERM, a reaper no longer waits for its node.
        # shellcheck disable=SC2086
        case $rounds in 0 | "$((grace * 5))") kill -s TERM $mains 2>/dev/null ;; esac
        rounds=$((rounds + 1))
        sleep 0.2 2>/dev/null || sleep 1
    done
    rounds=0
    # Every other process with our mark gets SIGTERM, then SIGKILL.
    while pids=$(ours) && [ -n "$pids" ]; do
        signal=KILL
        [ "$rounds" -gt 4 ] || signal=TERM
        # shellcheck disable=SC2086
        kill -s "$signal" $pids 2>/dev/null
        rounds=$((rounds + 1))
        [ "$rounds" -lt 75 ] || return 1
        sleep 0.2 2>/dev/null || sleep 1
    done
    rm -f "$home"/run/* "$home/run/.ending"
    # No job is left that they are for.
    rm -rf "$home/data/.gpucl-secrets"
    release_ports
    [ "$((count))" -eq 0 ] || echo "::removed $((count)) processes"
}
