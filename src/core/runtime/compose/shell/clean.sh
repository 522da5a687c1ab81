# Removes everything with one tag from this host. May be interrupted at any point and run again.
report_left() { echo "::left $*"; left=1; }

# Removes the host's folder, except a data folder that is kept and has something in it.
remove_all() {
    if [ -n "$keep_data" ] && [ -n "$(ls -A "$home/data" 2>/dev/null)" ]; then
        find "$home" -mindepth 1 -maxdepth 1 ! -name data -exec rm -rf {} +
    else
        rm -rf "$home"
    fi
}

# Whether another cluster on this host has containers of image $1, or had them until it was stopped.
is_used() {
    for file in "${home%/*}"/gpucl-*/compose/compose.yaml; do
        case $file in "$home"/*) continue ;; esac
        if grep -q -s -F "$1" "$file"; then return 0; fi
    done
    return 1
}

clean() {
    left=
    # Pulled images stay, as others may use them; their names are known only while the containers exist.
    pulled=$(docker ps -a --format '{{.Image}}' --filter "label=com.docker.compose.project=$tag" 2>/dev/null | sort -u)
    stop_project || report_left "containers of the project $tag"
    if command -v docker >/dev/null 2>&1; then
        of="label=com.docker.compose.project=$tag"
        for name in $({ docker volume ls -q --filter "$of"; docker volume ls -q --filter "label=gpucl.tag=$tag"; } | sort -u); do
            if [ -n "$keep_data" ]; then
                echo "::kept volume $name"
            elif docker volume rm "$name" >/dev/null; then
                echo "::removed volume $name"
            else
                report_left "volume $name"
            fi
        done
        # Built images: those of this cluster, and those that it shared and nobody uses any more.
        for name in $({
            docker image ls --format '{{.Repository}}:{{.Tag}}' --filter "label=gpucl.tag=$tag"
            printf '%s\n' "$pulled" | grep '^gpucl/[a-z-]*:'
        } | sort -u); do
            if is_used "$name"; then
                echo "::kept image $name"
            elif docker image rm "$name" >/dev/null 2>&1; then
                echo "::removed image $name"
            else
                # Another cluster on this host uses it.
                echo "::kept image $name"
            fi
        done
        for name in $(docker network ls --format '{{.Name}}' --filter "label=gpucl.tag=$tag"); do report_left "network $name"; done
    fi
    # Reverts the other changes, which the playbooks recorded.
    undone=$(undo)
    [ -z "$undone" ] || printf '%s\n' "$undone"
    case $undone in *::left*) left=1 ;; esac
    for name in $pulled; do
        case $name in gpucl/*) continue ;; esac
        ! docker image inspect "$name" >/dev/null 2>&1 || echo "::kept image $name"
    done
    if [ -z "$left" ]; then
        cd /
        # A file may still be written there: one retry is enough.
        remove_all 2>/dev/null || { sleep 1; remove_all; }
        case $(ls -A "$home" 2>/dev/null) in
            '') [ -e "$home" ] && report_left "folder $home" || echo "::removed folder $home" ;;
            data) [ -n "$keep_data" ] && echo "::kept data folder $home/data" || report_left "folder $home" ;;
            *) report_left "folder $home" ;;
        esac
        # The last cluster on this host removes the common folder too.
        if [ -z "$(ls -d "${home%/*}"/gpucl-* 2>/dev/null)" ]; then
            rm -f "${home%/*}/lock"
            rmdir "${home%/*}" 2>/dev/null
        fi
    fi
    [ -n "$left" ] || echo "::clean"
}
