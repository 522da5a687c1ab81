# Removes everything with one tag from this host. May be interrupted at any point and run again.
report_left() { echo "::left $*"; left=1; }

# Checks that nothing listens on this host's former ports any more.
report_ports() {
    [ -n "$claims" ] || return 0
    inspect_ports
    tried=0
    for base in $claims; do
        tried=$((tried + block))
        for port in $heard; do
            if [ "$port" -ge "$base" ] && [ "$port" -lt "$((base + block))" ]; then echo "::open $port"; fi
        done
    done
    echo "::tried $tried"
}

# Removes the host's folder, except a provider's claim in it.
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
    if stop_project; then report_ports; else report_left "processes of $tag"; fi
    made=$(sed -n 's/^environment //p' "$home/installed" 2>/dev/null | head -n 1)
    used=$(sed -n 's/^ray_env //p' "$home/prepared/prepare" 2>/dev/null)
    if [ -L "$links/$link" ] && [ "$(readlink "$links/$link")" = "$home/ray" ]; then
        rm -f "$links/$link"
        rmdir "$links" 2>/dev/null
    fi
    [ -z "$left" ] || return 0
    cd /
    remove_all 2>/dev/null || { sleep 1; remove_all; }
    if [ -n "$(contents)" ]; then report_left "folder $home"; else echo "::removed folder $home"; fi
    [ -z "$left" ] || return 0
    # The provider removes its own claim.
    if [ -n "$claim" ]; then
        echo "::clean"
        return 0
    fi
    # This user's last cluster here removes the common folder too, and with `purge` the shared environment.
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
