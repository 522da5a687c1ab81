# What the program of an exec and the detached program share. POSIX, and no more than busybox has.

# Prints a line that gpucl reads. Only who knows the nonce can print one.
say() { printf '::gpucl %s %s\n' "$nonce" "$*"; }

# Sets `now`: milliseconds since the machine started. It costs no process, and nobody sets that clock.
tell_now() {
    read -r now _ </proc/uptime
    now=${now%.*}${now#*.}
    now=${now#0}
    now=${now#0}
    now=$((now * 10))
}

# Sets `started`: when process $1 started, or nothing when it is gone. A pid alone may be a stranger's by now.
tell_started() {
    started=
    stat=
    { read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 0
    # The name stands in parentheses and may hold blanks: count from behind it.
    set -- ${stat##*) }
    case ${1:-} in Z | X | '') ;; *) started=${20:-} ;; esac
}

# Sleeps a fraction of a second where that is known, else a second.
nap() { sleep "$1" 2>/dev/null || sleep 1; }

# Ends every process that a step of program $1 began, also one that went into a session of its own.
sweep() {
    signal=TERM
    round=0
    while [ "$round" -lt 40 ]; do
        found=
        for file in $(grep -l -s -F "GPUCL_PROGRAM=$1" /proc/[0-9]*/environ); do
            found=1
            pid=${file#/proc/}
            kill -s "$signal" "${pid%/environ}" 2>/dev/null
        done
        [ -n "$found" ] || return 0
        [ "$round" -lt 15 ] || signal=KILL
        round=$((round + 1))
        nap 0.1
    done
    return 1
}

# Starts the machine anew in a moment, and says so beside the lock: nobody begins anything before it is back.
restart_machine() {
    printf '%s\n' "$boot" >"$lock.reboot"
    if [ -d /run/systemd/system ] && systemd-run --quiet --collect --on-active=2 --timer-property=AccuracySec=100ms \
        systemctl reboot >/dev/null 2>&1; then
        return 0
    fi
    setsid sh -c 'sleep 2; reboot' </dev/null >/dev/null 2>&1 9>&- &
}
