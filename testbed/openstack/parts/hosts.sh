# hosts.sh: the hosts of testbed/hosts behind the servers, their network, and the daemons that connect them.
# shellcheck shell=bash

# Makes the images that servers boot in advance, not while a test waits for a boot.
hosts_up() {
  "$HERE/up" 9>&- >"$ROOT/hosts.json.new"; mv "$ROOT/hosts.json.new" "$ROOT/hosts.json"
  # In a subshell: these parts define names of their own.
  (
    for f in engine roots repo images hostimages; do . "$HERE/parts/$f.sh"; done
    case $(cat "$ROOT/host-image" 2>/dev/null || echo fresh) in
      docker) docker_image; firewalld_image "$DOCKER_HOST_IMAGE" ;;
      ready) ready_store; firewalld_image "$DOCKER_HOST_IMAGE" ;;
      *) firewalld_image "$HOST" ;;
    esac
  )
}

# Whether any service of another state runs.
others_run() { (RUN=$1/run; for f in "$RUN"/*.pid; do if alive "$(basename "$f" .pid)"; then exit 0; fi; done; exit 1); }

fixed_network() {
  local owner; owner=$(network_owner)
  if [ -n "$owner" ] && [ "$owner" != "$ROOT" ]; then
    ! others_run "$owner" || die "the network of hosts belongs to the services in $owner: end those first, with GPUCL_OPENSTACK_ROOT=$owner testbed/openstack/down"
    # They or the machine crashed: nobody is left to end them.
    say "        the services in $owner no longer run: their hosts and their network are removed"
    remove_network; owner=''
  fi
  [ -n "$owner" ] || docker network create --label "gpucl-openstack=$ROOT" --subnet "$FIXED" --gateway "$FIXED_GATEWAY" -o com.docker.network.bridge.name="$FIXED_BRIDGE" "$FIXED_NETWORK" >/dev/null
  # Floating addresses are routed to the bridge; the rules of wire translate them to hosts. An unassigned one does not
  # answer.
  ip route replace "$PUBLIC.0/24" dev "$FIXED_BRIDGE" src "$FIXED_GATEWAY"
}

rule() { iptables -w 10 -t "$1" -C "${@:2}" 2>/dev/null || iptables -w 10 -t "$1" -I "${@:2}"; }
rules() {
  local c bridge
  bridge=$(docker network inspect -f '{{index .Options "com.docker.network.bridge.name"}}' "$NETWORK")
  for c in "nat:$CHAIN" "nat:$CHAIN-POST" "filter:$CHAIN" "filter:$CHAIN-FORWARD"; do iptables -w 10 -t "${c%:*}" -nL "${c#*:}" >/dev/null 2>&1 || iptables -w 10 -t "${c%:*}" -N "${c#*:}"; done
  rule nat OUTPUT -j "$CHAIN"; rule nat PREROUTING -j "$CHAIN"
  # For a server that connects to a floating address of its own network.
  rule nat "$CHAIN-POST" -s "$FIXED" -d "$FIXED" -m conntrack --ctstate DNAT -j MASQUERADE
  rule nat POSTROUTING -j "$CHAIN-POST"
  # This machine is outside of the network: it must not reach fixed addresses.
  rule filter "$CHAIN" -d "$FIXED" -m conntrack --ctdir ORIGINAL ! --ctstate DNAT -j REJECT --reject-with icmp-host-unreachable
  rule filter OUTPUT -j "$CHAIN"
  # Hosts reach the registry and the apt repositories of testbed/hosts, and are reached from there by floating addresses
  # only.
  rule filter "$CHAIN-FORWARD" -i "$bridge" -o "$FIXED_BRIDGE" -m conntrack --ctstate ESTABLISHED,RELATED,DNAT -j ACCEPT
  rule filter "$CHAIN-FORWARD" -i "$FIXED_BRIDGE" -o "$bridge" -j ACCEPT
  rule filter DOCKER-USER -j "$CHAIN-FORWARD"
}

wiring() {
  fixed_network; rules
  start wire /usr/bin/python3 "$OPENSTACK/wire" --root "$ROOT" --network "$FIXED_NETWORK" --chain "$CHAIN"
  start faults /usr/bin/python3 "$OPENSTACK/faults" --listen "127.0.0.1:$P_FAULTS" --control "127.0.0.1:$P_FAULTS_CONTROL" --credentials "$CREDENTIALS"
  wait_for 20 faults tcp_answers "$P_FAULTS_CONTROL"
  alive wire || { cat "$LOG/wire.log"; return 1; }
}

# The memory of all daemons, in MiB.
memory() {
  local f p q n sum=0
  for f in "$RUN"/*.pid; do
    read -r p _ <"$f" || continue
    for q in $(ps -o pid= -s "$p" 2>/dev/null); do n=$(awk '/^Pss:/{print $2}' "/proc/$q/smaps_rollup" 2>/dev/null || true); sum=$((sum + ${n:-0})); done
  done
  echo $((sum / 1024))
}
