# What steps that install packages share: read with `. ./lib/apt.sh`, in the host's folder.
export DEBIAN_FRONTEND=noninteractive NEEDRESTART_MODE=l NEEDRESTART_SUSPEND=1 LC_ALL=C
# Proxies and waits, as the playbook `base` wrote them.
apt_wait=900
# shellcheck source=/dev/null
[ ! -r "$gpucl_home/settings.sh" ] || . "$gpucl_home/settings.sh"

# Prints the process that holds a lock of the package system, and the lock's file. apt waits by itself for some of them only.
lock_holder() {
    for file in /var/lib/dpkg/lock-frontend /var/lib/dpkg/lock /var/lib/apt/lists/lock /var/cache/apt/archives/lock; do
        [ -e "$file" ] || continue
        # perl-base is part of every Debian; `fuser` and `lslocks` are not.
        pid=$(perl -e 'use Fcntl; open(F, "+<", $ARGV[0]) or exit; my $l = pack("s s x4 q q l x4", F_WRLCK, 0, 0, 0, 0);
            fcntl(F, F_GETLK, $l) or exit; my @l = unpack("s s x4 q q l", $l); print $l[4] if $l[0] != F_UNLCK;' "$file" 2>/dev/null) || pid=
        [ -z "$pid" ] || { echo "$pid $file"; return 0; }
    done
    return 1
}

# Waits until nobody works on packages, and says who does.
wait_for_packages() {
    waited=0
    while holder=$(lock_holder); do
        pid=${holder%% *}
        name=$(tr '\0' ' ' 2>/dev/null <"/proc/$pid/cmdline" | cut -c 1-80) || name=
        said="process $pid (${name:-of another name space}) holds ${holder#* }"
        [ $((waited % 20)) -ne 0 ] || echo "Waiting for the package system: $said, for $waited s"
        if [ "$waited" -ge "$apt_wait" ]; then
            echo "the package system is locked for $apt_wait s: $said"
            return 1
        fi
        sleep 2
        waited=$((waited + 2))
    done
}

# apt-get with everything answered. What it prints is kept in apt.out.
apt_get() {
    tries=0
    while :; do
        wait_for_packages || return 1
        { rc=0; apt-get -q -y -o "DPkg::Lock::Timeout=$apt_wait" -o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold \
            -o Dpkg::Use-Pty=0 -o Acquire::Retries=2 -o Acquire::http::Timeout=30 -o Acquire::https::Timeout=30 "$@" 2>&1 || rc=$?; echo "$rc" >"$gpucl_home/apt.rc"; } |
            tee "$gpucl_home/apt.out"
        read -r rc <"$gpucl_home/apt.rc"
        [ "$rc" -ne 0 ] || return 0
        # Somebody was quicker between our look and apt's own.
        grep -q 'Could not get lock\|Unable to lock\|Unable to acquire the dpkg frontend lock' "$gpucl_home/apt.out" || return "$rc"
        tries=$((tries + 1))
        [ "$tries" -lt 20 ] || return "$rc"
        sleep 3
    done
}

apt_installed() { [ "$(dpkg-query -W -f '${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

# Whether the package has a version to install.
apt_knows() { apt-cache policy "$1" 2>/dev/null | grep -q 'Candidate: [^(]'; }

installed_now() { dpkg-query -W -f '${db:Status-Status} ${Package}\n' | sed -n 's/^installed //p' | sort; }

# Installs what is missing of these (NAME or NAME=VERSION), and remembers all that came by it.
apt_install() {
    missing=
    for package in "$@"; do
        apt_installed "${package%%=*}" || missing="$missing $package"
    done
    [ -n "$missing" ] || return 0
    # What a run that was cut brought is its own doing too: its list is the older one.
    [ -s "$gpucl_home/packages.before" ] || installed_now >"$gpucl_home/packages.before"
    failed=
    # shellcheck disable=SC2086
    apt_get install --no-install-recommends $missing || failed=$?
    if [ -n "$failed" ] && grep -q 'Unable to locate package\|has no installation candidate\|Version .* was not found\|404  Not Found\|Unable to fetch some archives' "$gpucl_home/apt.out"; then
        # Its lists may be old.
        apt_get update || :
        failed=
        # shellcheck disable=SC2086
        apt_get install --no-install-recommends $missing || failed=$?
    fi
    installed_now | comm -13 "$gpucl_home/packages.before" - | while read -r package; do note_installed package "$package"; done
    rm -f "$gpucl_home/packages.before"
    return "${failed:-0}"
}

# Gets a file by whatever is there.
fetch() {
    if command -v curl >/dev/null 2>&1; then
        curl -fsSL --retry 2 --connect-timeout 20 --max-time 120 -o "$2" "$1"
    elif command -v wget >/dev/null 2>&1; then
        wget -q -T 60 -t 2 -O "$2" "$1"
    else
        apt_install ca-certificates && /usr/lib/apt/apt-helper download-file "$1" "$2"
    fi
}

# Puts the key with fingerprint $2, and no other, from address $1 into the key ring $3.
add_key() {
    if [ -s "$3" ] && key_is "$3" "$2"; then return 0; fi
    command -v gpg >/dev/null 2>&1 || apt_install gpg || return 1
    work=$(mktemp -d)
    if ! fetch "$1" "$work/key"; then
        echo "the repository's key cannot be fetched from $1"
        rm -rf "$work"
        return 1
    fi
    found=$(gpg --homedir "$work" --batch --show-keys --with-colons "$work/key" 2>/dev/null | awk -F: '$1 == "pub" { next_is = 1 } $1 == "fpr" && next_is { print $10; next_is = 0 }')
    if ! printf '%s\n' "$found" | grep -q -x -F "$2"; then
        echo "the repository's key is not the pinned one: $1 gives $(echo ${found:-no key}), and $2 is pinned"
        rm -rf "$work"
        return 1
    fi
    mkdir -p "${3%/*}"
    gpg --homedir "$work" --batch --quiet --import "$work/key" 2>/dev/null
    gpg --homedir "$work" --batch --export "$2" >"$3.gpucl-new"
    chmod 644 "$3.gpucl-new"
    mv -f "$3.gpucl-new" "$3"
    note_installed file "$3"
    gpgconf --homedir "$work" --kill all >/dev/null 2>&1 || :
    rm -rf "$work"
}

key_is() { command -v gpg >/dev/null 2>&1 && gpg --batch --show-keys --with-colons "$1" 2>/dev/null | grep -q "^fpr:.*:$2:"; }

# Makes the source list $1 of line $2, and reads that list alone, so that others' broken lists do not matter here.
add_repository() {
    if [ "$(cat "$1" 2>/dev/null)" != "$2" ]; then
        printf '%s\n' "$2" >"$1.gpucl-new"
        chmod 644 "$1.gpucl-new"
        mv -f "$1.gpucl-new" "$1"
    fi
    note_installed repository "$1"
    if ! apt_get update -o "Dir::Etc::sourcelist=$1" -o Dir::Etc::sourceparts=- -o APT::Get::List-Cleanup=0 -o APT::Update::Error-Mode=any; then
        # A list that cannot be read would trouble everyone's next update.
        rm -f "$1"
        echo "the repository cannot be read: $2"
        return 1
    fi
}
