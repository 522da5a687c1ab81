# Claims a block of ports for each of this host's nodes. `wants` has a line per node: its key, its tag, its previous
# block, and the first block to try. A claim is a file named after the block's first port that holds the node's tag and
# the host's: two programs that run at the same time cannot take the same block.
claims=$links/ports

# Only this user may have access to the folder of short paths.
mkdir -p -m 700 "$links" 2>/dev/null
links_are_private || exit 1
mkdir -p -m 700 "$claims" || exit 1

inspect_ports

# Running nodes of this host keep their ports.
runs=" $(for pid in $(carrying "GPUCL_HOST=$tag"); do
    { tr '\0' '\n' <"/proc/$pid/environ" | sed -n 's/^GPUCL_TAG=//p'; } 2>/dev/null
done | sort -u | tr '\n' ' ')"

taken=$(report_taken)
if [ -n "$taken" ]; then
    echo "$taken"
    exit 0
fi

# Claims block $2 for node $1; fails when it belongs to another node.
claim() {
    base=$(($2 * block))
    # An earlier claim may be linked to this name, and must not change.
    rm -f "$claims/.$$"
    printf '%s %s\n' "$1" "$tag" >"$claims/.$$" || return 1
    ln "$claims/.$$" "$claims/$base" 2>/dev/null || [ "$(cat "$claims/$base" 2>/dev/null)" = "$1 $tag" ]
}

# Claims a block for a node: its current one, its previous one, or else the next free one.
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
