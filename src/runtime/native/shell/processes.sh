# The numbers of the processes whose environment holds this very NAME=VALUE.
carrying() {
    for file in $(grep -l -s -F "$1" /proc/[0-9]*/environ); do
        if { tr '\0' '\n' <"$file" | grep -q -x -F "$1"; } 2>/dev/null; then
            pid=${file#/proc/}
            echo "${pid%/environ}"
        fi
    done
}

# The numbers of the processes of this host's nodes. Those that an earlier gpucl started, or that lost one of their marks, are told
# by the cluster's name, where that is enough: whole, as another cluster's may begin with it. A key holds no hyphen.
ours() {
    {
        carrying "GPUCL_HOST=$tag"
        [ -z "$scope" ] || for file in $(grep -l -s -F "GPUCL_TAG=$scope" /proc/[0-9]*/environ); do
            if { tr '\0' '\n' <"$file" | grep -q -x "GPUCL_TAG=$scope[a-z0-9]*"; } 2>/dev/null; then
                pid=${file#/proc/}
                echo "${pid%/environ}"
            fi
        done
    } | sort -u -n
}

# Process $1 is there and started at tick $2: a number alone may be a stranger's by now.
is_alive() {
    stat=
    { read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 1
    ticks_of=$2
    # The name stands in parentheses and may hold blanks: count from behind it.
    # shellcheck disable=SC2086
    set -- ${stat##*) }
    case ${1:-} in Z | X | '') return 1 ;; esac
    [ "${20:-}" = "$ticks_of" ]
}

# Ends the supervisor of this host, which starts nothing any more then; nodes go on. It is asked first: what it got of a node that
# was killed has no other parent.
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

# What of ours is in the host's folder; the claim of its provider is the provider's.
contents() {
    if [ -n "$claim" ]; then
        ls -A "$home" 2>/dev/null | grep -v -x -F "$claim"
    elif [ -e "$home" ]; then
        echo "$home"
    fi
}
