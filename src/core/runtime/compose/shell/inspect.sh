# Prints everything on this host with one tag. Changes nothing.
if command -v docker >/dev/null 2>&1; then
    of="label=com.docker.compose.project=$tag"
    ids=$(timeout 20 docker ps -aq --no-trunc --filter "$of" 2>/dev/null)
    # shellcheck disable=SC2086
    [ -z "$ids" ] || timeout 20 docker inspect --format '{{if not (index .Config.Labels "gpucl.probe")}}::container {"name":{{json .Name}},"key":{{json (index .Config.Labels "gpucl.key")}},"service":{{json (index .Config.Labels "com.docker.compose.service")}},"state":{{json .State.Status}},"health":{{if .State.Health}}{{json .State.Health.Status}}{{else}}null{{end}},"started_at":{{json .State.StartedAt}},"exit_code":{{if .State.Running}}null{{else}}{{.State.ExitCode}}{{end}}}{{println}}::ended {"key":{{json (index .Config.Labels "gpucl.key")}},"restarts":{{.RestartCount}},"at":{{json .State.FinishedAt}}}{{end}}' $ids 2>/dev/null
    { timeout 20 docker volume ls -q --filter "$of"; timeout 20 docker volume ls -q --filter "label=gpucl.tag=$tag"; } 2>/dev/null |
        sort -u | sed 's/^/::remains volume /'
    { timeout 20 docker network ls --format '{{.Name}}' --filter "$of"; timeout 20 docker network ls --format '{{.Name}}' --filter "label=gpucl.tag=$tag"; } 2>/dev/null |
        sort -u | sed 's/^/::remains network /'
    timeout 20 docker image ls --format '{{.Repository}}:{{.Tag}}' --filter "label=gpucl.tag=$tag" 2>/dev/null |
        sort -u | sed 's/^/::remains image /'
fi
if command -v nft >/dev/null 2>&1; then
    timeout 20 nft list tables 2>/dev/null | grep -x "table inet $table\|table inet $closed" | sed 's/^table /::remains nftables table /'
fi
case $(ls -A "$home" 2>/dev/null) in
    data) echo "::remains data folder $home/data" ;;
    *) [ ! -e "$home" ] || echo "::remains folder $home" ;;
esac
