# Reverts what playbooks changed on a host, from their records in `installed`.
cd "$home" 2>/dev/null || exit 0
export DEBIAN_FRONTEND=noninteractive NEEDRESTART_MODE=l NEEDRESTART_SUSPEND=1 LC_ALL=C

# Whether another cluster uses this machine too: then whatever both may need stays.
others=
for folder in "${home%/*}"/gpucl-*; do
    [ "$folder" = "$home" ] || [ ! -d "$folder" ] || others=1
done

# Restores the system file $1; $2 is the saved original or -, $3 the checksum of gpucl's version or -.
put_back() {
    now=-
    [ ! -e "$1" ] || now=$(cksum <"$1" | tr ' ' -)
    if [ "$now" = - ]; then return 0; fi
    if [ "$3" != - ] && [ "$now" != "$3" ]; then
        echo "::kept $1 (changed by somebody else since)"
    elif [ "$2" != - ]; then
        if cp -p "$home/$2" "$1"; then echo "::removed what was added to $1"; else echo "::left $1"; fi
    else
        if rm -f "$1"; then echo "::removed $1"; else echo "::left $1"; fi
        rmdir "${1%/*}" 2>/dev/null
    fi
}

# Removes the engine's data. Its folders may be mount points.
forget_engine() {
    for folder in /var/lib/docker /var/lib/containerd /etc/docker; do
        [ -d "$folder" ] || continue
        find "$folder" -xdev -mindepth 1 -delete 2>/dev/null
        rmdir "$folder" 2>/dev/null
    done
    ip link delete docker0 2>/dev/null
}

# After an interrupted installation: repairs the package system, and records the packages that it added.
if [ -s packages.before ]; then
    if timeout 900 dpkg --force-confdef --force-confold --configure -a >undo.errors 2>&1 &&
        timeout 900 apt-get -q -y -o DPkg::Lock::Timeout=300 -o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold -f install >>undo.errors 2>&1; then
        echo "::removed an interrupted package installation"
    else
        tail -n 1 undo.errors
        echo "::left packages that dpkg cannot configure"
    fi
    dpkg-query -W -f '${db:Status-Status} ${Package}\n' | sed -n 's/^installed //p' | sort | comm -13 packages.before - |
        sed 's/^/package /' >>installed
    rm -f packages.before undo.errors
fi

packages=
if [ -s installed ]; then
    # Reads a copy, so that this can be run again.
    cp installed installed.undo
    while read -r kind rest; do
        case $kind in
            setting)
                # shellcheck disable=SC2086
                put_back $rest
                ;;
            unit)
                systemctl disable --quiet --now "$rest" 2>/dev/null
                rm -f "/etc/systemd/system/$rest"
                systemctl daemon-reload 2>/dev/null
                echo "::removed unit $rest"
                ;;
            nft)
                unit=$(echo "$rest" | tr _ -)
                systemctl stop "$unit-revert.timer" 2>/dev/null
                if nft list table inet "$rest" >/dev/null 2>&1; then
                    if nft delete table inet "$rest"; then echo "::removed nftables table $rest"; else echo "::left nftables table $rest"; fi
                fi
                ;;
            cgroup)
                # The engine leaves the parent groups of its containers behind.
                find /sys/fs/cgroup -depth -type d \( -name "$rest" -o -path "*/$rest/*" \) -exec rmdir {} + 2>/dev/null
                if [ -n "$(find /sys/fs/cgroup -type d -name "$rest" 2>/dev/null)" ]; then echo "::left control group $rest"; else echo "::removed control group $rest"; fi
                ;;
            firewalld)
                firewall-cmd --quiet --remove-rich-rule="$rest" 2>/dev/null
                firewall-cmd --quiet --permanent --remove-rich-rule="$rest" 2>/dev/null
                echo "::removed firewalld rule $rest"
                ;;
            ufw)
                # shellcheck disable=SC2086
                ufw delete $rest >/dev/null 2>&1
                echo "::removed ufw rule $rest"
                ;;
            package) packages="$packages $rest" ;;
            moved)
                if [ "$purge" = yes ]; then
                    mv -f "$home/original/$(printf '%s' "$rest" | tr '/' '_')" "$rest" && echo "::removed our change of $rest"
                else
                    mkdir -p "${home%/*}/replaced"
                    cp -p "$home/original/$(printf '%s' "$rest" | tr '/' '_')" "${home%/*}/replaced/" 2>/dev/null &&
                        echo "::kept ${home%/*}/replaced/$(printf '%s' "$rest" | tr '/' '_') (the original $rest, replaced by another list)"
                fi
                ;;
            repository | file)
                if [ "$purge" = yes ] && [ -z "$others" ]; then
                    rm -f "$rest" && echo "::removed $kind $rest"
                else
                    echo "::kept $kind $rest"
                fi
                ;;
        esac
    done <installed.undo
    rm -f installed.undo
fi
if [ -n "$packages" ]; then
    if [ "$purge" = yes ] && [ -n "$others" ]; then
        echo "::kept packages (another cluster uses this host):$packages"
    elif [ "$purge" = yes ]; then
        # apt refuses the names of packages that were removed meanwhile.
        there=
        for package in $packages; do
            case $(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null) in '' | not-installed) ;; *) there="$there $package" ;; esac
        done
        systemctl stop docker.service docker.socket containerd.service 2>/dev/null
        # shellcheck disable=SC2086
        if [ -z "$there" ] || timeout 900 apt-get -q -y -o DPkg::Lock::Timeout=300 purge $there >/dev/null 2>undo.errors; then
            echo "::removed packages:$packages"
            case " $packages " in *' docker.io '* | *' docker-ce '*) forget_engine ;; esac
        else
            tail -n 1 undo.errors
            echo "::left packages:$there"
        fi
        rm -f undo.errors
    else
        echo "::kept packages:$packages"
    fi
fi
if [ -s held ]; then
    while read -r timer; do systemctl start "$timer" 2>/dev/null && echo "::removed the hold on $timer"; done <held
    rm -f held
fi
