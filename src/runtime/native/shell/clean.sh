# Removes all that carries one tag from this host. May be cut at any point, and run again.
tell_left() { echo "::left $*"; left=1; }

clean() {
    left=
    stop_project || tell_left "processes of $tag"
    made=$(sed -n 's/^environment //p' "$home/installed" 2>/dev/null | head -n 1)
    used=$(sed -n 's/^ray_env //p' "$home/prepared/prepare" 2>/dev/null)
    links=/tmp/gpucl-$(id -u)
    if [ -L "$links/$link" ] && [ "$(readlink "$links/$link")" = "$home/ray" ]; then
        rm -f "$links/$link"
        rmdir "$links" 2>/dev/null
    fi
    [ -z "$left" ] || return 0
    cd /
    rm -rf "$home" 2>/dev/null || { sleep 1; rm -rf "$home"; }
    if [ -e "$home" ]; then tell_left "folder $home"; else echo "::removed folder $home"; fi
    [ -z "$left" ] || return 0
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
