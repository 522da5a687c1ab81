# Stops, starts or kills one worker of this host, through the host's supervisor: $key is the worker's key, $limit the
# seconds that it may take. The last line says what became of it: `::worker running`, `stopped`, `killed`.
state_of() {
    state=missing
    { read -r state pid ticks _ <"$home/run/$key"; } 2>/dev/null
    [ "$state" != running ] || is_alive "$pid" "$ticks" || state=ended
}

is_supervised() {
    { read -r _ supervisor since _ <"$home/run/supervisor"; } 2>/dev/null && is_alive "$supervisor" "$since"
}

stop_worker() {
    : >"$home/run/.stopped-$key"
    rounds=0
    while state_of && [ "$state" != stopped ] && [ "$rounds" -lt "$((limit * 5))" ]; do
        rounds=$((rounds + 1))
        sleep 0.2 2>/dev/null || sleep 1
    done
    [ "$state" = stopped ] || { echo "it is $state after $limit s"; return 1; }
    echo "::worker stopped"
}

start_worker() {
    rm -f "$home/run/.stopped-$key"
    : >"$home/run/.start-$key"
    rounds=0
    # The supervisor takes the request away when it has seen it.
    while [ -e "$home/run/.start-$key" ] && [ "$rounds" -lt 50 ]; do
        rounds=$((rounds + 1))
        sleep 0.2 2>/dev/null || sleep 1
    done
    ray_env=$(sed -n 's/^ray_env //p' "$home/prepared/prepare")
    timeout "$limit" "$ray_env/bin/python" -I -B "$home/host.py" wait "$home" "$key" || return 1
    echo "::worker running"
}

# All its processes at once, as if their machine had lost power.
kill_worker() {
    state_of
    [ "$state" = running ] || { echo "it does not run: it is $state"; return 1; }
    pids=$(carrying "GPUCL_TAG=$worker")
    # shellcheck disable=SC2086
    [ -n "$pids" ] && kill -s KILL $pids 2>/dev/null
    rounds=0
    while is_alive "$pid" "$ticks"; do
        rounds=$((rounds + 1))
        [ "$rounds" -lt 25 ] || { echo "process $pid is still there"; return 1; }
        sleep 0.2 2>/dev/null || sleep 1
    done
    echo "::worker killed"
}

if is_supervised; then "${act}_worker"; else echo "the supervisor of this host does not run"; fi
