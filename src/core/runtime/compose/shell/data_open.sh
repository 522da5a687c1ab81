# Starts the container in which this stage fills data sets, and gives the data folder to its user.
nft list table inet "$closed" >/dev/null || {
    echo "the rules that close this host to its neighbours are not set: there is no nftables table $closed"
    exit 1
}
mkdir -p data lib
chmod 755 lib
docker rm -f "$project-fill" "$project-filler" >/dev/null 2>&1 || :
network=$(data_network)
# shellcheck disable=SC2086
data_container -d --name "$project-fill" --pull missing $network --entrypoint sleep "$ray_image" infinity >/dev/null
# From outside, since the engine may give users other numbers.
chown "$(stat -c %u:%g "/proc/$(docker inspect -f '{{.State.Pid}}' "$project-fill")")" data
