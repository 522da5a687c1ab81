# hostimages.sh: host images with software installed, and the addresses and package sources of hosts.
# shellcheck shell=bash

# A fixed address, kept across restarts: one chosen by Docker could go to another container meanwhile. Called under the
# address lock.
free_address() {
  local used i
  used=$(docker ps -aq --filter "network=$NETWORK" | xargs -r docker inspect -f '{{range .NetworkSettings.Networks}}{{if .IPAMConfig}}{{.IPAMConfig.IPv4Address}}{{end}} {{.IPAddress}}{{end}}')
  for i in $(seq 16 250); do
    grep -qwF "$PREFIX.$i" <<<"$used" || { echo "$PREFIX.$i"; return 0; }
  done
  die "no free address in $SUBNET"
}

# The repository of the drivers, preconfigured as in a GPU cloud's image; the toolkit's must be added by its installer.
write_driver_source() {
  mkdir -p "$1/usr/share/keyrings"
  cp "$CACHE/repo/drivers.gpg" "$1/usr/share/keyrings/standin-drivers.gpg"
  echo "deb [signed-by=/usr/share/keyrings/standin-drivers.gpg] http://$APT_IP:8080/drivers ./" >"$1/etc/apt/sources.list.d/standin-drivers.list"
  printf 'Package: *\nPin: release o=gpucl-testbed-drivers\nPin-Priority: 1001\n' >"$1/etc/apt/preferences.d/standin-drivers"
}

DRIVER_PACKAGES="linux-headers-$(uname -r) nvidia-headless-580-server-open nvidia-utils-580-server nvidia-fabricmanager-580"
DOCKER_HOST_IMAGE=gpucl-testbed/host:docker-$(digest "$HOST" "$(cat "$CACHE/stamps/repository" 2>/dev/null)" "$DRIVER_PACKAGES" 2)

# --image docker: the engine, the drivers and the toolkit are installed, by apt, and nothing is configured.
docker_image() {
  exec 7>"$CACHE/host-image-lock"; flock -w 600 7 || die "another process has held $CACHE/host-image-lock for 10 minutes"
  has_image "$DOCKER_HOST_IMAGE" || part host-image-docker bake "$DOCKER_HOST_IMAGE" "$HOST" "
    gpg --dearmor </repo/toolkit/gpgkey >/usr/share/keyrings/standin-toolkit.gpg
    echo 'deb [signed-by=/usr/share/keyrings/standin-drivers.gpg] http://$APT_IP:8080/drivers ./' >/etc/apt/sources.list.d/standin-drivers.list
    echo 'deb [signed-by=/usr/share/keyrings/standin-toolkit.gpg] http://$APT_IP:8080/toolkit/stable/deb/amd64 /' >/etc/apt/sources.list.d/standin-toolkit.list
    cp /repo/drivers.gpg /usr/share/keyrings/standin-drivers.gpg
    apt-get -q update
    apt-get install -y -q --no-install-recommends docker.io docker-compose-v2 nftables nvidia-container-toolkit $DRIVER_PACKAGES
    systemctl enable docker.service containerd.service
    rm -rf /etc/docker /var/lib/apt/lists/* /var/cache/apt/*.bin /var/cache/apt/archives/*.deb /usr/share/doc/* /usr/share/man/*" \
    -v "$CACHE/repo:/repo:ro" -- 'CMD ["/sbin/vm-init"]'
  exec 7>&-
}

# --firewalld: as in bare-metal images of some clouds: it runs, and admits only SSH (and DHCPv6's client).
firewalld_image() {
  FIREWALLD_IMAGE=gpucl-testbed/host:firewalld-$(digest "$1" 1)
  has_image "$FIREWALLD_IMAGE" && return 0
  exec 7>"$CACHE/host-image-lock"; flock -w 600 7 || die "another process has held $CACHE/host-image-lock for 10 minutes"
  has_image "$FIREWALLD_IMAGE" || part host-image-firewalld bake "$FIREWALLD_IMAGE" "$1" "
    apt-get -q update
    apt-get install -y -q --no-install-recommends firewalld
    systemctl enable firewalld.service
    rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/cache/apt/archives/*.deb /usr/share/doc/* /usr/share/man/*" -- 'CMD ["/sbin/vm-init"]'
  exec 7>&-
}

# --image ready: the storage of a `docker` host's engine after pulling every image, kept in two volumes.
store_key() { digest "$DOCKER_HOST_IMAGE" "$(cat "$CACHE"/stamps/pushed-* 2>/dev/null)" 1; }
ready_store() {
  docker_image
  # A different lock than the one above: while it is held, a `docker` host is started.
  exec 7>"$CACHE/ready-lock"; flock -w 1200 7 || die "another process has held $CACHE/ready-lock for 20 minutes"
  if [ "$(cat "$CACHE/stamps/ready" 2>/dev/null)" != "$(store_key)" ] || ! docker volume inspect gpucl-testbed-ready-containerd >/dev/null 2>&1; then
    part host-image-ready make_ready_store
    store_key >"$CACHE/stamps/ready"
  fi
  exec 7>&-
}
volume_of() { docker inspect -f "{{range .Mounts}}{{if eq .Destination \"$2\"}}{{.Source}}{{end}}{{end}}" "$1"; }
make_ready_store() {
  local c=gpucl-testbed-making-ready image v
  "$HERE/rm" making-ready
  "$HERE/host" making-ready --image docker 7>&-
  docker exec "$c" sh -ec "mkdir -p /etc/docker; echo '{\"registry-mirrors\":[\"http://$REGISTRY_IP:5000\"]}' >/etc/docker/daemon.json; systemctl restart docker"
  for image in $(sed -n 's/^[a-z_]*: //p' "$CACHE/data/templates/ray-compose/images.yaml") "rayproject/ray:$RAY-py312-gpu" "rayproject/ray:$RAY-py312-cpu"; do
    docker exec "$c" docker pull -q "$image"
  done
  docker exec "$c" systemctl stop docker.socket docker.service containerd.service
  for v in docker containerd; do
    docker volume rm -f "gpucl-testbed-ready-$v"; docker volume create "gpucl-testbed-ready-$v"
    cp -a "$(volume_of "$c" /var/lib/$v)/." "$(docker volume inspect -f '{{.Mountpoint}}' "gpucl-testbed-ready-$v")/"
  done
  "$HERE/rm" making-ready
}
# fill_store CONTAINER: before its first start. Links files that the engine never rewrites (layers and blobs), copies
# the rest.
fill_store() {
  local v from to
  for v in docker containerd; do
    from=$(docker volume inspect -f '{{.Mountpoint}}' "gpucl-testbed-ready-$v"); to=$(volume_of "$1" /var/lib/$v)
    if [ $v = docker ]; then cp -a "$from/." "$to/"; continue; fi
    cp -al "$from/." "$to/"
    find "$to" -maxdepth 3 -type f -not -path '*/blobs/*' | while read -r f; do cp -a "$f" "$f.copy"; mv "$f.copy" "$f"; done
  done
}
