# Runs the steps of one stage in order. It ends with 0 when all succeeded; otherwise `verdict` says what did not.

fail() {
    printf '%s\n' "$*" >"$dir/verdict"
    exit 1
}

# Sets `limit_now`, in seconds, and `limit_of`: the step's own limit or what is left of the stage's.
set_limit() {
    set_now
    limit_now=$(((deadline - now + 999) / 1000))
    limit_of=stage
    if [ "$1" -gt 0 ] && [ "$1" -lt "$limit_now" ]; then
        limit_now=$1
        limit_of=step
    fi
}

# Runs the script $1; sets `code` and `late`. With `check` as $2, the script first checks whether there is nothing to do.
# Only a step's own limit takes a process: the detached program enforces the stage's.
run_script() {
    late=
    until=$((now + limit_now * 1000))
    if [ "$limit_of" = step ]; then
        GPUCL_STEP=$id timeout -k 5 "$limit_now" sh "$1" "$2" &
    else
        GPUCL_STEP=$id sh "$1" "$2" &
    fi
    code=0
    # A shell prints `Killed` for its children; that is not the step's output.
    { wait $! || code=$?; } 2>/dev/null
    set_now
    [ "$code" -eq 0 ] || [ "$limit_of" = stage ] || [ "$now" -lt "$until" ] || late=1
}

# Whether the machine may be rebooted for step $1; prints why not. Never twice for one step: if one reboot did not help,
# another will not.
may_restart() {
    count=$(grep -c -s "^$stage-$digest " "$home/program/rebooted")
    if [ "$reboots" != yes ]; then
        echo "this step needs a reboot, which gpucl does not do on this machine"
    elif grep -q -s -x "$stage-$digest $1 .*" "$home/program/rebooted"; then
        echo "this machine was rebooted for this step, and its check still fails"
    elif [ "${count:-0}" -ge 2 ]; then
        echo "this machine was already rebooted twice in this stage"
    else
        return 0
    fi
    return 1
}

# One step: number, retries, limit in seconds or 0, path it creates, name, whether a reboot follows (`yes`).
step() {
    set_now
    began=$now
    printf '%s\n' "$1 $began $5" >"$dir/at"
    say step "$1" "$5"
    if [ -n "$4" ] && [ -e "$4" ]; then
        say skip "$1" 0 "$5"
        return 0
    fi
    check=check
    attempt=0
    while :; do
        # Nothing begins once the detached program is gone.
        set_started "$program"
        [ "$started" = "$program_started" ] || exit 1
        set_limit "$3"
        [ ! -e "$dir/$1.skipped" ] || rm -f "$dir/$1.skipped"
        run_script "$dir/$1.sh" "$check"
        check=
        [ "$code" -ne 0 ] || break
        # Nothing of a failed step may go on.
        sweep "GPUCL_STEP=$id"
        [ -z "$late" ] && [ "$attempt" -lt "$2" ] || break
        attempt=$((attempt + 1))
        say retry "$1" "$attempt" "$5"
        sleep 2
    done
    if [ -n "$late" ]; then
        say timeout "$1" "$((now - began))" "$limit_now" step "$5"
        fail timeout "$1"
    elif [ "$code" -ne 0 ]; then
        say fail "$1" "$((now - began))" "$code" "$5"
        fail failed "$1" "$code"
    fi
    # Its check holds, or the step itself found nothing to do (`done_already`).
    if [ -e "$dir/$1.skipped" ]; then
        say skip "$1" "$((now - began))" "$5"
    elif [ "$6" = yes ]; then
        if ! may_restart "$1"; then
            say fail "$1" "$((now - began))" 75 "$5"
            fail failed "$1" 75
        fi
        say reboot "$1" "$((now - began))" "$5"
        fail reboot "$1"
    else
        say change "$1" "$((now - began))" "$5"
    fi
}

# The detached program: its pid, when it started, and when the stage's limit is.
program=$1 program_started=$2 deadline=$3
