# lib.sh: functions and variables of the scripts of testbed/kube. Sourced, never run.
# shellcheck shell=bash disable=SC2034
KUBE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$KUBE/../hosts/lib.sh"

KUBERNETES=v1.34.4 ETCD=v3.6.4 COREDNS=v1.14.0 KUBERAY=v1.6.2
OLDER_KUBERAY=v1.4.2 NEWER_KUBERAY=v1.7.0   # only their CRDs
MONITORING=v0.90.1                           # the Prometheus Operator: its CRDs, and by testbed/kube/prometheus itself
GO_NEEDED=1.25

# The node, its network namespace, its cgroups and its state all have this name.
NAME=${GPUCL_KUBE_NAME:-gpucl-kube}
NET=${GPUCL_KUBE_NET:-10.77.0.0/24}
GPUS=${GPUCL_KUBE_GPUS:-2}
case $NAME in *[!a-z0-9-]* | -* | *-) die "GPUCL_KUBE_NAME: lower-case letters, digits and hyphens" ;; esac
case $NET in *.0/24) ;; *) die "GPUCL_KUBE_NET: a /24, like 10.77.0.0/24" ;; esac
case $GPUS in [0-9] | 1[0-6]) ;; *) die "GPUCL_KUBE_GPUS: 0 to 16" ;; esac
MACHINE_IP=${NET%.*}.1 NODE_IP=${NET%.*}.2   # the two ends of the link
VETH=gpuclk-$(digest "$NAME" | cut -c1-6)
PODS=10.244.1.0/24 SERVICES=10.96.0.0/16     # exist in the namespace only

STATE=$CACHE/kube/$NAME
LOG=$STATE/log PKI=$STATE/pki
SOFTWARE=$CACHE/kube/software
CRDS=$CACHE/kube/crds
ADMIN=$STATE/admin.kubeconfig
IMAGE=gpucl-test/ray:$RAY
# namespace:user
NAMESPACES="team-a:ada team-b:bob strict:ada"

started_at() { awk '{sub(/^.*\) /,""); print $20}' "/proc/$1/stat" 2>/dev/null || true; }

# STATE/init.pid holds `pid start-time` of the node's first process, so that a reused pid is never taken for it.
node_pid() {
  local p s
  [ -f "$STATE/init.pid" ] && read -r p s <"$STATE/init.pid" && [ -n "${s:-}" ] && [ "$(started_at "$p")" = "$s" ] && echo "$p"
}
node_runs() { node_pid >/dev/null; }

# inside COMMAND...: as root in the node's namespaces.
inside() {
  local p; p=$(node_pid) || { say "error: the node does not run: testbed/kube/up"; return 1; }
  nsenter -t "$p" --mount --uts --net --pid -- env PATH="$STATE/bin:$PATH" "$@"
}

admin() { "$STATE/bin/kubectl" --kubeconfig "$ADMIN" "$@"; }
