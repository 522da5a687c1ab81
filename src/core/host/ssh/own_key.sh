# Gives this host a key of its own in place of the one that its user data gave it. POSIX. Variables: `given`, the public
# half of that one; `own`, that of the new one, once it is known; `step`: `make` makes the new key and prints its public
# half, `take` has the SSH server use it. Both can be repeated.

PATH=$PATH:/usr/sbin:/usr/local/sbin
umask 077

failed() {
    echo "::failed $*"
    exit 0
}

# Sets `server`, the process of the SSH server that let us in, and `title`, how it was started.
find_server() {
    server='' pid=$$
    while [ "${pid:-0}" -gt 0 ]; do
        stat=
        { read -r stat <"/proc/$pid/stat"; } 2>/dev/null || break
        name=${stat#*\(}
        case ${name%)*} in sshd*) server=$pid ;; esac
        # The name is in parentheses and may contain spaces: count the fields after it.
        # shellcheck disable=SC2086
        set -- ${stat##*) }
        pid=${2:-0}
    done
    [ -n "$server" ] || failed 'its SSH server is not OpenSSH, or hides its processes'
    title=$(tr '\0' ' ' <"/proc/$server/cmdline")
}

# Sets `program`, the server's, and `config`, its configuration if that is not the usual one.
find_config() {
    config='' before=''
    set -f
    for word in $title; do
        [ "$before" != -f ] || config=$word
        before=$word
    done
    set +f
    program=$(readlink "/proc/$server/exe")
    case $program in /*/sshd) ;; *) program=$(command -v sshd) || failed 'its program sshd was not found' ;; esac
}

run_sshd() { "$program" ${config:+-f "$config"} "$@"; }

# Prints the public half of a private key: type and key. Nothing when the file is missing, or half written.
public_of() { ssh-keygen -y -P '' -f "$1" 2>/dev/null </dev/null | cut -d ' ' -f 1,2; }

# Sets `found`, the file of the given key, or `taken`, that of the new one.
find_key() {
    found='' taken=''
    files=$(run_sshd -T 2>/dev/null | sed -n 's/^hostkey //p')
    [ -n "$files" ] || files=$(ls /etc/ssh/ssh_host_*_key 2>/dev/null)
    IFS='
'
    for file in $files; do
        case $(public_of "$file") in
            '') ;;
            "$given") found=$file ;;
            "$own") taken=$file ;;
        esac
    done
    unset IFS
    [ -n "$found$taken" ] || failed 'none of the host keys that its SSH server reads is the one in its user data'
}

make_key() {
    # Taken by an earlier call.
    if [ -z "$found" ]; then
        echo "::own_key $own"
        return
    fi
    new=$found.gpucl
    made=$(public_of "$new")
    if [ -z "$made" ]; then
        rm -f "$new" "$new.pub"
        said=$(ssh-keygen -q -t ed25519 -N '' -C '' -f "$new" 2>&1 </dev/null) || failed "ssh-keygen: $said"
        made=$(public_of "$new")
        # As the server can read the one that it replaces.
        chown "$(stat -c %u:%g "$found")" "$new" && chmod "$(stat -c %a "$found")" "$new" || failed "cannot change $new"
    fi
    echo "::own_key $made"
}

take_key() {
    # With a mistake in its configuration it would end instead of reading it again.
    said=$(run_sshd -t 2>&1) || failed "its SSH server refuses its own configuration: $said"
    if [ -n "$found" ]; then
        [ "$(public_of "$found.gpucl")" = "$own" ] || failed "$found.gpucl is no longer the key that was made"
        sync "$found.gpucl" 2>/dev/null || sync
        said=$(mv -f "$found.gpucl" "$found" 2>&1) || failed "$said"
        taken=$found
    fi
    [ ! -e "$taken.gpucl.pub" ] || mv -f "$taken.gpucl.pub" "$taken.pub"
    restorecon "$taken" "$taken.pub" >/dev/null 2>&1
    # A server that is started for each connection has nothing to read again.
    case $title in *'[listener]'* | /*) kill -s HUP "$server" || failed "cannot reload its SSH server" ;; esac
    echo '::taken'
}

# Read to its end before it is run: a lost connection must not leave half of it to run.
own_key() {
    find_server
    find_config
    find_key
    "${step}_key"
}
own_key
