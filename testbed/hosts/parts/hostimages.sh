# hostimages.sh: hosts that already have something installed, and where a host gets its address and its packages from.
# shellcheck shell=bash

# An address of its own, which a restart keeps: Docker's choice may go to another container meanwhile. Called under the address lock.
free_address() {
  local used i
  used=$(docker ps -aq --filter "network=$NETWORK" | xargs -r docker inspect -f '{{range .NetworkSettings.Networks}}{{if .IPAMConfig}}{{.IPAMConfig.IPv4Address}}{{end}} {{.IPAddress}}{{end}}')
  for i in $(seq 16 250); do
    grep -qwF "$PREFIX.$i" <<<"$used" || { echo "$PREFIX.$i"; return 0; }
  done
  die "no free address in $SUBNET"
}

# The repository of the drivers, as an image of a cloud with GPUs has it preconfigured; the toolkit's is for whoever installs it to add.
write_driver_source() {
  mkdir -p "$1/usr/share/keyrings"
  cp "$CACHE/repo/drivers.gpg" "$1/usr/share/keyrings/standin-drivers.gpg"
  echo "deb [signed-by=/usr/share/keyrings/standin-drivers.gpg] http://$APT_IP:8080/drivers ./" >"$1/etc/apt/sources.list.d/standin-drivers.list"
  printf 'Package: *\nPin: release o=gpucl-testbed-drivers\nPin-Priority: 1001\n' >"$1/etc/apt/preferences.d/standin-drivers"
}
docker_image() { die "not yet"; }
ready_store() { die "not yet"; }
