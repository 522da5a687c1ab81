# software.sh: this machine's packages, and the programs that no distribution has: Kubernetes, CoreDNS and KubeRay's
# operator, built from the modules of Go's proxy.
# shellcheck shell=bash

# Packages whose file or command is missing. Docker's engine already needs containerd and runc.
kube_tools() {
  local p missing=()
  tools
  for p in containerd:containerd runc:runc conntrack:conntrack procps:pgrep; do command -v "${p#*:}" >/dev/null || missing+=("${p%:*}"); done
  [ -x /usr/lib/cni/bridge ] || missing+=(containernetworking-plugins)
  [ ${#missing[@]} = 0 ] || { apt-get -q update; apt-get install -y -q --no-install-recommends "${missing[@]}"; }
}

LDFLAGS="-s -w"
# What a build is made of is part of its folder's name.
K8S_DIR=$SOFTWARE/kubernetes-$KUBERNETES-$(digest "$ETCD" "$(files_digest "$KUBE"/files/{k8all.go,gpu-plugin.go,go-mod.py})" 1)
COREDNS_DIR=$SOFTWARE/coredns-$COREDNS-$(digest "$(files_digest "$KUBE/files/coredns.go")" 1)
KUBERAY_DIR=$SOFTWARE/kuberay-$KUBERAY-1
MONITORING_DIR=$SOFTWARE/prometheus-operator-crds-$MONITORING-2
SOFTWARE_KEY=$(digest "$K8S_DIR" "$COREDNS_DIR" "$KUBERAY_DIR")

go_is_there() {
  local v
  command -v go >/dev/null || die "there is no go on the PATH: Kubernetes is built with Go $GO_NEEDED or newer"
  v=$(GOTOOLCHAIN=local go env GOVERSION); v=${v#go}; v=${v%% *}
  [ "$(printf '%s\n' "$GO_NEEDED" "$v" | sort -V | head -1)" = "$GO_NEEDED" ] || die "go on the PATH is $v: Kubernetes is built with Go $GO_NEEDED or newer"
}

# finish DIR FROM: a folder is there whole, or not at all.
finish() { mkdir -p "$SOFTWARE"; rm -rf "$1"; mv -T "$2" "$1"; }
build_folder() { rm -rf "$CACHE/kube/build/$1"; mkdir -p "$CACHE/kube/build/$1/out"; cd "$CACHE/kube/build/$1" || return 1; }

# One program for etcd and all of Kubernetes: one link instead of seven.
kubernetes() {
  [ ! -e "$K8S_DIR" ] || return 0
  local v=k8s.io/component-base/version minor c
  minor=${KUBERNETES#v1.}; minor=${minor%%.*}
  build_folder kubernetes
  python3 "$KUBE/files/go-mod.py" "$KUBERNETES" >go.mod.new; mv go.mod.new go.mod
  cp "$KUBE"/files/{k8all,gpu-plugin}.go .
  go mod edit -require "go.etcd.io/etcd/server/v3@$ETCD"
  # Clients refuse a server without a version.
  nice -n 5 go build -mod=mod -trimpath -o out/k8all -ldflags "$LDFLAGS -X $v.gitVersion=$KUBERNETES -X $v.gitMajor=1 -X $v.gitMinor=$minor -X $v.gitTreeState=clean
    -X $v.buildDate=2026-01-01T00:00:00Z -X k8s.io/client-go/pkg/version.gitVersion=$KUBERNETES" .
  for c in etcd kube-apiserver kube-controller-manager kube-scheduler kubelet kube-proxy kubectl gpu-plugin; do ln -s k8all "out/$c"; done
  finish "$K8S_DIR" out
}

# A few plugins, on the same libraries of Kubernetes: half of it is compiled already.
coredns() {
  [ ! -e "$COREDNS_DIR" ] || return 0
  local m libraries=()
  build_folder coredns
  for m in api client-go apimachinery; do libraries+=("k8s.io/$m@v0.${KUBERNETES#v1.}"); done
  cp "$KUBE/files/coredns.go" .
  go mod init coredns-small
  go get "github.com/coredns/coredns@$COREDNS" "${libraries[@]}"
  nice -n 5 go build -mod=mod -trimpath -ldflags "$LDFLAGS" -o out/coredns .
  finish "$COREDNS_DIR" out
}

# module PATH VERSION: prints the folder of a module's source.
module() { go mod download -json "$1@$2" | sed -n 's/^[[:space:]]*"Dir": "\(.*\)",$/\1/p'; }
KUBERAY_MODULE=github.com/ray-project/kuberay/ray-operator

# The operator, its manifests, and the CRDs of all versions.
kuberay() {
  [ ! -e "$KUBERAY_DIR" ] || return 0
  local d v out=$CACHE/kube/build/kuberay/out
  build_folder kuberay
  d=$(module "$KUBERAY_MODULE" "$KUBERAY")
  cp -r "$d/config" "$out/config"; cp "$d/LICENSE" "$out/"; chmod -R u+w "$out"
  # Its own namespace, and ready when it is ready, not ten seconds later.
  sed -i 's/^namespace: default$/namespace: kuberay-system/' "$out/config/default/kustomization.yaml"
  sed -i '/readinessProbe:/,/failureThreshold:/ s/initialDelaySeconds: 10/initialDelaySeconds: 1/' "$out/config/manager/manager.yaml"
  grep -q '^namespace: kuberay-system$' "$out/config/default/kustomization.yaml"
  ( cd "$d" && nice -n 5 go build -trimpath -ldflags "$LDFLAGS" -o "$out/manager" . )
  for v in "$KUBERAY" "$OLDER_KUBERAY"; do
    d=$(module "$KUBERAY_MODULE" "$v"); mkdir -p "$out/crds/$v"; cp "$d"/config/crd/bases/*.yaml "$out/crds/$v/"
  done
  chmod -R u+w "$out/crds"; mkdir -p "$out/crds/$NEWER_KUBERAY"
  gzip -dc "$KUBE/files/ray.io_rayclusters-$NEWER_KUBERAY.yaml.gz" >"$out/crds/$NEWER_KUBERAY/ray.io_rayclusters.yaml"
  finish "$KUBERAY_DIR" "$out"
  ln -sfnT "$KUBERAY_DIR/crds" "$CRDS"
}

# The CRDs of the objects by which a Prometheus finds pods.
MONITORING_MODULE=github.com/prometheus-operator/prometheus-operator
monitoring_crds() {
  [ ! -e "$MONITORING_DIR" ] || return 0
  local d
  build_folder monitoring
  d=$(module "$MONITORING_MODULE" "$MONITORING")
  cp "$d"/example/prometheus-operator-crd/monitoring.coreos.com_{podmonitors,servicemonitors,probes,prometheusrules,prometheuses}.yaml "$d/LICENSE" out/; chmod -R u+w out
  mkdir out/crds; mv out/*.yaml out/crds/
  finish "$MONITORING_DIR" out
}

software() {
  [ ! -e "$K8S_DIR" ] || [ ! -e "$COREDNS_DIR" ] || [ ! -e "$KUBERAY_DIR" ] || [ ! -e "$MONITORING_DIR" ] || return 0
  go_is_there
  mkdir -p "$CACHE/kube/build"
  exec 7>"$CACHE/kube/build-lock"; flock -w 7200 7 || die "another up has held $CACHE/kube/build-lock for two hours"
  # An interrupted build goes on with what is compiled.
  export GOPATH=$CACHE/kube/build/go GOCACHE=$CACHE/kube/build/cache CGO_ENABLED=0 GOTOOLCHAIN=local GOFLAGS="-modcacherw -buildvcs=false"
  part kube-kubernetes kubernetes
  part kube-coredns coredns
  part kube-kuberay kuberay
  part kube-monitoring monitoring_crds
  # Six gigabytes that nothing reads again.
  rm -rf "$CACHE/kube/build"
  exec 7>&-
}
