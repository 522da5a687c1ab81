# Removes all that carries one tag from this host. May be cut at any point, and run again.
tell_left() { echo "::left $*"; left=1; }

# Removes what was installed for us: $home/installed has a line for each, `package NAME`, `repository PATH` or `file PATH`.
purge() {
    others=$(ls -d "${home%/*}"/gpucl-* 2>/dev/null | grep -v -x -F "$home")
    packages=$(sed -n 's/^package //p' "$home/installed" | sort -u)
    if [ -n "$others" ]; then
        for name in $packages; do echo "::kept package $name (other clusters of this host may use it)"; done
        # What stays must be known to those who stay.
        for other in $others; do
            sort -u "$home/installed" "$other/installed" 2>/dev/null >"$other/installed.new" && mv -f "$other/installed.new" "$other/installed"
        done
        return 0
    fi
    if [ -n "$packages" ]; then
        # shellcheck disable=SC2086
        if DEBIAN_FRONTEND=noninteractive NEEDRESTART_MODE=l apt-get -y -o DPkg::Lock::Timeout=300 purge $packages >/dev/null 2>"$home/purge.err"; then
            for name in $packages; do echo "::removed package $name"; done
        else
            tell_left "packages that apt did not remove: $(tail -n 1 "$home/purge.err")"
            return 0
        fi
    fi
    sed -n 's/^file //p; s/^repository //p' "$home/installed" | sort -u | while read -r path; do
        case $path in /etc/* | /usr/* | /var/lib/*) [ ! -e "$path" ] || { rm -rf "$path" && echo "::removed file $path"; } ;; esac
    done
}

clean() {
    left=
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
    # What a playbook did beside installing, and how it is undone, it wrote here.
    for undo in "$home"/undo/*.sh; do
        [ -e "$undo" ] || continue
        if sh "$undo" </dev/null; then
            rm -f "$undo"
        else
            tell_left "what $undo undoes"
        fi
    done
    if command -v nft >/dev/null 2>&1; then
        nft list tables 2>/dev/null | grep -w "$table" | while read -r _ family name; do
            nft delete table "$family" "$name" && echo "::removed nftables table $name"
        done
    fi
    if [ -r "$home/installed" ]; then
        if [ -n "$purge" ]; then
            purge
        else
            sort -u "$home/installed" | sed 's/^/::kept /'
        fi
    fi
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
