# Prints the logs of this host's nodes, each line after `::log NAME `; only one if `want` names it. Changes nothing.
chosen=
for file in "$home"/logs/*.log; do
    [ -e "$file" ] || continue
    key=${file##*/}
    key=$(printf '%s' "${key%.log}" | tr -d '-')
    echo "::known $key"
    if [ -z "$want" ] || [ "$want" = "$key" ]; then chosen="$chosen $key"; fi
done

show() {
    for file in "$home"/logs/*.log; do
        name=${file##*/}
        [ "$(printf '%s' "${name%.log}" | tr -d '-')" = "$1" ] || continue
        if [ -n "$follow" ]; then
            tail -n "$lines" -F "$file" 2>/dev/null </dev/null | sed -u "s/^/::log $1 /"
        else
            tail -n "$lines" "$file" | sed "s/^/::log $1 /"
        fi
    done
}
