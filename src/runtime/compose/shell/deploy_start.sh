# Starts the project. $files are the options that name its files, $config the digest of all that it is made of.
# No container may have more open files than the host gives to root.
GPUCL_FILES=$(ulimit -H -n)
if [ "$GPUCL_FILES" = unlimited ] || [ "$GPUCL_FILES" -gt 65536 ]; then GPUCL_FILES=65536; fi
export GPUCL_FILES
# Where containers are on the host's own network, they are known to its rules by their control group.
GPUCL_GROUP=$(cat closed/parent)
export GPUCL_GROUP
# Before anything is published, and never without.
nft list table inet "$closed" >/dev/null || {
    echo "the rules that close this host to its neighbours are not set: there is no nftables table $closed"
    exit 1
}
# The rules name the interface: a network that has another one is made anew.
if [ -n "$bridge" ] && interface=$(docker network inspect -f '{{index .Options "com.docker.network.bridge.name"}}' "${project}_default" 2>/dev/null) &&
    [ "$interface" != "$bridge" ]; then
    # shellcheck disable=SC2086
    docker compose --progress plain -p "$project" $files down
fi
# shellcheck disable=SC2086
docker compose --progress plain -p "$project" $files up -d --remove-orphans --quiet-pull
printf '%s\n' "$config" >compose/applied
