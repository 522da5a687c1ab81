# stop.sh: stops the daemons.
# shellcheck shell=bash

# unrule TABLE CHAIN PARENT...: removes one of our chains, and the jumps to it.
unrule() {
  local parent
  for parent in "${@:3}"; do while iptables -w 10 -t "$1" -D "$parent" -j "$2" 2>/dev/null; do :; done; done
  iptables -w 10 -t "$1" -F "$2" 2>/dev/null && iptables -w 10 -t "$1" -X "$2" || true
}
# Removes the hosts' network, the hosts on it, and the rules that lead there.
remove_network() {
  docker ps -aq --filter "label=$OF" | xargs -r docker rm -fv >/dev/null
  unrule nat "$CHAIN" OUTPUT PREROUTING; unrule nat "$CHAIN-POST" POSTROUTING
  unrule filter "$CHAIN" OUTPUT; unrule filter "$CHAIN-FORWARD" DOCKER-USER
  # The route goes with the bridge.
  ! docker network inspect "$FIXED_NETWORK" >/dev/null 2>&1 || docker network rm "$FIXED_NETWORK" >/dev/null
}
unwire() {
  stop wire; stop faults
  docker version >/dev/null 2>&1 || return 0
  # Another state's network and hosts are not this one's.
  case $(network_owner) in '' | "$ROOT") remove_network ;; esac
}

# stop_all [SIGNAL]
stop_all() {
  local f n
  for f in "$RUN"/*.pid; do
    [ -f "$f" ] || continue
    n=$(basename "$f" .pid)
    case $n in mariadb | rabbitmq | epmd) ;; *) stop "$n" "${1:-TERM}" & ;; esac
  done
  wait
  # The services that the others depend on come last.
  for n in rabbitmq epmd mariadb; do stop "$n" "${1:-TERM}"; done
}
