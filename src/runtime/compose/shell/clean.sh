# Removes all that carries one tag from this host. May be cut at any point, and run again.
tell_left() { echo "::left $*"; left=1; }

clean() {
    left=
    # Pulled images stay, as others may use them; only now can it be told which they are.
    pulled=$(docker ps -a --format '{{.Image}}' --filter "label=com.docker.compose.project=$tag" 2>/dev/null | sort -u)
    stop_project || tell_left "containers of the project $tag"
    if command -v docker >/dev/null 2>&1; then
        of="label=com.docker.compose.project=$tag"
        for name in $({ docker volume ls -q --filter "$of"; docker volume ls -q --filter "label=gpucl.tag=$tag"; } | sort -u); do
            if [ -n "$keep_data" ]; then
                echo "::kept volume $name"
            elif docker volume rm "$name" >/dev/null; then
                echo "::removed volume $name"
            else
                tell_left "volume $name"
            fi
        done
        for name in $(docker image ls --format '{{.Repository}}:{{.Tag}}' --filter "label=gpucl.tag=$tag" | sort -u); do
            if docker image rm "$name" >/dev/null 2>&1; then
                echo "::removed image $name"
            else
                # Another cluster of this host runs on it.
                echo "::kept image $name"
            fi
        done
        for name in $(docker network ls --format '{{.Name}}' --filter "label=gpucl.tag=$tag"); do tell_left "network $name"; done
    fi
    # What playbooks changed beside that, they wrote down.
    undone=$(undo)
    [ -z "$undone" ] || printf '%s\n' "$undone"
    case $undone in *::left*) left=1 ;; esac
    for name in $pulled; do
        ! docker image inspect "$name" >/dev/null 2>&1 || echo "::kept image $name"
    done
    if [ -z "$left" ]; then
        cd /
        # Other users of the folder may have left a file that is being written: once more is enough.
        rm -rf "$home" 2>/dev/null || { sleep 1; rm -rf "$home"; }
        [ -e "$home" ] && tell_left "folder $home" || echo "::removed folder $home"
        # With the last cluster of this host the folder of all goes too.
        if [ -z "$(ls -d "${home%/*}"/gpucl-* 2>/dev/null)" ]; then
            rm -f "${home%/*}/lock"
            rmdir "${home%/*}" 2>/dev/null
        fi
    fi
    [ -n "$left" ] || echo "::clean"
}
