# Prints the logs of this tag's containers, each line after `::log NAME `; only one if `want` names it. Changes nothing.
all=$(timeout 20 docker ps -a --filter "label=com.docker.compose.project=$tag" \
    --format '{{if not (.Label "gpucl.probe")}}{{.ID}} {{.Label "com.docker.compose.service"}} {{.Label "gpucl.key"}}{{end}}' | sort -k 2) || exit 1
chosen=
while read -r id service key; do
    [ -n "$id" ] || continue
    # A container from the user's own compose file has no gpucl key.
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
