# Puts back what playbooks changed on a host, by the lines that they wrote down in `installed`.
cd "$home" 2>/dev/null || exit 0
export DEBIAN_FRONTEND=noninteractive NEEDRESTART_MODE=l NEEDRESTART_SUSPEND=1 LC_ALL=C

# Another cluster's host lies here as well: what both may need stays.
others=
for folder in "${home%/*}"/gpucl-*; do
    [ "$folder" = "$home" ] || [ ! -d "$folder" ] || others=1
done

# A file of the system, as it was before; $2 is where it was kept, $3 what we made of it.
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

# What the engine kept. Its folders may be file systems of their own.
forget_engine() {
    for folder in /var/lib/docker /var/lib/containerd /etc/docker; do
        [ -d "$folder" ] || continue
        find "$folder" -xdev -mindepth 1 -delete 2>/dev/null
        rmdir "$folder" 2>/dev/null
    done
    ip link delete docker0 2>/dev/null
}

# An install of ours that was cut: the package system is made whole, and what came by it is written down.
if [ -s packages.before ]; then
    if timeout 900 dpkg --force-confdef --force-confold --configure -a >undo.errors 2>&1 &&
        timeout 900 apt-get -q -y -o DPkg::Lock::Timeout=300 -o Dpkg::Options::=--force-confdef -o Dpkg::Options::=--force-confold -f install >>undo.errors 2>&1; then
        echo "::removed the cut in an install of packages"
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
    # Lines that stay are written anew, so that this can be run again.
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
                # The engine leaves the groups above those of its containers.
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
                        echo "::kept ${home%/*}/replaced/$(printf '%s' "$rest" | tr '/' '_') ($rest as it was; another list takes its place)"
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
        echo "::kept packages (another cluster has this host):$packages"
    elif [ "$purge" = yes ]; then
        # What of them was removed by somebody else meanwhile cannot be named.
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
