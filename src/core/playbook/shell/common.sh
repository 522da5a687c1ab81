# Shared by the program of an exec and the detached program. POSIX, and only what busybox has.

# Prints a line that gpucl parses. The nonce keeps other output from being taken for one.
say() { printf '::gpucl %s %s\n' "$nonce" "$*"; }

# Sets `now`: milliseconds since boot. It needs no process, and that clock is never set.
set_now() {
    read -r now _ </proc/uptime
    now=${now%.*}${now#*.}
    now=${now#0}
    now=${now#0}
    now=$((now * 10))
}

# Sets `started`, when process $1 started, and its process `group`; empty when it is gone. The pid alone may have been
# reused.
set_started() {
    started='' group=''
    stat=
    { read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 0
    # The name is in parentheses and may contain spaces: count the fields after it.
    set -- ${stat##*) }
    case ${1:-} in Z | X | '') ;; *) started=${20:-} group=$3 ;; esac
}

# Sleeps a fraction of a second where `sleep` supports it, else a second.
nap() { sleep "$1" 2>/dev/null || sleep 1; }

# Ends every process with this in its environment, also one in a session of its own: GPUCL_PROGRAM=ID is a program's
# steps and what runs them, GPUCL_STEP=ID its steps alone. They get SIGTERM once, but for those of the process group $3,
# which have had it, and SIGKILL after $2 tenths of a second.
sweep() {
    signal=TERM
    round=0
    while [ "$round" -lt "$((${2:-15} + 25))" ]; do
        found=
        # Without -F: busybox' grep then reads on after the first of the variables.
        for file in $(grep -l -s "$1" /proc/[0-9]*/environ); do
            found=1
            pid=${file#/proc/}
            pid=${pid%/environ}
            if [ "$signal" = TERM ]; then
                # What handles SIGTERM, and starts something for it, is not disturbed.
                [ "$round" -eq 0 ] || continue
                set_started "$pid"
                [ "${group:--}" != "${3:-}" ] || continue
            fi
            kill -s "$signal" "$pid" 2>/dev/null
        done
        [ -n "$found" ] || return 0
        round=$((round + 1))
        [ "$round" -lt "${2:-15}" ] || signal=KILL
        nap 0.1
    done
    return 1
}

# Reboots the machine in a moment and records that beside the lock, so that nothing starts before it is back.
restart_machine() {
    printf '%s\n' "$boot" >"$lock.reboot"
    if [ -d /run/systemd/system ] && systemd-run --quiet --collect --on-active=2 --timer-property=AccuracySec=100ms \
        systemctl reboot >/dev/null 2>&1; then
        return 0
    fi
    setsid sh -c 'sleep 2; reboot' </dev/null >/dev/null 2>&1 9>&- &
}
