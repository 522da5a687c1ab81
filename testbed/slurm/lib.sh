# lib.sh: functions and variables of the scripts of testbed/slurm. Sourced, never run.
# shellcheck shell=bash disable=SC1090,SC2034
SLURM=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$SLURM/../hosts/lib.sh"
for f in engine roots repo; do . "$HERE/parts/$f.sh"; done

# The names of all containers and volumes begin with the network's.
NETWORK=${GPUCL_SLURM_NETWORK:-gpucl-slurm}
SUBNET=${GPUCL_SLURM_SUBNET:-10.214.0.0/24}
PREFIX=${SUBNET%.*}
BRIDGE=${GPUCL_SLURM_BRIDGE:-gpuclsl0}
STATE=$CACHE/slurm/$NETWORK

# name:last part of the address:type of GPU:number of them
NODES="n1:21:a100:2 n2:22:a100:1 n3:23:v100:2"
# Everything that runs, in the order in which it is started.
MACHINES="ctl:10 login:11 n1:21 n2:22 n3:23"
USERS="ada bob"
CPUS=8 MEMORY=64000   # of a node, as Slurm believes; the machine has fewer

container() { printf '%s-%s\n' "$NETWORK" "$1"; }
address_of() { local m; for m in $MACHINES; do [ "${m%:*}" != "$1" ] || printf '%s.%s\n' "$PREFIX" "${m#*:}"; done; }
state_of() { docker inspect -f '{{.State.Running}} {{index .Config.Labels "testbed"}}' "$(container "$1")" 2>/dev/null || true; }
