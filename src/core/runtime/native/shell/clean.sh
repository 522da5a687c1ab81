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

# Removes all in a folder but what has these names.
remove_others() {
    [ -d "$1" ] || return 0
    find "$1" -mindepth 1 -maxdepth 1 ! -name "$2" ! -name "$3" ! -name "${4:-$3}" ! -name "${5:-$3}" -exec rm -rf {} +
}

# Removes the host's folder, except a provider's claim in it, and data that is kept.
remove_all() {
    if [ -n "$keep_data" ] && [ -n "$(kept_data)" ]; then
        remove_others "$home" data mlflow store "${claim:-data}" || return 1
        remove_others "$home/store" data data || return 1
        # Users and passwords are the cluster's; the next `up` makes others.
        remove_others "$home/mlflow" 'mlflow.db*' artifacts || return 1
        for part in data mlflow store/data store; do rmdir "$home/$part" 2>/dev/null; done
        return 0
    fi
    if [ -z "$claim" ]; then
        rm -rf "$home"
    elif [ -d "$home" ]; then
        find "$home" -mindepth 1 -maxdepth 1 ! -name "$claim" -exec rm -rf {} +
    fi
}

# Removes environment $1 of a `setup`, unless a cluster uses it or somebody is making it.
remove_environment() {
    for file in "$1"/.users/*; do
        { read -r place <"$file"; } 2>/dev/null || continue
        # What a cluster leaves behind when it is removed by hand is no user.
        [ ! -d "$place" ] || [ "$place" = "$home" ] || return 0
    done
    name=${1##*-setup-}
    (
        flock -n 8 || exit 1
        rm -rf "$1"
    ) 8>>"${1%/*}/.lock-setup-$name" || return 0
    rm -f "${1%/*}/.lock-setup-$name"
    echo "::removed environment $1"
}

# Ends this cluster's use of all environments of a `setup` in $1, and with `purge` removes those that nobody uses.
leave_environments() {
    [ -d "$1" ] || return 0
    rm -f "$1"/ray-*-setup-*/.users/"$tag"
    [ -n "$purge" ] || return 0
    for environment in "$1"/ray-*-setup-*; do
        if [ -d "$environment" ]; then remove_environment "$environment"; fi
    done
    for environment in "$1"/ray-*-setup-*; do
        [ ! -d "$environment" ] || return 0
    done
    rm -f "$1"/.lock-setup-*
    if [ -d "$1/caches" ]; then rm -rf "$1/caches" && echo "::removed folder $1/caches"; fi
}

# Removes the claims and the link that a gpucl before this one kept in folders of the login.
leave_old_folders() {
    for old in "/tmp/gpucl-$(id -u)" "${XDG_RUNTIME_DIR:-/tmp}/gpucl"; do
        if [ ! -d "$old" ] || [ -L "$old" ] || [ ! -O "$old" ]; then continue; fi
        for file in "$old"/ports/[0-9]*; do
            if grep -q -e " $tag\$" ${scope:+-e "^$scope[a-z0-9]*\$"} "$file" 2>/dev/null; then rm -f "$file"; fi
        done
        for file in "$old"/*; do
            if [ -L "$file" ] && [ "$(readlink "$file")" = "$home/ray" ]; then rm -f "$file"; fi
        done
        rmdir "$old/ports" "$old" 2>/dev/null
    done
    return 0
}

clean() {
    left=
    claims=$(if links_are_private >/dev/null; then
        for file in "$links"/ports/[0-9]*; do
            if [ -e "$file" ]; then echo "${file##*/}"; fi
        done
    fi)
    if stop_project; then report_ports; else report_left "processes of $tag"; fi
    made=$(sed -n 's/^environment //p' "$home/installed" 2>/dev/null | grep -v -e '-setup-')
    cache=$(sed -n 's/^cache //p' "$home/installed" 2>/dev/null | head -n 1)
    used=$(sed -n 's/^ray_env //p' "$home/prepared/prepare" 2>/dev/null)
    # An environment of the user's own is left alone, and so is all beside it.
    [ "$used" != "$(sed -n 's/^ready_env //p' "$home/prepared/prepare" 2>/dev/null)" ] || used=
    stored=$(sed -n 's/^store //p' "$home/installed" 2>/dev/null | head -n 1)
    store=$(sed -n 's|^store_program \(.*\)/bin/weed$|\1|p' "$home/prepared/prepare" 2>/dev/null)
    tracker=$(sed -n 's/^mlflow_env //p' "$home/prepared/prepare" 2>/dev/null)
    tracker_made=$(sed -n 's/^mlflow //p' "$home/installed" 2>/dev/null | head -n 1)
    [ -z "$left" ] || return 0
    cd /
    leave_old_folders
    # Before the folder that names it.
    for folder in $(short_folders); do
        rm -rf "$folder"
        [ ! -e "$folder" ] || report_left "folder $folder"
    done
    [ -z "$left" ] || return 0
    remove_all 2>/dev/null || { sleep 1; remove_all; }
    if [ -n "$keep_data" ] && [ -n "$(kept_data)" ]; then
        [ -z "$(other_contents)" ] || report_left "folder $home"
        kept_data | sed "s|^|::kept data folder $home/|"
    elif [ -n "$(contents)" ]; then
        report_left "folder $home"
    else
        echo "::removed folder $home"
    fi
    [ -z "$left" ] || return 0
    [ -z "${used:-$cache}" ] || leave_environments "$(dirname "${used:-$cache}")"
    # The provider removes its own claim.
    if [ -n "$claim" ]; then
        echo "::clean"
        return 0
    fi
    # This user's last cluster here removes the common folder too, and with `purge` the shared environment.
    if [ -z "$(ls -d "${home%/*}"/gpucl-* 2>/dev/null)" ]; then
        rm -f "${home%/*}/lock"
        rmdir "${home%/*}" 2>/dev/null
        if [ -n "$purge" ] && [ -n "$stored" ] && [ -f "$stored/.complete" ]; then
            rm -rf "$stored" && echo "::removed object store program $stored" && store=
            rm -f "${stored%/*}/.lock-store"
            rmdir "${stored%/*}" "$(dirname "${stored%/*}")" 2>/dev/null
        fi
        if [ -n "$purge" ] && [ -n "$tracker_made" ] && [ -f "$tracker_made/.complete" ]; then
            rm -rf "$tracker_made" && echo "::removed MLflow environment $tracker_made"
            rm -f "${tracker_made%/*}/.lock-mlflow"
        fi
        # It made one for each version of Ray, modules and source of packages that it had in its time.
        [ -z "$purge" ] || printf '%s\n' "$made" | while read -r environment; do
            [ -f "${environment:-/}/.complete" ] || continue
            rm -rf "$environment" && echo "::removed Ray environment $environment"
            rm -f "${environment%/*}/.lock-"*
            rmdir "${environment%/*}" "$(dirname "${environment%/*}")" 2>/dev/null
        done
    fi
    [ -z "$store" ] || [ ! -e "$store" ] || echo "::kept object store program $store"
    [ -z "$tracker" ] || [ ! -e "$tracker" ] || echo "::kept MLflow environment $tracker"
    [ -z "$used" ] || [ ! -e "$used" ] || echo "::kept Ray environment $used"
    echo "::clean"
}
