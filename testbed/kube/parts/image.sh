# image.sh: the images of the node: Ray's, the operator's, and the one that holds a pod's namespaces.
# shellcheck shell=bash

# Ray's image of testbed/hosts, with what KubeRay calls in it; the user is a number, as `restricted` demands.
KUBE_RAY=gpucl-testbed/kube-ray:$RAY-$(digest "$IMAGE_RAY" 1)
KUBE_OPERATOR=gpucl-testbed/kube-operator:$KUBERAY-$(digest "$KUBERAY_DIR" 1)
KUBE_PAUSE=gpucl-testbed/kube-pause:$(digest "$(files_digest "$KUBE/files/pause.c")" 1)
PAUSE=gpucl-test/pause:1
IMAGES_KEY=$(digest "$KUBE_RAY" "$KUBE_OPERATOR" "$KUBE_PAUSE" 1)

image_for_kube() {
  has_image "$KUBE_RAY" && return 0
  # Without the registry, which is testbed/hosts's.
  ( published() { true; }; image_ray )
  bake "$KUBE_RAY" "$IMAGE_RAY" "apt-get -q update; apt-get install -y -q --no-install-recommends wget; rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin" -- \
    'USER 1000' 'WORKDIR /home/ray' 'ENV RAY_USAGE_STATS_ENABLED=0'
}

images_of_components() {
  local d=$CACHE/context-kube; rm -rf "$d"; mkdir -p "$d"
  if ! has_image "$KUBE_PAUSE"; then
    gcc -Os -static -s -o "$d/pause" "$KUBE/files/pause.c"
    tar -C "$d" --owner=0 --group=0 -c pause | docker import -c 'ENTRYPOINT ["/pause"]' - "$KUBE_PAUSE"
  fi
  has_image "$KUBE_OPERATOR" || tar -C "$KUBERAY_DIR" --owner=0 --group=0 -c manager | docker import -c 'USER 65532:65532' -c 'ENTRYPOINT ["/manager"]' - "$KUBE_OPERATOR"
  rm -rf "$d"
}

node_has_images() { [ "$(cat "$STATE/containerd/images" 2>/dev/null)" = "$IMAGES_KEY" ]; }

# The name that the operator's manifest gives its image.
operator_image() { sed -n 's/^ *newName: *//p; s/^ *newTag: */:/p' "$KUBERAY_DIR/config/default/kustomization.yaml" | tr -d '\n'; }

# local name:names on the node
image_names() {
  echo "$KUBE_PAUSE $PAUSE"
  echo "$KUBE_OPERATOR $(operator_image)"
  # rayproject's names too: what a user's manifest has.
  echo "$KUBE_RAY $IMAGE rayproject/ray:$RAY rayproject/ray:$RAY-py312-gpu rayproject/ray:$RAY-py312-cpu"
}
# As containerd writes it.
full_name() { case ${1%%/*} in *.*) echo "$1" ;; *) echo "docker.io/$1" ;; esac; }

import_images() {
  node_has_images && return 0
  local from names to all=()
  for _ in $(seq 150); do ! inside ctr version >/dev/null 2>&1 || break; sleep 0.2; done
  while read -r from names; do all+=("$from"); done < <(image_names)
  docker save "${all[@]}" | inside ctr -n k8s.io images import --snapshotter overlayfs -
  while read -r from names; do
    for to in $names; do inside ctr -n k8s.io images tag --force "$(full_name "$from")" "$(full_name "$to")"; done
  done < <(image_names)
  for from in $(inside ctr -n k8s.io images ls -q | grep /gpucl-testbed/); do inside ctr -n k8s.io images rm "$from"; done
  echo "$IMAGES_KEY" >"$STATE/containerd/images"
}
