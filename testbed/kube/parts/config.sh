# config.sh: certificates, kubeconfigs and the configuration of each component.
# shellcheck shell=bash

# certificate NAME SUBJECT USAGE [NAMES]
certificate() {
  [ ! -s "$PKI/$1.crt" ] || return 0
  openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout "$PKI/$1.key" -out "$PKI/$1.csr" -subj "$2" 2>/dev/null
  { echo "extendedKeyUsage=$3"; [ -z "${4:-}" ] || echo "subjectAltName=$4"; } >"$PKI/$1.ext"
  openssl x509 -req -in "$PKI/$1.csr" -CA "$PKI/ca.crt" -CAkey "$PKI/ca.key" -CAcreateserial -days 3650 -extfile "$PKI/$1.ext" -out "$PKI/$1.new" 2>/dev/null
  rm "$PKI/$1.csr" "$PKI/$1.ext"; mv "$PKI/$1.new" "$PKI/$1.crt"
}

# Kept: a cluster that is made again is known by the same certificates.
certificates() {
  local c
  [ "$(cat "$PKI/for" 2>/dev/null)" = "$NODE_IP" ] || rm -rf "$PKI"
  mkdir -p "$PKI"; echo "$NODE_IP" >"$PKI/for"
  if [ ! -s "$PKI/ca.crt" ]; then
    openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3650 -keyout "$PKI/ca.key" -out "$PKI/ca.new" -subj "/CN=$NAME" 2>/dev/null
    mv "$PKI/ca.new" "$PKI/ca.crt"
  fi
  if [ ! -s "$PKI/sa.pub" ]; then
    openssl genrsa -out "$PKI/sa.key" 2048 2>/dev/null; openssl rsa -in "$PKI/sa.key" -pubout -out "$PKI/sa.pub" 2>/dev/null
  fi
  certificate apiserver /CN=kube-apiserver serverAuth \
    "IP:$NODE_IP,IP:127.0.0.1,IP:${SERVICES%.*}.1,DNS:localhost,DNS:kubernetes,DNS:kubernetes.default,DNS:kubernetes.default.svc,DNS:kubernetes.default.svc.cluster.local"
  certificate apiserver-kubelet /O=system:masters/CN=kube-apiserver-kubelet-client clientAuth
  certificate kubelet-serving "/O=system:nodes/CN=system:node:$NAME" serverAuth "IP:$NODE_IP,DNS:$NAME"
  certificate node "/O=system:nodes/CN=system:node:$NAME" clientAuth
  certificate admin /O=system:masters/CN=admin clientAuth
  for c in scheduler controller-manager proxy; do certificate "$c" "/CN=system:kube-$c" clientAuth; done
  for c in ada bob; do certificate "$c" "/O=gpucl-users/CN=$c" clientAuth; done
}

base64_of() { base64 -w0 "$1"; }

# kubeconfig NAME NAMESPACE: self-contained, so that it can be copied.
kubeconfig() {
  cat >"$STATE/$1.kubeconfig" <<K
apiVersion: v1
kind: Config
clusters: [{name: $NAME, cluster: {server: "https://$NODE_IP:6443", certificate-authority-data: $(base64_of "$PKI/ca.crt")}}]
users: [{name: $1, user: {client-certificate-data: $(base64_of "$PKI/$1.crt"), client-key-data: $(base64_of "$PKI/$1.key")}}]
contexts: [{name: $1@$NAME, context: {cluster: $NAME, user: $1, namespace: $2}}]
current-context: $1@$NAME
K
  chmod 600 "$STATE/$1.kubeconfig"
}

write_containerd() {
  cat <<C
version = 2
root = "$STATE/containerd/root"
state = "/run/containerd/state"
[grpc]
  address = "/run/containerd/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "$STATE/containerd/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "$PAUSE"
  # Where root has no CAP_SYS_RESOURCE, no process may ask for a lower value than its own.
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        SystemdCgroup = false
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "$STATE/etc/cni"
C
}

write_cni() {
  cat <<C
{"cniVersion": "0.4.0", "name": "pods", "plugins": [
 {"type": "bridge", "bridge": "cni0", "isGateway": true, "hairpinMode": true, "ipMasq": false,
  "ipam": {"type": "host-local", "dataDir": "/run/containerd/ipam", "ranges": [[{"subnet": "$PODS"}]], "routes": [{"dst": "0.0.0.0/0"}]}}]}
C
}

write_kubelet() {
  local files; files=$(ulimit -Hn); [ "$files" != unlimited ] || files=1000000
  cat <<C
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
address: $NODE_IP
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: "$PKI/ca.crt"}}
authorization: {mode: Webhook}
tlsCertFile: "$PKI/kubelet-serving.crt"
tlsPrivateKeyFile: "$PKI/kubelet-serving.key"
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
cgroupRoot: /$NAME
failCgroupV1: false
failSwapOn: false
oomScoreAdj: 0
maxOpenFiles: $files
featureGates: {KubeletInUserNamespace: true}
clusterDNS: [$NODE_IP]
clusterDomain: cluster.local
resolvConf: "$STATE/etc/resolv.pods"
podLogsDir: "$STATE/varlog/pods"
volumePluginDir: "$STATE/kubelet/volume-plugins"
enforceNodeAllocatable: [pods]
evictionHard: {memory.available: 100Mi, nodefs.available: 1%, imagefs.available: 1%}
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
serializeImagePulls: false
maxPods: 60
C
}

write_proxy() {
  cat <<C
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
bindAddress: $NODE_IP
hostnameOverride: $NAME
mode: iptables
clusterCIDR: $PODS
clientConnection: {kubeconfig: "$STATE/proxy.kubeconfig"}
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
C
}

# No other names than the cluster's: nothing gets out.
write_corefile() {
  cat <<C
.:53 {
  bind $NODE_IP
  errors
  hosts {
    $NODE_IP $NAME
    fallthrough
  }
  kubernetes cluster.local in-addr.arpa {
    kubeconfig $ADMIN admin@$NAME
    pods insecure
    ttl 5
  }
  cache 5
  ready $NODE_IP:8181
}
C
}

uuid_of() { python3 -c 'import sys, uuid; print("GPU-%s" % uuid.uuid5(uuid.NAMESPACE_DNS, sys.argv[1]))' "$1"; }

configuration() {
  local u c i etc=$STATE/etc
  rm -rf "$etc" "${STATE:?}/bin" "$STATE/standin"; mkdir -p "$etc/cni" "$STATE/bin" "$STATE/standin" "$LOG"
  certificates
  for u in admin:default ada:team-a bob:team-b scheduler:default controller-manager:default proxy:default node:default; do kubeconfig "${u%:*}" "${u#*:}"; done
  write_containerd >"$etc/containerd.toml"; write_cni >"$etc/cni/10-pods.conflist"
  write_kubelet >"$etc/kubelet.yaml"; write_proxy >"$etc/proxy.yaml"; write_corefile >"$etc/Corefile"
  cp "$KUBE/files/audit.yaml" "$etc/"
  printf 'nameserver %s\nsearch default.svc.cluster.local svc.cluster.local cluster.local\n' "$NODE_IP" >"$etc/resolv.conf"
  : >"$etc/resolv.pods"   # what pods have besides the cluster's name server
  printf "%s='%s'\n" NAME "$NAME" NODE_IP "$NODE_IP" SERVICES "$SERVICES" GPUS "$GPUS" >"$STATE/env"
  for c in "$K8S_DIR"/* "$COREDNS_DIR/coredns"; do ln -s "$c" "$STATE/bin/"; done
  cp "$STANDIN/nvidia-smi" "$STANDIN/libcuda.so.1" "$STATE/standin/"
  for ((i = 0; i < GPUS; i++)); do printf '%d %s 0000:%02x:00.0\n' "$i" "$(uuid_of "$NAME-$i")" $((16 + i * 16)); done >"$STATE/standin/gpus"
}
