# roots.sh: minimal root file systems of the systems that packages are for. Sourced, never run.
# shellcheck shell=bash

# Ubuntu's archive keys: there on Ubuntu; on Debian from its package of them.
ubuntu_keyring() {
  local key=/usr/share/keyrings/ubuntu-archive-keyring.gpg
  # `testbed/hosts` brings them from a newer suite, as Debian has no package of them in older ones.
  [ -e "$key" ] || key=$(bash -c '. testbed/hosts/lib.sh && . testbed/hosts/parts/roots.sh && ubuntu_keyring')
  printf '%s\n' "$key"
}

# What a user's machine has: Python, and what the README names beside it.
PACKAGES=python3,python3-venv,ca-certificates,openssh-client
# The name by which users know a system, its suite, and its distribution.
SYSTEMS="debian-12:bookworm:debian debian-13:trixie:debian ubuntu-22.04:jammy:ubuntu ubuntu-24.04:noble:ubuntu"
# Too old for Ray, and for pip with these wheels.
OLD=ubuntu-16.04:xenial:ubuntu

suite_of() { local s; for s in $SYSTEMS $OLD; do case $s in "$1:"*) s=${s#*:}; echo "${s%:*}" ;; esac; done; }
distribution_of() { local s; for s in $SYSTEMS $OLD; do case $s in "$1:"*) echo "${s##*:}" ;; esac; done; }

# The oldest and the newest system on which a program runs that was built on this machine: with C code compiled for
# glibc 2.38 or newer, it needs 2.38; else 2.34, in which the library of threads became part of the main one.
two_systems() {
  local here
  here=$(getconf GNU_LIBC_VERSION | cut -d' ' -f2)
  if [ "$(printf '%s\n2.38\n' "$here" | sort -V | head -1)" = 2.38 ]; then echo "ubuntu-24.04 debian-13"; else echo "ubuntu-22.04 debian-13"; fi
}

# The mirror of this machine's own apt, or the default of debootstrap's script for the other distribution.
mirror_of() {
  local here= script=sid
  if grep -q "^ID=$1\$" /etc/os-release; then
    here=$( { cat /etc/apt/sources.list.d/{debian,ubuntu}.sources /etc/apt/sources.list 2>/dev/null || true; } |
      sed -n 's/^URIs: *\([^ ]*\).*/\1/p; s/^deb \(\[[^]]*\] \)\{0,1\}\([a-z]*:[^ ]*\) .*/\2/p' | grep -m1 '^http' || true)
  fi
  [ "$1" = debian ] || script=gutsy
  [ -n "$here" ] || here=$(sed -n 's/.*default_mirror \(http[^ ]*\(archive\|deb\)[^ ]*\).*/\1/p' "/usr/share/debootstrap/scripts/$script" | head -1)
  printf '%s\n' "$here"
}

# make_base SYSTEM FILE: the root file system as a tar file, with $PACKAGES. What debootstrap prints is beside it.
make_base() {
  local suite distribution script components=main keyring=/usr/share/keyrings/debian-archive-keyring.gpg making
  suite=$(suite_of "$1") distribution=$(distribution_of "$1")
  script=/usr/share/debootstrap/scripts/$suite
  if [ "$distribution" = ubuntu ]; then
    components=main,universe keyring=$(ubuntu_keyring)
    [ -e "$script" ] || script=/usr/share/debootstrap/scripts/gutsy
  fi
  [ -e "$script" ] || script=/usr/share/debootstrap/scripts/sid
  making=$(mktemp -d "$(dirname "$2")/making.XXXXXX")
  if ! debootstrap --variant=minbase --components="$components" --include="$PACKAGES" --keyring="$keyring" \
    "$suite" "$making/system" "$(mirror_of "$distribution")" "$script" >"$2.log" 2>&1; then
    tail -25 "$2.log" >&2
    rm -rf --one-file-system "$making"
    return 1
  fi
  rm -rf "$making"/system/var/{cache/apt/archives/*.deb,lib/apt/lists/*}
  if ! { tar -C "$making/system" --one-file-system -cf "$making/tar" . && mv "$making/tar" "$2"; }; then
    rm -rf --one-file-system "$making"
    return 1
  fi
  rm -rf --one-file-system "$making"
}
