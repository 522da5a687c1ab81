# Jobs run in containers of the image of nodes, which see the data folder at /data.
python=python3
fill=/opt/gpucl/fill.py
GPUCL_DATA=/data

# Runs a container that takes nothing but the data folder: options and image.
data_container() {
    docker run --init --cap-drop ALL --security-opt no-new-privileges:true --log-driver none \
        --label "com.docker.compose.project=$project" --label com.docker.compose.oneoff=True --label gpucl.probe=data \
        --env NVIDIA_VISIBLE_DEVICES=void --env GPUCL_DATA=/data --mount "type=bind,src=$gpucl_home/data,dst=/data" \
        --mount "type=bind,src=$gpucl_home/lib,dst=/opt/gpucl,readonly" "$@"
}

# Runs a command as the user of jobs: in the container of this stage, in a node, or in a container for it alone.
as_job() {
    container=$project-fill
    if [ "$(docker inspect -f '{{.State.Running}}' "$container" 2>/dev/null)" != true ]; then
        container=$(docker ps --format '{{.Names}} {{.Label "gpucl.key"}}' --filter "label=com.docker.compose.project=$project" |
            sed -n 's/ head$//p; s/ worker[0-9]*$//p' | head -n 1)
    fi
    if [ -n "$container" ]; then
        docker exec -i "$container" "$@"
        return
    fi
    program=$1
    shift
    data_container -i --rm --pull never --network none --entrypoint "$program" "$ray_image" "$@"
}

# Prints the options for a network that the rules of this host close: neighbours do not come in, and the cloud's metadata
# is not reached.
data_network() {
    if [ -z "$bridge" ]; then
        echo "--network host --cgroup-parent $(cat closed/parent)"
        return
    fi
    interface=$(docker network inspect -f '{{index .Options "com.docker.network.bridge.name"}}' "${project}_default" 2>/dev/null) || interface=
    if [ "$interface" = "$bridge" ]; then
        echo "--network ${project}_default"
        return
    fi
    docker network inspect "${project}_fill" >/dev/null 2>&1 ||
        docker network create --label "com.docker.compose.project=$project" --opt "com.docker.network.bridge.name=$bridge" "${project}_fill" >/dev/null
    echo "--network ${project}_fill"
}
