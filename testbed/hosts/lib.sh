# lib.sh: functions and variables of the scripts of testbed/hosts. Sourced, never run.
# shellcheck shell=bash
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
CACHE=${GPUCL_TESTBED:-${XDG_CACHE_HOME:-$HOME/.cache}/gpucl-testbed}
NETWORK=${GPUCL_TESTBED_NETWORK:-gpucl-testbed}
SUBNET=${GPUCL_TESTBED_SUBNET:-10.213.0.0/24}   # a /24: three parts of it are used below
PREFIX=${SUBNET%.*}                             # 10.213.0
REGISTRY_IP=$PREFIX.2 APT_IP=$PREFIX.3
RAY=2.60.0
IDENTITY=$CACHE/identity
UBUNTU=noble
# The classic builder and `docker build` without buildx: a CLI newer than its plugins refuses otherwise.
export DOCKER_BUILDKIT=0 DEBIAN_FRONTEND=noninteractive LC_ALL=C.UTF-8
umask 022

say() { printf '%s\n' "$*" >&2; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }
now() { date +%s; }

# part NAME COMMAND...: runs it with its output in a log, and prints how long it took. On an error, prints the log's
# end.
part() {
  local name=$1 t0 log; shift; t0=$(now); log=$CACHE/log/$name.log
  mkdir -p "$CACHE/log"
  # Not `if "$@"`: that would disable `set -e` inside it.
  local rc=0; set +e; ( set -e; "$@" ) >"$log" 2>&1; rc=$?; set -e
  if [ "$rc" != 0 ]; then
    say "  FAILED  $name after $(( $(now) - t0 )) s; the end of $log:"; tail -25 "$log" >&2; return 1
  fi
  [ $(( $(now) - t0 )) -lt 1 ] || say "  $(printf '%4d' $(( $(now) - t0 ))) s  $name"
}

# A part is done when its stamp holds the digest of everything that went into it.
digest() { { printf '%s\n' "$@"; } | sha256sum | cut -c1-12; }
files_digest() { cat "$@" | sha256sum | cut -c1-12; }
has_image() { docker image inspect "$1" >/dev/null 2>&1; }

# The Ubuntu mirror: this machine's own on Ubuntu, else the default of debootstrap's script.
ubuntu_mirror() {
  local m=
  if grep -q '^ID=ubuntu' /etc/os-release; then
    m=$( { cat /etc/apt/sources.list.d/ubuntu.sources /etc/apt/sources.list 2>/dev/null || true; } |
      sed -n 's/^URIs: *\([^ ]*\).*/\1/p; s/^deb \(\[[^]]*\] \)\{0,1\}\([a-z]*:[^ ]*\) .*/\2/p' | head -1)
    # mirror+file: lists and the like: debootstrap cannot read them
    case $m in http*) ;; *) m= ;; esac
  fi
  [ -n "$m" ] || m=$(sed -n 's/.*default_mirror \([^ ]*archive[^ ]*\).*/\1/p' /usr/share/debootstrap/scripts/gutsy | head -1)
  [ -n "$m" ] || die "no Ubuntu mirror found in apt's sources or debootstrap's scripts"
  printf '%s\n' "$m"
}

# Ubuntu's sources for a host or an image being made, with this machine's apt options for date checks and proxies.
write_ubuntu_sources() {
  local to=$1 m p; m=$(ubuntu_mirror); mkdir -p "$to/etc/apt/apt.conf.d" "$to/etc/apt/sources.list.d" "$to/etc/apt/preferences.d"
  for p in "" -updates -security; do echo "deb $m $UBUNTU$p main universe"; done >"$to/etc/apt/sources.list"
  { echo 'Acquire::Retries "2";'; echo 'Acquire::Languages "none";'
    apt-config dump 2>/dev/null | grep -E '^Acquire::(Check-Valid-Until|Check-Date|http::Proxy|https::Proxy) ' || true
  } >"$to/etc/apt/apt.conf.d/50testbed"
}

# apt_fetch SUITE PACKAGE DIR: a .deb of another Debian suite, checked by apt with Debian's own keys, without touching this machine's apt.
apt_fetch() {
  local suite=$1 package=$2 to=$3 d=$CACHE/apt-$1 mirror
  mirror=$( { cat /etc/apt/sources.list.d/*.sources /etc/apt/sources.list 2>/dev/null || true; } |
    sed -n 's/^URIs: *\([^ ]*\).*/\1/p; s/^deb \(\[[^]]*\] \)\{0,1\}\([a-z]*:[^ ]*\) .*/\2/p' | grep -v security | head -1)
  [ -n "$mirror" ] || die "no Debian mirror in /etc/apt/sources.list.d/*.sources"
  mkdir -p "$d"/{state/lists/partial,cache/archives/partial,etc} "$to"; : >"$d/status"
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $mirror $suite main" >"$d/etc/sources.list"
  local o=(-q -o Dir::State="$d/state" -o Dir::State::status="$d/status" -o Dir::Cache="$d/cache" -o Dir::Etc::SourceList="$d/etc/sources.list"
    -o Dir::Etc::SourceParts=/dev/null -o Dir::Etc::Preferences=/dev/null -o Dir::Etc::PreferencesParts=/dev/null -o APT::Sandbox::User=root -o Acquire::Languages=none)
  # In CI, the testbeds of hosts and of packages are made side by side.
  ( flock 7
    [ -e "$d/updated" ] || { apt-get "${o[@]}" update && touch "$d/updated"; } || exit
    cd "$to" && apt-get "${o[@]}" download "$package" ) 7>"$d/lock"
}

# The sources of what `bake` stands on.
write_sources() { write_ubuntu_sources "$1"; }

# bake TAG BASE SCRIPT [-v ...]... [-- CHANGE...]: runs SCRIPT as root in a container of BASE and commits that as TAG.
# The package sources are mounted, so they do not stay in the image. Network: the machine's own. (No --entrypoint: a
# commit would keep it.)
bake() {
  local tag=$1 base=$2 script=$3 c rc changes=() mounts=(); shift 3
  while [ $# -gt 0 ] && [ "$1" != -- ]; do mounts+=("$1"); shift; done
  [ "${1:-}" != -- ] || shift
  while [ $# -gt 0 ]; do changes+=(-c "$1"); shift; done
  write_sources "$CACHE/sources"; pip_conf >"$CACHE/sources/pip.conf"
  c=$(docker create --network host --user 0 -e DEBIAN_FRONTEND=noninteractive \
    -v "$CACHE/sources/etc/apt/sources.list:/etc/apt/sources.list:ro" -v "$CACHE/sources/etc/apt/apt.conf.d/50testbed:/etc/apt/apt.conf.d/50testbed:ro" \
    -v "$CACHE/sources/pip.conf:/tmp/pip.conf:ro" ${mounts[@]+"${mounts[@]}"} "$base" /bin/bash -euo pipefail -c "$script")
  rc=0; docker start -a "$c" || rc=$?
  # `start -a` returns the script's exit code
  if [ "$rc" = 0 ]; then docker commit -c 'ENV DEBIAN_FRONTEND=' -c 'CMD ["bash"]' ${changes[@]+"${changes[@]}"} "$c" "$tag" || rc=$?; fi
  docker rm -v "$c" >/dev/null; return "$rc"
}

# This machine's pip configuration, for a pip in a container.
pip_conf() {
  echo '[global]'; echo 'cert = /etc/ssl/certs/ca-certificates.crt'
  { python3 -m pip config list 2>/dev/null || true; } | sed -nE "s/^[^=]*\.(index-url|extra-index-url|trusted-host|proxy|timeout|default-timeout)='(.*)'\$/\1 = \2/p" | sort -u -t= -k1,1
}

# The port of the registry on this machine's loopback, where images are pushed (plain HTTP is allowed there without configuration).
registry_push() { docker port "$NETWORK-registry" 5000/tcp | sed -n 's/^127.0.0.1:\([0-9]*\)$/127.0.0.1:\1/p' | head -1; }

# publish LOCAL NAME:TAG...: pushes an image to the registry under its names on docker.io.
publish() {
  local from=$1 to r n; r=$(registry_push); shift
  for to in "$@"; do
    n=$r/$to; docker tag "$from" "$n"; docker push -q "$n" >/dev/null; docker rmi "$n" >/dev/null
  done
}
# The id of each image pushed to the registry is recorded.
published() { [ "$(cat "$CACHE/stamps/pushed-$1" 2>/dev/null)" = "$(docker image inspect -f '{{.Id}}' "$2" 2>/dev/null)" ]; }
mark_published() { mkdir -p "$CACHE/stamps"; docker image inspect -f '{{.Id}}' "$2" >"$CACHE/stamps/pushed-$1"; }

# later NAME COMMAND...: runs a part in the background; await NAME... waits for them, and fails if one of them failed.
declare -A LATER=()
later() { part "$@" & LATER[$1]=$!; }
await() { local n; for n in "$@"; do wait "${LATER[$n]}" || die "the part $n failed"; done; }
