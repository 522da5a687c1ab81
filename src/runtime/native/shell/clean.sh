# Removes all that carries one tag from this host. May be cut at any point, and run again.
tell_left() { echo "::left $*"; left=1; }

# Tries the ports that were this host's: nobody listens there any more.
tell_ports() {
    [ -n "$claims" ] || return 0
    look_at_ports
    tried=0
    for base in $claims; do
        tried=$((tried + block))
        for port in $heard; do
            if [ "$port" -ge "$base" ] && [ "$port" -lt "$((base + block))" ]; then echo "::open $port"; fi
        done
    done
    echo "::tried $tried"
}

# Removes the host's folder; where the provider has a claim in it, all but that.
remove_all() {
    if [ -z "$claim" ]; then
        rm -rf "$home"
    elif [ -d "$home" ]; then
        find "$home" -mindepth 1 -maxdepth 1 ! -name "$claim" -exec rm -rf {} +
    fi
}

clean() {
    left=
    claims=$(for file in "$links"/ports/[0-9]*; do
        if grep -q " $tag\$" "$file" 2>/dev/null; then echo "${file##*/}"; fi
    done)
    if stop_project; then tell_ports; else tell_left "processes of $tag"; fi
    made=$(sed -n 's/^environment //p' "$home/installed" 2>/dev/null | head -n 1)
    used=$(sed -n 's/^ray_env //p' "$home/prepared/prepare" 2>/dev/null)
    if [ -L "$links/$link" ] && [ "$(readlink "$links/$link")" = "$home/ray" ]; then
        rm -f "$links/$link"
        rmdir "$links" 2>/dev/null
    fi
    [ -z "$left" ] || return 0
    cd /
    remove_all 2>/dev/null || { sleep 1; remove_all; }
    if [ -n "$(contents)" ]; then tell_left "folder $home"; else echo "::removed folder $home"; fi
    [ -z "$left" ] || return 0
    # What the provider has put there is its own to remove.
    if [ -n "$claim" ]; then
        echo "::clean"
        return 0
    fi
    # With the last cluster of this user here the folder of all goes too, and what was made for them where that is asked for.
    if [ -z "$(ls -d "${home%/*}"/gpucl-* 2>/dev/null)" ]; then
        rm -f "${home%/*}/lock"
        rmdir "${home%/*}" 2>/dev/null
        if [ -n "$purge" ] && [ -n "$made" ] && [ -f "$made/.complete" ]; then
            rm -rf "$made" && echo "::removed Ray environment $made" && used=
            rm -f "${made%/*}/.lock-"*
            rmdir "${made%/*}" "$(dirname "${made%/*}")" 2>/dev/null
        fi
    fi
    [ -z "$used" ] || [ ! -e "$used" ] || echo "::kept Ray environment $used"
    echo "::clean"
}
