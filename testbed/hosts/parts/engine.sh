# engine.sh: this machine's tools, Docker's engine, and the network.
# shellcheck shell=bash

# Installs the packages (PACKAGE:COMMAND below) whose command is missing.
tools() {
  local p missing=()
  for p in debootstrap:debootstrap iptables:iptables nftables:nft iproute2:ip openssh-client:ssh-keygen gnupg:gpg gpgv:gpgv dpkg-dev:dpkg-scanpackages apt-utils:apt-ftparchive \
    gcc:gcc libc6-dev:- curl:curl xz-utils:xz util-linux:flock python3:python3 openssl:openssl; do
    case $p in *:-) [ -e /usr/include/stdio.h ] || missing+=("${p%:*}") ;; *) command -v "${p#*:}" >/dev/null || missing+=("${p%:*}") ;; esac
  done
  # The engine is needed only when none answers; the command line may come from another package.
  docker version >/dev/null 2>&1 || { command -v dockerd >/dev/null && command -v docker >/dev/null; } || missing+=(docker.io)
  [ ${#missing[@]} = 0 ] || { apt-get -q update; apt-get install -y -q -o DPkg::Lock::Timeout=600 --no-install-recommends "${missing[@]}"; }
}

engine() {
  docker version >/dev/null 2>&1 && return 0
  # Started by hand: the machine may be a container or have no systemd. Tests that nest engines need many inotify
  # watches.
  sysctl -q -w fs.inotify.max_user_instances=1024 fs.inotify.max_user_watches=1048576 || true
  engine_start && return 0
  # An engine that was killed leaves its pid file, and its containerd for some seconds: start it once more.
  pkill -F "$CACHE/dockerd.pid" -x dockerd || true
  sleep 5; rm -f "$CACHE/dockerd.pid"
  engine_start
}
engine_start() {
  local i pid
  setsid dockerd --pidfile "$CACHE/dockerd.pid" >"$CACHE/log/dockerd.log" 2>&1 </dev/null 9>&- 8>&- &
  pid=$!
  for i in $(seq 180); do
    ! docker version >/dev/null 2>&1 || return 0
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.5
  done
  tail -20 "$CACHE/log/dockerd.log"; return 1
}

network() {
  local have; have=$(docker network inspect -f '{{range .IPAM.Config}}{{.Subnet}}{{end}}' "$NETWORK" 2>/dev/null || true)
  [ "$have" = "$SUBNET" ] && return 0
  [ -z "$have" ] || { echo "network $NETWORK exists with $have, wanted $SUBNET: run testbed/hosts/down"; return 1; }
  if ip -4 route show | awk '{print $1}' | grep -qx "$SUBNET"; then echo "subnet $SUBNET is in use: set GPUCL_TESTBED_SUBNET to a free /24"; return 1; fi
  docker network create --subnet "$SUBNET" --gateway "$PREFIX.1" -o com.docker.network.bridge.name="${GPUCL_TESTBED_BRIDGE:-gpucltb0}" "$NETWORK"
}

identity() {
  [ -s "$IDENTITY" ] || ssh-keygen -q -t ed25519 -N '' -C gpucl-testbed -f "$IDENTITY"
}
