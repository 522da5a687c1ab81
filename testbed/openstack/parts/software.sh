# software.sh: packages of the distribution, RabbitMQ, and a virtual environment with the services.
# shellcheck shell=bash

DEBS="mariadb-server-core mariadb-client-core curl ca-certificates iptables gcc libc6-dev python3-dev python3-venv
 erlang-base erlang-crypto erlang-eldap erlang-inets erlang-mnesia erlang-os-mon erlang-parsetools
 erlang-public-key erlang-runtime-tools erlang-ssl erlang-syntax-tools erlang-tools erlang-xmerl"

debs() {
  local d missing=() apt=(-y -q -o DPkg::Lock::Timeout=600 --no-install-recommends)
  for d in $DEBS; do dpkg-query -W -f='${db:Status-Status}' "$d" 2>/dev/null | grep -qx installed || missing+=("$d"); done
  [ ${#missing[@]} = 0 ] && return 0
  apt-get "${apt[@]}" install "${missing[@]}" && return 0
  apt-get -q update; apt-get "${apt[@]}" install "${missing[@]}"
}

# Unpacked, not installed: installing the package would make a user and start a daemon on all addresses.
rabbitmq() {
  [ ! -x "$RABBIT/sbin/rabbitmq-server" ] || return 0
  local d=$SOFTWARE/new-rabbitmq f
  rm -rf "$d"; mkdir -p "$d"
  ( cd "$d" && apt-get -q -o APT::Sandbox::User=root download rabbitmq-server ) || { apt-get -q update; ( cd "$d" && apt-get -q -o APT::Sandbox::User=root download rabbitmq-server ); }
  for f in "$d"/rabbitmq-server_*.deb; do dpkg-deb -x "$f" "$d/x"; done
  rm -rf "$RABBIT"; mv "$d"/x/usr/lib/rabbitmq/lib/rabbitmq_server-* "$RABBIT"; rm -rf "$d"
}

environment() {
  [ ! -e "$VENV/.complete" ] || return 0
  local list=$OPENSTACK/files/requirements.txt site
  rm -rf "$VENV"; mkdir -p "$SOFTWARE"
  /usr/bin/python3 -m venv "$VENV"
  # uv takes a quarter of pip's time; where it is unavailable, or configured with another index than pip, pip does it.
  if ! { "$BIN/python" -m pip -q --disable-pip-version-check install uv && "$BIN/uv" -q pip install --python "$BIN/python" -r "$list" --no-deps; }; then
    "$BIN/python" -m pip -q --disable-pip-version-check install 'setuptools<66' wheel
    "$BIN/python" -m pip -q --disable-pip-version-check install --no-build-isolation --no-deps -r "$list"
  fi
  site=$("$BIN/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
  cp "$OPENSTACK/files/gpucl_ml2.py" "$OPENSTACK/files/gpucl_compute.py" "$site/"
  # Neutron finds a driver by its entry point only.
  mkdir -p "$site/gpucl_ml2-1.0.dist-info"
  printf 'Metadata-Version: 2.1\nName: gpucl-ml2\nVersion: 1.0\n' >"$site/gpucl_ml2-1.0.dist-info/METADATA"
  printf '[neutron.ml2.mechanism_drivers]\ngpucl = gpucl_ml2:AnyHost\n' >"$site/gpucl_ml2-1.0.dist-info/entry_points.txt"
  touch "$VENV/.complete"
}

# If two states install the same software at once, only one of them does it.
software() {
  mkdir -p "$SOFTWARE"
  exec 8>"$CACHE/openstack/lock"; flock -w 900 8 || die "another process has held $CACHE/openstack/lock for 15 minutes"
  part openstack-packages debs; part openstack-rabbitmq rabbitmq; part openstack-environment environment
  exec 8>&-
}
