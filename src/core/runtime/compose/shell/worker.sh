# Stops, starts or kills the container of one worker: $worker is its name, $limit the seconds that it may take. The last
# line says what became of it: `::worker running`, `stopped`, `killed`.
state_of() {
    state=missing health=none
    read -r state health <<STATE
$(docker inspect -f '{{.State.Status}} {{if .State.Health}}{{.State.Health.Status}}{{else}}none{{end}}' "$worker" 2>/dev/null || echo missing none)
STATE
}

# The engine does not restart a container that was stopped so.
stop_worker() {
    docker stop -t "$limit" "$worker" >/dev/null || return 1
    echo "::worker stopped"
}

start_worker() {
    docker start "$worker" >/dev/null || return 1
    rounds=0
    while state_of && [ "$rounds" -lt "$((limit * 2))" ]; do
        case $state/$health in running/healthy | running/none) break ;; esac
        rounds=$((rounds + 1))
        sleep 0.5
    done
    case $state/$health in
        running/healthy | running/none) echo "::worker running" ;;
        *)
            docker logs --tail 25 "$worker" 2>&1 | sed 's/^/    /'
            echo "it is $state and $health after $limit s"
            return 1
            ;;
    esac
}

# Its first process, and with it all others. `docker kill` would also tell the engine not to restart it.
kill_worker() {
    state_of
    [ "$state" = running ] || { echo "it does not run: it is $state"; return 1; }
    kill -s KILL "$(docker inspect -f '{{.State.Pid}}' "$worker")" || return 1
    echo "::worker killed"
}

"${act}_worker"
