# The folder of short paths, which Ray's sockets need: chosen once for this host's folder, which names it from then on. No
# variable of a login decides it, so every later command finds the same.
links=
{ read -r links <"$home/short"; } 2>/dev/null || :
case $links in
    /tmp/gpucl-*[!a-z0-9]*) links= ;;
    /tmp/gpucl-?*) ;;
    *) links= ;;
esac

# The pids of the processes whose environment holds exactly this NAME=VALUE.
carrying() {
    for file in $(grep -l -s "$1" /proc/[0-9]*/environ); do
        if { tr '\0' '\n' <"$file" | grep -q -x -F "$1"; } 2>/dev/null; then
            pid=${file#/proc/}
            echo "${pid%/environ}"
        fi
    done
}

# The pids of the processes of this host's nodes. Those started by an earlier gpucl, or that lost one of their marks,
# are identified by the cluster's name, where it is unique: matched in full, as another cluster's may begin with it. A
# key has no hyphen.
ours() {
    {
        carrying "GPUCL_HOST=$tag"
        [ -z "$scope" ] || for file in $(grep -l -s "GPUCL_TAG=$scope" /proc/[0-9]*/environ); do
            if { tr '\0' '\n' <"$file" | grep -q -x "GPUCL_TAG=$scope[a-z0-9]*"; } 2>/dev/null; then
                pid=${file#/proc/}
                echo "${pid%/environ}"
            fi
        done
    } | sort -u -n
}

# Whether process $1 exists and started at tick $2: the pid alone may have been reused.
is_alive() {
    stat=
    { read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 1
    ticks_of=$2
    # The name is in parentheses and may contain spaces: count the fields after it.
    # shellcheck disable=SC2086
    set -- ${stat##*) }
    case ${1:-} in Z | X | '') return 1 ;; esac
    [ "${20:-}" = "$ticks_of" ]
}

# Whether only this user has access to the folder of short paths; says why not. In /tmp anybody may have made it.
links_are_private() {
    [ -n "$links" ] || { echo "there is no folder of short paths"; return 1; }
    case $(ls -ldn "$links" 2>/dev/null) in
        "drwx------"*) [ -O "$links" ] || { echo "$links belongs to another user"; return 1; } ;;
        *) echo "$links is not a folder of this user alone"; return 1 ;;
    esac
}

# This host's folders of short paths that exist: its own, and any that leads to its files.
short_folders() {
    for place in "$links" /tmp/gpucl-*; do
        if [ -z "$place" ] || [ ! -d "$place" ] || [ -L "$place" ] || [ ! -O "$place" ]; then continue; fi
        [ "$place" = "$links" ] || [ "$(readlink "$place/r" 2>/dev/null)" = "$home/ray" ] || continue
        echo "$place"
    done | sort -u
}

# Ends the supervisor of this host, so that nothing is restarted; nodes go on. SIGTERM comes first: the supervisor is
# the only parent of processes that it adopted from a killed node.
end_supervisor() {
    tries=0
    signal=TERM
    while :; do
        pids=$(carrying "GPUCL_TAG=$tag")
        [ -n "$pids" ] || return 0
        [ "$tries" -lt 30 ] || signal=KILL
        # shellcheck disable=SC2086
        [ "$tries" -gt 0 ] && [ "$signal" = TERM ] || kill -s "$signal" $pids 2>/dev/null
        tries=$((tries + 1))
        [ "$tries" -lt 80 ] || return 1
        sleep 0.1 2>/dev/null || sleep 1
    done
}

# What `down --keep-data` keeps, by paths in the host's folder.
kept_data() {
    for part in data mlflow store/data; do
        if [ -n "$(ls -A "$home/$part" 2>/dev/null)" ]; then echo "$part"; fi
    done
}

# What is there beside it.
other_contents() {
    if [ -z "$(kept_data)" ]; then
        contents
    else
        ls -A "$home" | grep -v -x -F -e data -e mlflow -e store ${claim:+-e "$claim"}
    fi
}

# gpucl's contents of the host's folder, without a provider's claim.
contents() {
    if [ -n "$claim" ]; then
        ls -A "$home" 2>/dev/null | grep -v -x -F "$claim"
    elif [ -e "$home" ]; then
        echo "$home"
    fi
}
