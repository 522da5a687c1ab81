# system.sh: the system that the image stands on: Ubuntu's of testbed/hosts, or a release of Debian with its own Slurm.
# shellcheck shell=bash

RELEASE=${GPUCL_SLURM_RELEASE:-}
SYSTEM=$BASE
[ -z "$RELEASE" ] || SYSTEM=gpucl-testbed/debian:$RELEASE-$(digest "$BASE_PACKAGES" 1)

debian_mirror() {
  { cat /etc/apt/sources.list.d/*.sources /etc/apt/sources.list 2>/dev/null || true; } |
    sed -n 's/^URIs: *\([^ ]*\).*/\1/p; s/^deb \(\[[^]]*\] \)\{0,1\}\([a-z]*:[^ ]*\) .*/\2/p' | grep -v security | head -1
}

system_root() {
  [ -n "$RELEASE" ] || { base_root; return; }
  has_image "$SYSTEM" && return 0
  grep -q '^ID=debian' /etc/os-release || die "GPUCL_SLURM_RELEASE: this machine is not Debian, and has none of its mirrors"
  local root=$CACHE/root-$RELEASE script=/usr/share/debootstrap/scripts/$RELEASE
  [ -e "$script" ] || script=/usr/share/debootstrap/scripts/sid
  rm -rf --one-file-system "$root"; mkdir -p "$root"
  debootstrap --variant=minbase --include="$BASE_PACKAGES" "$RELEASE" "$root" "$(debian_mirror)" "$script"
  rm -rf "$root"/etc/apt/sources.list "$root"/var/cache/apt/archives/*.deb "$root"/var/lib/apt/lists/* "$root"/usr/share/{doc,man,locale}/*
  cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/ca-certificates.crt"
  printf '[global]\ncert = /etc/ssl/certs/ca-certificates.crt\n' >"$root/etc/pip.conf"
  tar -C "$root" --one-file-system -c . | docker import -c 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' -c 'CMD ["bash"]' - "$SYSTEM"
  rm -rf --one-file-system "$root"
}

# bake_on_system: `bake` with the sources of the system's own release.
bake_on_system() (
  if [ -n "$RELEASE" ]; then
    write_sources() { write_ubuntu_sources "$1"; echo "deb $(debian_mirror) $RELEASE main" >"$1/etc/apt/sources.list"; }
    CACHE=$CACHE/$RELEASE
  fi
  bake "$@"
)
