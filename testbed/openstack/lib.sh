# lib.sh: functions and variables of the scripts of testbed/openstack. Sourced, never run.
# shellcheck shell=bash
OPENSTACK=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$OPENSTACK/../hosts/lib.sh"

# Two sites can run at once, each with its hosts; what the first has, and the second. Networks: floating addresses (the
# first three parts of a /24), and fixed ones (a /22).
# NODES: name:node_type:gpu_model:gpu_count:kind. kind: pool (Blazar's), broken (Blazar's, not reservable), plain (not Blazar's)
case ${GPUCL_OPENSTACK_SITE:-1} in
  1)
    ROOT=/var/tmp/gpucl-openstack REGION=CHI@UC PORT=25000 PUBLIC=198.51.100 FIXED=10.140.80.0/22
    FIXED_NETWORK=gpucl-openstack FIXED_BRIDGE=gpuclos0 CHAIN=GPUCL-OS
    NODES="liqid01:compute_liqid:A100:2:pool liqid02:compute_liqid:A100:1:pool c03-04:gpu_mi100:MI100:2:pool c03-05:gpu_mi100:MI100:2:pool broken01:compute_liqid:A100:2:broken plain01:-:-:0:plain"
    ;;
  2)
    ROOT=/var/tmp/gpucl-openstack-2 REGION=CHI@TACC PORT=25020 PUBLIC=203.0.113 FIXED=10.140.84.0/22
    FIXED_NETWORK=gpucl-openstack-2 FIXED_BRIDGE=gpuclos1 CHAIN=GPUCL-OS2
    NODES="gigaio01:compute_gigaio:A100:2:pool gigaio02:compute_gigaio:A100:1:pool"
    ;;
  *) die "GPUCL_OPENSTACK_SITE is 1 or 2" ;;
esac
ROOT=${GPUCL_OPENSTACK_ROOT:-$ROOT} REGION=${GPUCL_OPENSTACK_REGION:-$REGION} PORT=${GPUCL_OPENSTACK_PORT:-$PORT}
PUBLIC=${GPUCL_OPENSTACK_PUBLIC:-$PUBLIC} FIXED=${GPUCL_OPENSTACK_FIXED:-$FIXED} NODES=${GPUCL_OPENSTACK_NODES:-$NODES}
FIXED_NETWORK=${GPUCL_OPENSTACK_NETWORK:-$FIXED_NETWORK} FIXED_BRIDGE=${GPUCL_OPENSTACK_BRIDGE:-$FIXED_BRIDGE} CHAIN=${GPUCL_OPENSTACK_CHAIN:-$CHAIN}
FIXED_GATEWAY=${FIXED%.*}.1
ETC=$ROOT/etc LOG=$ROOT/log RUN=$ROOT/run DATA=$ROOT/data
# Every account's password. Everything listens on loopback only.
PASS=gpucl
MAX_LEASE_SECONDS=604800
# Consecutive ports, all on loopback.
P_KEYSTONE=$PORT P_PLACEMENT=$((PORT + 1)) P_GLANCE=$((PORT + 2)) P_NEUTRON=$((PORT + 3)) P_NOVA=$((PORT + 4)) P_BLAZAR=$((PORT + 5))
P_DB=$((PORT + 6)) P_AMQP=$((PORT + 7)) P_DIST=$((PORT + 8)) P_EPMD=$((PORT + 9)) P_FAULTS=$((PORT + 10)) P_FAULTS_CONTROL=$((PORT + 11))
KS=http://127.0.0.1:$P_KEYSTONE
DBURL="mysql+pymysql://gpucl:$PASS@127.0.0.1:$P_DB"
AMQP="rabbit://guest:guest@127.0.0.1:$P_AMQP/"

# The software is stored by the digest of its inputs, and several states can share it.
SOFTWARE=$CACHE/openstack/$(digest "$(files_digest "$OPENSTACK"/files/requirements.txt "$OPENSTACK"/files/gpucl_*.py)" "$(/usr/bin/python3 -V)" 1)
VENV=$SOFTWARE/venv BIN=$SOFTWARE/venv/bin RABBIT=$SOFTWARE/rabbitmq
CREDENTIALS=$ROOT/credentials.json

# The caller's Python and OpenStack variables must not reach the services; without bytecode files, each of them starts
# slowly.
unset PYTHONDONTWRITEBYTECODE PYTHONPATH PYTHONHOME || true
for v in $(compgen -e | grep -E '^OS_' || true); do unset "$v"; done
export PYTHONUNBUFFERED=1 no_proxy=127.0.0.1,localhost NO_PROXY=127.0.0.1,localhost

# The ids of hosts, as Ironic gives them: a node's name is only in Blazar's properties.
uuid_of() { /usr/bin/python3 -c 'import uuid, sys; print(uuid.uuid5(uuid.NAMESPACE_DNS, sys.argv[1]))' "$1"; }

started_at() { awk '{sub(/^.*\) /,""); print $20}' "/proc/$1/stat" 2>/dev/null || true; }

# A file in RUN holds `pid start-time`, so that a reused pid is never taken for ours.
alive() {
  local p s
  [ -f "$RUN/$1.pid" ] || return 1
  read -r p s <"$RUN/$1.pid" || return 1
  [ -n "${s:-}" ] && [ "$(started_at "$p")" = "$s" ]
}

# start NAME COMMAND...: starts a daemon in its own session.
start() {
  local name=$1 p; shift
  ! alive "$name" || return 0
  # setsid execs, so pid and start time stay the same.
  ( cd "$DATA" && exec setsid "$@" >>"$LOG/$name.log" 2>&1 </dev/null 9>&- ) &
  p=$!
  echo "$p $(started_at "$p")" >"$RUN/$name.pid"
}

# stop NAME [SIGNAL]: ends it and the rest of its process group; kills them after 15 s.
stop() {
  local name=$1 signal=${2:-TERM} p s i
  if alive "$name"; then
    read -r p s <"$RUN/$name.pid"
    kill "-$signal" "$p" 2>/dev/null || true
    for i in $(seq 60); do alive "$name" || break; sleep 0.25; done
    kill -KILL -- "-$p" 2>/dev/null || true
  fi
  rm -f "$RUN/$name.pid"
}

# wait_for SECONDS NAME COMMAND...
wait_for() {
  local limit=$1 name=$2 t0; shift 2; t0=$(now)
  until "$@" >/dev/null 2>&1; do
    if [ $(( $(now) - t0 )) -ge "$limit" ]; then
      dead; [ ! -e "$LOG/$name.log" ] || tail -15 "$LOG/$name.log" >&2
      die "$name did not answer within $limit s: $LOG/$name.log"
    fi
    sleep 0.25
  done
}
# Lists the daemons that have ended unexpectedly.
dead() {
  local f n
  for f in "$RUN"/*.pid; do
    n=$(basename "$f" .pid); [ ! -f "$f" ] || alive "$n" || say "  $n has ended: $LOG/$n.log"
  done
}
http_answers() { [ "$(curl -s -o /dev/null -m 3 -w '%{http_code}' "$1")" != 000 ]; }
tcp_answers() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }
sql() { mariadb --no-defaults -uroot -S "$RUN/mysql.sock" -N -e "$1"; }
# The label of all hosts on the network.
OF=gpucl-openstack-of=$FIXED_NETWORK
# The state (ROOT) that made the hosts' network. Empty if there is none.
network_owner() { docker network inspect -f '{{index .Labels "gpucl-openstack"}}' "$FIXED_NETWORK" 2>/dev/null || true; }
# The container of a server.
container_of() { printf 'gpucl-testbed-os-%s\n' "$1"; }
