# Finds the listening ports of this machine: sets `heard` to the ports, `busy` to their blocks, and
# `listens` to the socket on the port `dashboard`.
inspect_ports() {
    busy=" "
    heard=
    listens=
    for table in /proc/net/tcp /proc/net/tcp6; do
        [ -r "$table" ] || continue
        while read -r _ local _ state _ _ _ _ _ inode _; do
            [ "$state" = 0A ] || continue
            port=$((0x${local##*:}))
            busy="$busy$((port / block)) "
            heard="$heard $port"
            [ "$port" != "$dashboard" ] || listens=$inode
        done <"$table"
    done
}

# Prints who holds the port `dashboard`, as far as this user can see; nothing when it is free or this host's own.
report_taken() {
    [ -n "$listens" ] || return 0
    holder=$(find /proc/[0-9]*/fd -lname "socket:\[$listens\]" 2>/dev/null | head -n 1)
    holder=${holder#/proc/}
    holder=${holder%%/*}
    case " $(ours | tr '\n' ' ') " in *" ${holder:-none} "*) return 0 ;; esac
    [ -z "$holder" ] || holder=" $holder $(tr '\0' ' ' <"/proc/$holder/cmdline" 2>/dev/null | cut -c 1-80)"
    echo "::taken $dashboard$holder"
}
