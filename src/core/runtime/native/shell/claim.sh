# Claims a block of ports for each of this host's nodes. `wants` has a line per node: its key, its tag, its previous
# block, and the first block to try. A claim is a file in the folder of short paths, named after the block's first port,
# that holds the node's tag and the host's. Whoever claims looks into the folders of this user's other clusters
# afterwards, and gives way to a claim there: two programs that run at the same time cannot take the same block.

# Chooses the folder of short paths, or makes it again where a cleaner of /tmp removed it. Others may make a folder of
# any name first: then another name is chosen.
make_links() {
    if [ -n "$links" ]; then
        mkdir -m 700 "$links" 2>/dev/null
        why=$(links_are_private) && return 0
        # Running nodes have their sockets there.
        [ -z "$(ours)" ] || { echo "$why"; return 1; }
    fi
    mkdir -p -m 700 "$home" || return 1
    tries=0
    while [ "$tries" -lt 20 ]; do
        tries=$((tries + 1))
        links=/tmp/gpucl-$(LC_ALL=C tr -d -c a-z0-9 </dev/urandom 2>/dev/null | head -c 8)
        # Its name is on record before it exists.
        { printf '%s\n' "$links" >"$home/short.new" && mv -f "$home/short.new" "$home/short"; } || return 1
        if mkdir -m 700 "$links" 2>/dev/null; then return 0; fi
    done
    echo "no folder can be made in /tmp: $(mkdir -m 700 "$links" 2>&1)"
    return 1
}

make_links || exit 1
claims=$links/ports
mkdir -p -m 700 "$claims" || exit 1
[ -L "$links/r" ] || ln -s "$home/ray" "$links/r" || exit 1

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

# Whether the folder $1 is of a host that has another now, or none: its claims do not count.
is_left() {
    to=$(readlink "$1/r" 2>/dev/null) || return 1
    [ "$(cat "${to%/ray}/short" 2>/dev/null)" != "$1" ]
}

# Claims block $2 for node $1; fails when it belongs to another node.
claim() {
    base=$(($2 * block))
    if [ -e "$claims/$base" ]; then
        [ "$(cat "$claims/$base" 2>/dev/null)" = "$1 $tag" ]
        return
    fi
    printf '%s %s\n' "$1" "$tag" >"$claims/.new" && mv -f "$claims/.new" "$claims/$base" || return 1
    for other in /tmp/gpucl-*/ports/"$base"; do
        place=${other%/ports/*}
        if [ ! -e "$other" ] || [ "$place" = "$links" ] || [ ! -O "$place" ] || is_left "$place"; then continue; fi
        rm -f "$claims/$base"
        return 1
    done
}

# Claims a block for a node: its current one, its previous one, or else the next free one.
claim_for() {
    own=$(cd "$claims" && grep -l -x -F "$2 $tag" [0-9]* 2>/dev/null | head -n 1)
    case $runs$3 in
        *" $2 "*-) ;;
        # It listens there itself, even where its claim was lost with the folder.
        *" $2 "*) if [ -n "$own" ] || claim "$2" "$3"; then echo "::block $1 ${own:-$base}"; return 0; fi ;;
    esac
    if [ -n "$own" ]; then
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

