# Sees who listens on this machine: `heard` are the ports on which somebody does, `busy` their
# blocks, and `listens` is the socket that has the port `dashboard`.
look_at_ports() {
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

# Says who has the port `dashboard`, as far as this user may see; nothing when it is this host's own, or nobody.
tell_taken() {
    [ -n "$listens" ] || return 0
    holder=$(find /proc/[0-9]*/fd -lname "socket:\[$listens\]" 2>/dev/null | head -n 1)
    holder=${holder#/proc/}
    holder=${holder%%/*}
    case " $(ours | tr '\n' ' ') " in *" ${holder:-none} "*) return 0 ;; esac
    [ -z "$holder" ] || holder=" $holder $(tr '\0' ' ' <"/proc/$holder/cmdline" 2>/dev/null | cut -c 1-80)"
    echo "::taken $dashboard$holder"
}
