# Claims a block of ports for each of this host's nodes. `wants` has a line for each: its key, its tag, the block that it had, and the
# one to begin with. A claim is a file named by the block's first port, with the node's tag and the host's in it: two programs that
# look at the same time do not take the same.
claims=$links/ports

# The folder of short paths is this user's alone.
mkdir -p -m 700 "$links" 2>/dev/null
case $(ls -ldn "$links" 2>/dev/null) in
    "drwx------"*) [ -O "$links" ] || { echo "$links is another user's"; exit 1; } ;;
    *) echo "$links is not a folder of this user alone"; exit 1 ;;
esac
mkdir -p -m 700 "$claims" || exit 1

look_at_ports

# The nodes of this host that run keep what they listen on.
runs=" $(for pid in $(carrying "GPUCL_HOST=$tag"); do
    { tr '\0' '\n' <"/proc/$pid/environ" | sed -n 's/^GPUCL_TAG=//p'; } 2>/dev/null
done | sort -u | tr '\n' ' ')"

taken=$(tell_taken)
if [ -n "$taken" ]; then
    echo "$taken"
    exit 0
fi

# Block $2 is node $1's, unless it is somebody else's.
claim() {
    base=$(($2 * block))
    # A claim of before has this name too, and must not change.
    rm -f "$claims/.$$"
    printf '%s %s\n' "$1" "$tag" >"$claims/.$$" || return 1
    ln "$claims/.$$" "$claims/$base" 2>/dev/null || [ "$(cat "$claims/$base" 2>/dev/null)" = "$1 $tag" ]
}

# Claims a block for a node: the one that it has, the one that it had, or else the next that is free.
claim_for() {
    own=$(cd "$claims" && grep -l -x -F "$2 $tag" [0-9]* 2>/dev/null | head -n 1)
    if [ -n "$own" ]; then
        case $runs in *" $2 "*) echo "::block $1 $own"; return 0 ;; esac
        case $busy in
            *" $((own / block)) "*) rm -f "$claims/$own" ;;
            *) echo "::block $1 $own"; return 0 ;;
        esac
    fi
    offset=-1
    while [ "$offset" -lt "$span" ]; do
        if [ "$offset" -lt 0 ]; then at=$3; else at=$((first + ($4 - first + offset) % span)); fi
        offset=$((offset + 1))
        case $at in '' | *[!0-9]*) continue ;; esac
        case $busy in *" $at "*) continue ;; esac
        if claim "$2" "$at"; then
            echo "::block $1 $base"
            return 0
        fi
    done
    echo "::full"
    return 1
}

printf '%s' "$wants" | {
    while read -r key node before from; do
        claim_for "$key" "$node" "$before" "$from" || exit 0
    done
    echo "::claimed"
}
rm -f "$claims/.$$"
