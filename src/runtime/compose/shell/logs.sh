# Prints the logs of this tag's containers, a line each behind `::log NAME `; of one only where `want` names it. Changes nothing.
all=$(timeout 20 docker ps -a --filter "label=com.docker.compose.project=$tag" \
    --format '{{.ID}} {{.Label "com.docker.compose.service"}} {{.Label "gpucl.key"}}' | sort -k 2) || exit 1
chosen=
while read -r id service key; do
    [ -n "$id" ] || continue
    # A container of the user's own compose file has no key of ours.
    key=${key:-$service}
    echo "::known $key"
    plain=$(printf '%s' "$service" | tr -d '-')
    if [ -z "$want" ] || [ "$want" = "$key" ] || [ "$want" = "$plain" ]; then chosen="$chosen $id:$key"; fi
done <<LIST
$all
LIST

show() {
    # shellcheck disable=SC2086
    docker logs $options "${1%%:*}" 2>&1 </dev/null | sed -u "s/^/::log ${1#*:} /"
}

if [ -z "$follow" ]; then
    for one in $chosen; do show "$one"; done
    exit 0
fi
[ -n "$chosen" ] || exit 0
trap '' PIPE
for one in $chosen; do show "$one" & done
# Whoever listens may have gone without a word: then nobody takes this line, and nothing of ours may stay.
while sleep 5 && echo ::here; do
    kill -0 $(jobs -p) 2>/dev/null || break
done 2>/dev/null
kill 0
