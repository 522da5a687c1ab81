# Waits until all containers are healthy and all services answer, and shows the log of a container that is slow or
# exits.
read -r now _ </proc/uptime
end=$((${now%.*} + limit))
reported=0
client=

log_of() {
    echo "the end of the log of $1:"
    docker logs --tail 25 "$1" 2>&1 | sed 's/^/    /'
}

while :; do
    seen=$(docker inspect -f '{{.Name}} {{.State.Status}} {{if .State.Health}}{{.State.Health.Status}}{{else}}none{{end}} {{.RestartCount}} {{.State.ExitCode}}' $containers) || {
        echo "a container of the project is gone"
        exit 1
    }
    left=
    while read -r name state health restarts code; do
        name=${name#/}
        if [ "$state" = running ] && { [ "$health" = healthy ] || [ "$health" = none ]; }; then
            # While workers start, a client can already join the head. The checks show what came of it.
            if [ "$name" = "$head" ] && [ -z "$client" ]; then
                (set +eu; client_check) >/dev/null 2>&1 &
                client=$!
            fi
            continue
        fi
        left="$left $name"
        # 77: the head refused its token. Waiting would not help.
        case $state in
            exited | dead | restarting)
                if [ "$code" = 77 ] || [ "$restarts" -ge 3 ] || [ "$state" = dead ]; then
                    log_of "$name"
                    echo "container $name does not stay up: it ended with exit code $code, $restarts times"
                    exit 1
                fi
                ;;
        esac
    done <<SEEN
$seen
SEEN
    [ -n "$left" ] || break
    read -r now _ </proc/uptime
    now=${now%.*}
    if [ "$now" -ge "$end" ]; then
        for name in $left; do log_of "$name"; done
        for name in $left; do
            docker inspect -f '{{if .State.Health}}{{range .State.Health.Log}}{{.Output}}{{end}}{{end}}' "$name" | tail -n 3
        done
        echo "not healthy in time:$left"
        exit 1
    fi
    if [ "$now" -ge "$((reported + 10))" ]; then
        [ "$reported" -eq 0 ] || echo "waiting for$left"
        reported=$now
    fi
    sleep 0.5
done
# Folders and new volumes are root's, and containers are not. From outside, since nobody in a container may chown.
user_of() { stat -c %u:%g "/proc/$(docker inspect -f '{{.State.Pid}}' "$1")"; }
source_of() { docker inspect -f '{{range .Mounts}}{{if eq .Destination "'"$2"'"}}{{.Source}}{{end}}{{end}}' "$1"; }
if [ -n "$data_of" ]; then
    owner=$(user_of "$data_of")
    chown "$owner" data
    for at in $volumes_at; do
        folder=$(source_of "$data_of" "$at")
        # A volume with an owner keeps it.
        [ "$(stat -c %u "$folder")" != 0 ] || chown "$owner" "$folder"
    done
fi
[ -n "$head" ] || exit 0
read -r now _ </proc/uptime
timeout "$((end - ${now%.*} + 30))" docker exec "$head" python3 -I /opt/gpucl/probe.py wait "$services" || {
    # The service's log says why.
    for name in $service_containers; do log_of "$name"; done
    echo "a service does not answer"
    exit 1
}
if [ -n "$workspace_of" ]; then
    chown "$(user_of "$workspace_of")" "$(source_of "$workspace_of" /workspace)"
fi
[ -z "$client" ] || wait "$client" || :
