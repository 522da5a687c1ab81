# nodes.sh: the containers.
# shellcheck shell=bash

internal_network() {
  local have; have=$(docker network inspect -f '{{range .IPAM.Config}}{{.Subnet}}{{end}}' "$NETWORK" 2>/dev/null || true)
  [ "$have" = "$SUBNET" ] && return 0
  [ -z "$have" ] || { echo "network $NETWORK exists with $have, wanted $SUBNET: run testbed/slurm/down"; return 1; }
  if ip -4 route show | awk '{print $1}' | grep -qx "$SUBNET"; then echo "subnet $SUBNET is in use: set GPUCL_SLURM_SUBNET to a free /24"; return 1; fi
  # Internal: jobs have no internet; this machine reaches every container.
  docker network create --internal --subnet "$SUBNET" --gateway "$PREFIX.1" -o com.docker.network.bridge.name="$BRIDGE" --label "gpucl-slurm=$NETWORK" "$NETWORK"
}

# The containers, the shared home and the network.
remove_cluster() {
  docker ps -aq --filter "label=gpucl-slurm=$NETWORK" | xargs -r docker rm -fv >/dev/null
  ! docker volume inspect "$NETWORK-home" >/dev/null 2>&1 || docker volume rm "$NETWORK-home" >/dev/null
  ! docker network inspect "$NETWORK" >/dev/null 2>&1 || docker network rm "$NETWORK" >/dev/null
}

# create MACHINE DIGEST ACCOUNTING
create() {
  local m=$1 c d k rc=0 hosts=(); c=$(container "$m"); d=$(mktemp -d)
  for k in $MACHINES; do hosts+=(--add-host "${k%:*}:$(address_of "${k%:*}")"); done
  tree "$m" "$d" "$3"
  # All capabilities but one, as in testbed/hosts/host.
  docker create --name "$c" --hostname "$m" --init --stop-signal SIGTERM --network "$NETWORK" --ip "$(address_of "$m")" "${hosts[@]}" \
    --label "gpucl-slurm=$NETWORK" --label "testbed=$2" --shm-size 64g -v "$NETWORK-home:/home" \
    --cap-add ALL --cap-drop SYS_RESOURCE --security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined \
    --device-cgroup-rule 'a *:* rwm' --cgroupns private "$IMAGE" /usr/local/sbin/slurm-init >/dev/null || rc=$?
  if [ "$rc" = 0 ]; then
    tar -C "$d" --owner=0 --group=0 -c . | docker cp - "$c:/" || rc=$?
  fi
  rm -rf "$d"; return "$rc"
}

# Whether the daemons of a machine run.
daemons_run() {
  local p
  case $1 in ctl) p=(munged slurmctld) ;; login) p=(munged sshd) ;; *) p=(munged slurmd sshd) ;; esac
  [ "$1" != ctl ] || [ "${accounting:?}" = no ] || p+=(mariadbd slurmdbd)
  docker exec "$(container "$1")" sh -c 'for p; do pgrep -x "$p" >/dev/null || { echo "$p does not run"; exit 1; }; done' sh "${p[@]}"
}

# The nodes that can take jobs.
ready_nodes() { docker exec "$(container login)" sinfo -hN -p gpu -o '%N %t' 2>/dev/null | grep -cE ' (idle|mix|alloc|comp|resv)$' || true; }

# start DIGEST: starts what is there and stopped, makes what is missing or has another configuration.
machines() {
  local m state name
  for m in $MACHINES; do
    m=${m%:*}; state=$(state_of "$m"); name=$(container "$m")
    case $state in
      "true $1") daemons_run "$m" || docker restart -t 1 "$name" ;;
      "false $1") docker start "$name" ;;
      *)
        [ -z "$state" ] || docker rm -fv "$name"
        create "$m" "$1" "$accounting"; docker start "$name" ;;
    esac
  done
}

answers() { timeout 2 bash -c "exec 3<>/dev/tcp/$1/22 && head -c 4 <&3 | grep -q SSH-" 2>/dev/null; }
cluster_answers() {
  local end=$((SECONDS + 90)) m
  while [ "$SECONDS" -lt "$end" ]; do
    if [ "$(ready_nodes)" = 3 ] && answers "$(address_of login)" && answers "$(address_of n3)"; then return 0; fi
    sleep 0.5
  done
  echo "the cluster did not answer within 90 s:"
  docker exec "$(container login)" sinfo -N -l || true
  for m in $MACHINES; do
    m=${m%:*}; echo "== $m: $(daemons_run "$m" || true)"
    docker logs --tail 5 "$(container "$m")" || true
    docker exec "$(container "$m")" sh -c 'tail -n 8 /var/log/slurm/*.log' || true
  done
  return 1
}

# Accounts: def-ada has both users, def-bob only bob. QoS `small` is limited to 2 GPUs per user.
accounts() {
  docker exec -i "$(container ctl)" bash -eu <<'ACCOUNTS'
  s() { sacctmgr -i "$@" || [ $? = 1 ]; }   # 1: nothing to change
  s add cluster testbed
  s add qos small; s modify qos small set MaxTRESPU=gres/gpu=2 MaxWall=00:30:00
  s add account def-ada description=ada organization=testbed
  s add account def-bob description=bob organization=testbed
  s add user ada account=def-ada; s add user bob account=def-bob; s add user bob account=def-ada
  s modify user ada bob set qos=normal,small defaultqos=normal
  sacctmgr -n -P list associations format=account,user,qos | grep -q '^def-ada|ada|normal,small$'
ACCOUNTS
}
