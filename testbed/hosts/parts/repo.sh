# repo.sh: the stand-in programs, their packages, and the two signed repositories that hosts install them from.
# shellcheck shell=bash

DRIVER=580.95.05 TOOLKIT=1.20.0-1
STANDIN=$CACHE/standin

standins() {
  local key; key=$(files_digest "$HERE"/standin/* "$HERE"/parts/repo.sh)
  [ "$(cat "$CACHE/stamps/standins" 2>/dev/null)" != "$key" ] || return 0
  mkdir -p "$STANDIN"
  # Static: it is bind-mounted into images of any kind.
  gcc -O2 -Wall -static -o "$STANDIN/nvidia-smi" "$HERE/standin/nvidia-smi.c"
  gcc -O2 -Wall -shared -fPIC -Wl,-soname,libcuda.so.1 -o "$STANDIN/libcuda.so.1" "$HERE/standin/libcuda.c"
  gcc -O2 -Wall -shared -fPIC -Wl,-soname,libamdhip64.so -o "$STANDIN/libamdhip64.so" "$HERE/standin/libamdhip64.c"
  echo "$key" >"$CACHE/stamps/standins"
}

# package DIR NAME VERSION [Field: value]...: packs what lies in $CACHE/pack/NAME.
package() {
  local to=$1 name=$2 version=$3 root=$CACHE/pack/$2; shift 3
  mkdir -p "$root/DEBIAN" "$to"
  { printf '%s\n' "Package: $name" "Version: $version" "Architecture: amd64" "Maintainer: gpucl testbed <nobody@localhost>" "Section: misc" "Priority: optional"
    [ $# = 0 ] || printf '%s\n' "$@"
    echo "Description: stand-in of $name, for tests of gpucl"
  } >"$root/DEBIAN/control"
  dpkg-deb --root-owner-group -Zgzip -z1 --build "$root" "$to/${name}_${version}_amd64.deb"
}

# driver NAME CONFLICT: either form of the kernel module. libcuda comes with it.
driver_package() {
  local r=$CACHE/pack/$1
  install -D -m 644 /dev/stdin "$r/usr/lib/standin-nvidia/driver" <<<"$DRIVER"
  install -D -m 644 "$STANDIN/libcuda.so.1" "$r/usr/lib/x86_64-linux-gnu/libcuda.so.1"
  install -D -m 644 "$HERE/standin/standin-nvidia.service" "$r/usr/lib/systemd/system/standin-nvidia.service"
  mkdir -p "$r/usr/lib/systemd/system/multi-user.target.wants"
  ln -sfn ../standin-nvidia.service "$r/usr/lib/systemd/system/multi-user.target.wants/standin-nvidia.service"
  package "$CACHE/repo/drivers" "$1" "$DRIVER-0ubuntu1" "Conflicts: $2" "Replaces: $2"
}

# sign DIR NAME HOME: a flat repository of what lies in DIR, signed with a key that never leaves the cache folder.
sign() {
  local dir=$1 name=$2 home=$CACHE/gnupg-$2
  if [ ! -d "$home" ]; then
    mkdir -m 700 -p "$home"
    gpg --homedir "$home" --batch --quiet --pinentry-mode loopback --passphrase '' --quick-generate-key "gpucl testbed $name <nobody@localhost>" rsa3072 sign never
  fi
  ( cd "$dir" && rm -f Release InRelease Release.gpg Packages*
    dpkg-scanpackages --multiversion . /dev/null >Packages && gzip -9k Packages
    apt-ftparchive -o APT::FTPArchive::Release::Origin="gpucl-testbed-$name" -o APT::FTPArchive::Release::Label="gpucl-testbed-$name" release . >"$CACHE/Release-$name" && mv "$CACHE/Release-$name" Release
    gpg --homedir "$home" --batch --yes --quiet --clearsign -o InRelease Release
    gpg --homedir "$home" --batch --yes --quiet --armor --detach-sign -o Release.gpg Release )
  gpg --homedir "$home" --batch --export >"$CACHE/repo/$name.gpg"
  gpg --homedir "$home" --batch --with-colons --list-keys | awk -F: '$1=="fpr"{print $10; exit}' >"$CACHE/repo/$name.fingerprint"
  gpgconf --homedir "$home" --kill all
}

repository() {
  local key r; key=$(digest "$(cat "$CACHE/stamps/standins")" "$(uname -r)")
  if [ "$(cat "$CACHE/stamps/repository" 2>/dev/null)" != "$key" ]; then
    local drivers=$CACHE/repo/drivers toolkit=$CACHE/repo/toolkit/stable/deb/amd64
    rm -rf "$CACHE/pack" "$drivers" "$CACHE/repo/toolkit"; mkdir -p "$drivers" "$toolkit"
    driver_package nvidia-headless-580-server-open nvidia-headless-580-server
    driver_package nvidia-headless-580-server nvidia-headless-580-server-open
    package "$drivers" "linux-headers-$(uname -r)" 1.0
    install -D -m 755 "$STANDIN/nvidia-smi" "$CACHE/pack/nvidia-utils-580-server/usr/bin/nvidia-smi"
    package "$drivers" nvidia-utils-580-server "$DRIVER-0ubuntu1"
    r=$CACHE/pack/nvidia-fabricmanager-580
    install -D -m 644 "$HERE/standin/nvidia-fabricmanager.service" "$r/usr/lib/systemd/system/nvidia-fabricmanager.service"
    package "$drivers" nvidia-fabricmanager-580 "$DRIVER-0ubuntu1"
    sign "$drivers" drivers

    package "$toolkit" libnvidia-container1 "$TOOLKIT"
    install -D -m 755 "$HERE/standin/nvidia-container-cli" "$CACHE/pack/libnvidia-container-tools/usr/bin/nvidia-container-cli"
    package "$toolkit" libnvidia-container-tools "$TOOLKIT" "Depends: libnvidia-container1 (= $TOOLKIT)"
    r=$CACHE/pack/nvidia-container-toolkit-base
    install -D -m 755 "$HERE/standin/nvidia-ctk" "$r/usr/bin/nvidia-ctk"
    install -D -m 755 "$HERE/standin/nvidia-container-runtime" "$r/usr/bin/nvidia-container-runtime"
    package "$toolkit" nvidia-container-toolkit-base "$TOOLKIT" "Depends: python3"
    install -D -m 755 "$HERE/standin/nvidia-container-runtime-hook" "$CACHE/pack/nvidia-container-toolkit/usr/bin/nvidia-container-runtime-hook"
    package "$toolkit" nvidia-container-toolkit "$TOOLKIT" "Depends: libnvidia-container-tools (= $TOOLKIT), nvidia-container-toolkit-base (= $TOOLKIT)"
    sign "$toolkit" toolkit
    # armored, as the real one is served
    gpg --homedir "$CACHE/gnupg-toolkit" --batch --armor --export >"$CACHE/repo/toolkit/gpgkey"
    echo "$key" >"$CACHE/stamps/repository"
  fi
  service apt "$APT_IP" -v "$CACHE/repo:/repo:ro" "$BASE" python3 -m http.server --directory /repo 8080
  local i; for i in $(seq 60); do curl -sf -o /dev/null "http://$APT_IP:8080/toolkit/gpgkey" && return 0; sleep 0.5; done; echo "the apt repository does not answer"; return 1
}
