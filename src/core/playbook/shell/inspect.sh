# Inspects the host: facts, completed stages, and the output of the script. Changes nothing.
main() {
    read -r boot </proc/sys/kernel/random/boot_id
    facts
    cd "$home" 2>/dev/null || cd /
    if runs; then say running "$c_stage"; fi
    is_rebooting_now=
    { read -r is_rebooting_now _ <"$lock.reboot"; } 2>/dev/null
    [ "$is_rebooting_now" != "$boot" ] || say rebooting
    for file in "$home"/prepared/*; do
        case $file in *.new) continue ;; esac
        { read -r _ done_digest <"$file"; } 2>/dev/null || continue
        # It began again and did not come to its end.
        [ "$done_digest" != incomplete ] || continue
        name=${file##*/}
        say stage "$name" "$done_digest"
        while read -r key value; do
            case $key in '#'* | '') ;; *) say stage-value "$name" "$key" "$value" ;; esac
        done <"$file"
    done
    hold_all
    # Each line of its output gets our mark, so that it cannot pass for another line.
    # The script is not an argument, which everybody on the host could read.
    # A script that was killed at the limit has shown only a part of what is there. awk's input ends with a line of the exit
    # code: 124 and 125 are those of timeout, above 127 a signal ended it. An empty line before it only ends the script's
    # last one.
    {
        timeout 180 sh /dev/fd/3 3<<LOOK </dev/null
$script
LOOK
        printf '\n%s\n' "$?"
    } | awk -v mark="::gpucl $nonce line " '
        NR > 2 { print mark before }
        { before = last; last = $0 }
        END { if (before != "") print mark before; exit last == 124 || last == 125 || last > 127 }
    ' || {
        echo "what is there could not be read to its end within 180 s" >&2
        exit 1
    }
    say bye
}
