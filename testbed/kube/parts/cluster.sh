# cluster.sh: what the cluster must have: a ready node with its GPUs, the operator, namespaces and users.
# shellcheck shell=bash

apiserver_answers() {
  local end=$((SECONDS + 120))
  while [ "$SECONDS" -lt "$end" ]; do
    ! curl -sf -m 5 -o /dev/null --cacert "$PKI/ca.crt" "https://$NODE_IP:6443/readyz" || return 0
    node_runs || break
    sleep 0.3
  done
  echo "the API server did not answer within 120 s:"; tail -n 8 "$LOG"/{init,etcd,kube-apiserver}.log; return 1
}

node_ready() {
  local w=(--timeout=120s)
  if admin wait --for=create "node/$NAME" "${w[@]}" && admin wait --for=condition=Ready "node/$NAME" "${w[@]}" &&
    { [ "$GPUS" = 0 ] || admin wait --for=jsonpath='{.status.allocatable.nvidia\.com/gpu}'="$GPUS" "node/$NAME" "${w[@]}"; } &&
    admin wait --for=create serviceaccount/default "${w[@]}"; then return 0; fi
  tail -n 8 "$LOG"/{containerd,kubelet,kube-controller-manager,gpu-plugin}.log; return 1
}

# Server-side: the CRDs are larger than the annotation that the other way keeps of them. Its own manifests, with its
# own limits.
operator() {
  local key; key=$(digest "$KUBERAY_DIR" "$MONITORING_DIR" 1)
  if [ "$(cat "$STATE/operator-made" 2>/dev/null)" != "$key" ]; then
    admin create namespace kuberay-system --dry-run=client -o yaml | admin apply -f -
    admin apply --server-side --force-conflicts -k "$KUBERAY_DIR/config/default"
    admin apply --server-side --force-conflicts -f "$MONITORING_DIR/crds"
    admin wait --for=condition=Established crd --all --timeout=60s
    echo "$key" >"$STATE/operator-made"
  fi
  admin -n kuberay-system wait --for=condition=Available deployment/kuberay-operator --timeout=180s ||
    { admin -n kuberay-system describe pods; return 1; }
}

teams() {
  local key one namespace user; key=$(digest "$NAMESPACES" "$(files_digest "$KUBE/parts/cluster.sh" "$KUBE/files/role.yaml")")
  [ "$(cat "$STATE/teams-made" 2>/dev/null)" != "$key" ] || return 0
  for one in $NAMESPACES; do
    namespace=${one%:*} user=${one#*:}
    admin apply -f - <<Y
apiVersion: v1
kind: Namespace
metadata:
  name: $namespace
  labels: {$([ "$namespace" != strict ] || echo "pod-security.kubernetes.io/enforce: restricted")}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: ray-user, namespace: $namespace}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: ray-user}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: $user}]
Y
    admin apply -n "$namespace" -f "$KUBE/files/role.yaml"
  done
  # ada may also see the nodes; bob may not.
  admin apply -f - <<Y
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: list-nodes}
rules: [{apiGroups: [""], resources: [nodes], verbs: [list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: list-nodes}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: list-nodes}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: ada}]
Y
  # Pods made before it exists are refused.
  for one in $NAMESPACES; do admin -n "${one%:*}" wait --for=create serviceaccount/default --timeout=60s; done
  echo "$key" >"$STATE/teams-made"
}
