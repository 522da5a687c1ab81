# Succeeds when the requested configuration is applied and all nodes run.
[ "$(cat "$home/run/.applied" 2>/dev/null)" = "$config" ]
for key in supervisor $keys; do
    read -r state pid ticks _ <"$home/run/$key"
    [ "$state" = running ]
    is_alive "$pid" "$ticks"
done
