# Stops and removes the containers of one tag and their network. Volumes, files and images stay.
stop_project() {
    command -v docker >/dev/null 2>&1 || return 0
    of="label=com.docker.compose.project=$tag"
    ids=$(docker ps -aq --filter "$of") || return 1
    if [ -n "$ids" ]; then
        # Nodes need not finish what they run: nothing is left that could take it over.
        if [ -n "$ends_cluster" ] && [ -d "$home/lib" ]; then touch "$home/lib/.ending" || :; fi
        # shellcheck disable=SC2086
        docker stop -t 10 $ids >/dev/null 2>&1
        for name in $(docker ps -a --format '{{.Names}}' --filter "$of"); do
            docker rm -f "$name" >/dev/null && echo "::removed container $name"
        done
    fi
    for name in $(docker network ls --format '{{.Name}}' --filter "$of"); do
        docker network rm "$name" >/dev/null && echo "::removed network $name"
    done
    rm -f "$home/compose/applied"
    # No job is left that they are for.
    rm -rf "$home/data/.gpucl-secrets"
    [ -z "$(docker ps -aq --filter "$of")" ]
}
