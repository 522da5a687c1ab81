# Fills a set by a container of the image $data_image: by $data_command, or by what the image runs itself.
printf '%s' "$data_set" | as_job "$python" -I -B "$fill" begin "$GPUCL_DATA"
docker image inspect "$data_image" >/dev/null 2>&1 || {
    echo "pulling $data_image"
    docker pull -q "$data_image" || { echo "data: the image $data_image cannot be pulled"; exit 1; }
}
user=$(docker exec "$project-fill" sh -c 'echo "$(id -u):$(id -g)"')
network=$(data_network)
set -- "$data_image"
[ -z "$data_command" ] || set -- --entrypoint sh "$data_image" -c "$data_command"
code=0
# shellcheck disable=SC2086
data_container --rm --name "$project-filler" $network --user "$user" --env HOME=/tmp --workdir "/data/.gpucl/$data_name.new" "$@" || code=$?
[ "$code" -eq 0 ] || { echo "data: the container of $data_image ended with exit code $code"; exit 1; }
printf '%s' "$data_set" | as_job "$python" -I -B "$fill" finish "$GPUCL_DATA"
