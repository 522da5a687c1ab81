# Starts the project. $files are the `-f` options for its files, $config is the digest of these files.
# No container can have more open files than the host allows root.
GPUCL_FILES=$(ulimit -H -n)
if [ "$GPUCL_FILES" = unlimited ] || [ "$GPUCL_FILES" -gt 65536 ]; then GPUCL_FILES=65536; fi
export GPUCL_FILES
# In the host network, the rules identify containers by their control group.
GPUCL_GROUP=$(cat closed/parent)
export GPUCL_GROUP
# Nothing may be published without these rules.
nft list table inet "$closed" >/dev/null || {
    echo "the rules that close this host to its neighbours are not set: there is no nftables table $closed"
    exit 1
}
# The rules name the interface: recreate a network with another one.
if [ -n "$bridge" ] && interface=$(docker network inspect -f '{{index .Options "com.docker.network.bridge.name"}}' "${project}_default" 2>/dev/null) &&
    [ "$interface" != "$bridge" ]; then
    # shellcheck disable=SC2086
    docker compose --progress plain -p "$project" $files down
fi
# Where compose replaces the head, workers need not drain: nothing is left that could take over what they run.
if [ -n "$head" ] && was=$(docker inspect -f '{{index .Config.Labels "com.docker.compose.config-hash"}}' "$head" 2>/dev/null); then
    # shellcheck disable=SC2086
    case $(docker compose -p "$project" $files config --hash head) in *" $was") ;; *) touch lib/.ending ;; esac
fi
# shellcheck disable=SC2086
docker compose --progress plain -p "$project" $files up -d --remove-orphans --quiet-pull
rm -f lib/.ending
printf '%s\n' "$config" >compose/applied
