# node.sh: the node: a network namespace with one link to this machine, cgroups, and a first process in namespaces of
# its own.
# shellcheck shell=bash

# The cgroups that the kubelet's begin in, so that `down` finds them all.
cgroups() {
  local c
  if [ -f /sys/fs/cgroup/cgroup.controllers ]; then find "/sys/fs/cgroup/$NAME" -maxdepth 0 -type d 2>/dev/null
  else for c in /sys/fs/cgroup/*/; do [ ! -f "$c/tasks" ] || [ ! -d "$c$NAME" ] || echo "$c$NAME"; done; fi
}
make_cgroups() {
  local c
  if [ -f /sys/fs/cgroup/cgroup.controllers ]; then
    for c in cpu cpuset io memory pids; do echo "+$c" >/sys/fs/cgroup/cgroup.subtree_control || true; done
    mkdir -p "/sys/fs/cgroup/$NAME"; return
  fi
  for c in /sys/fs/cgroup/*/; do [ ! -f "$c/tasks" ] || mkdir -p "$c$NAME"; done
  for c in cpus mems; do cat "/sys/fs/cgroup/cpuset/cpuset.$c" >"/sys/fs/cgroup/cpuset/$NAME/cpuset.$c"; done
}
remove_cgroups() {
  local c
  for _ in $(seq 40); do
    for c in $(cgroups); do find "$c" -depth -type d -exec rmdir {} + 2>/dev/null || true; done
    [ -n "$(cgroups)" ] || return 0
    sleep 0.25
  done
  say "error: not removed: $(cgroups | tr '\n' ' ')"; return 1
}

# The link, the namespace and the cgroups; what was killed leaves them.
remove_namespace() {
  ip link del "$VETH" 2>/dev/null || true
  [ ! -e "/run/netns/$NAME" ] || ip netns del "$NAME"
  remove_cgroups
}
make_namespace() {
  if ip -4 route show | awk '{print $1}' | grep -qx "$NET"; then echo "subnet $NET is in use: set GPUCL_KUBE_NET to a free /24"; return 1; fi
  ip netns add "$NAME"
  ip link add "$VETH" type veth peer name eth0 netns "$NAME"
  ip addr add "$MACHINE_IP/24" dev "$VETH"; ip link set "$VETH" up
  ip -n "$NAME" addr add "$NODE_IP/24" dev eth0
}

start_node() {
  local p i
  # After a crash, what the cluster knew is still in etcd.
  remove_namespace; make_namespace; make_cgroups
  setsid nsenter --net="/run/netns/$NAME" unshare --mount --uts --pid --fork --kill-child --mount-proc --propagation private \
    bash "$KUBE/files/node-init" "$STATE" >"$LOG/init.log" 2>&1 </dev/null 7>&- 8>&- 9>&- &
  # nsenter and unshare become each other; the child is the node's first process.
  for _ in $(seq 50); do
    i=$(pgrep -P "$!" | head -1 || true); [ -z "$i" ] || break
    sleep 0.1
  done
  [ -n "$i" ] || { cat "$LOG/init.log"; return 1; }
  echo "$i $(started_at "$i")" >"$STATE/init.pid"
}

# All processes end with the first one: containers too.
stop_node() {
  local p; p=$(node_pid) || return 0
  kill -KILL "$p"
  for _ in $(seq 100); do [ -n "$(node_pid)" ] || return 0; sleep 0.1; done
  say "error: process $p does not end"; return 1
}

remove_node() {
  stop_node; remove_namespace
  # Mounts of the namespaces are gone with them.
  rm -rf --one-file-system "$STATE"/{etcd,kubelet,varlog,sysctl,init.pid,made,operator-made,teams-made}
}
