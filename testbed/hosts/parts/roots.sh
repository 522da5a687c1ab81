# roots.sh: the two Ubuntu roots. `base` is what every image stands on; `host` is a cloud machine.
# shellcheck shell=bash

BASE_PACKAGES=ca-certificates,curl,iproute2,procps,python3,python3-venv,tini
HOST_PACKAGES="systemd systemd-sysv dbus openssh-server sudo iputils-ping kmod netbase iptables less lsb-release pciutils gnupg cloud-init rsync apt-transport-https libnss-myhostname"
BASE=gpucl-testbed/base:$(digest "$UBUNTU" "$BASE_PACKAGES" 3)
HOST=gpucl-testbed/host:fresh-$(digest "$BASE" "$HOST_PACKAGES" "$(files_digest "$HERE"/files/* "$HERE"/parts/roots.sh)")

# Ubuntu's archive keys: there on Ubuntu; on Debian from the package of a newer suite.
ubuntu_keyring() {
  local k=/usr/share/keyrings/ubuntu-archive-keyring.gpg d=$CACHE/ubuntu-keyring f
  if [ ! -e "$k" ]; then
    k=$d/x/usr/share/keyrings/ubuntu-archive-keyring.gpg
    mkdir -p "$d"
    ( flock 6
      [ ! -e "$k" ] || exit 0
      apt_fetch sid ubuntu-keyring "$d" >&2 || exit
      for f in "$d"/ubuntu-keyring*.deb; do dpkg -x "$f" "$d/x"; done ) 6>"$d/lock"
  fi
  [ -e "$k" ] || { find "$d" >&2; return 1; }
  printf '%s\n' "$k"
}

base_root() {
  has_image "$BASE" && return 0
  local root k script=$UBUNTU; root=$CACHE/root-base
  k=$(ubuntu_keyring); rm -rf --one-file-system "$root"; mkdir -p "$root"
  # Older debootstraps have no script of that name; all of Ubuntu's are this one.
  [ -e "/usr/share/debootstrap/scripts/$UBUNTU" ] || script=gutsy
  debootstrap --variant=minbase --components=main,universe --keyring="$k" --include="$BASE_PACKAGES" "$UBUNTU" "$root" "$(ubuntu_mirror)" "/usr/share/debootstrap/scripts/$script"
  rm -rf "$root"/etc/apt/sources.list "$root"/var/cache/apt/archives/*.deb "$root"/var/cache/apt/*.bin "$root"/var/lib/apt/lists/* "$root"/usr/share/{doc,man,locale}/* "$root"/var/log/bootstrap.log
  # Machines behind a proxy of their own have its certificate there.
  cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
  printf '[global]\ncert = /etc/ssl/certs/ca-certificates.crt\n' >"$root/etc/pip.conf"
  tar -C "$root" --one-file-system -c . | docker import -c 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' -c 'CMD ["bash"]' - "$BASE"
  rm -rf --one-file-system "$root"
}

host_root() {
  has_image "$HOST" && return 0
  bake "$HOST" "$BASE" "apt-get -q update
    apt-get install -y -q --no-install-recommends $HOST_PACKAGES
    bash -eu /files/host-image.sh
    rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /usr/share/doc/* /usr/share/man/*" -v "$HERE/files:/files:ro" -- 'CMD ["/sbin/vm-init"]' 'ENV container=docker' ||
    return 1
}
