# The detached program of one stage: it holds the lock, runs the steps in order, and outlives the exec that started it.

# Runs the `finally` steps of a failed stage, up to the current one.
give_back() {
    for number in $finally; do
        [ "$number" -le "$current" ] || run_script "$dir/$number.sh" 60 >/dev/null 2>&1
    done
}

forget_reboots() { [ ! -e "$home/program/rebooted" ] || rm -f "$home/program/rebooted"; }

finish() {
    case $1 in
        ok) forget_reboots ;;
        failed | timeout)
            forget_reboots
            give_back
            ;;
    esac
    say end "$@"
    printf '%s\n' "$*" >"$dir/result.new"
    mv -f "$dir/result.new" "$dir/result"
    exit 0
}

begin() {
    umask 077
    read -r boot </proc/sys/kernel/random/boot_id
    set_now
    current=0
    deadline=$((now + limit * 1000))
    set_started $$
    cd "$home" || exit 1
    : >>"$dir/values"
    printf '%s\n' "$id $$ $started $boot $stage $digest $deadline $nonce" >"$home/program/current.new"
    mv -f "$home/program/current.new" "$home/program/current"
    say begin "$stage"
}

# Runs the script $1 for at most $2 seconds, in its own process group and without the lock; sets `code` and `late`. With
# `check` as $3, the script first checks whether there is nothing to do.
run_script() {
    set_now
    late=
    until=$((now + $2 * 1000))
    GPUCL_PROGRAM=$id timeout -k 5 "$2" sh "$1" "${3-}" </dev/null 9>&- &
    code=0
    # A shell prints `Killed` for its children; that is not the step's output.
    { wait $! || code=$?; } 2>/dev/null
    set_now
    [ "$code" -eq 0 ] || [ "$now" -lt "$until" ] || late=1
    # Nothing of a timed-out script may go on.
    [ -z "$late" ] || sweep "$id"
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
    [ "$limit_now" -gt 0 ] || limit_now=1
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
    current=$1
    say step "$1" "$5"
    if [ -n "$4" ] && [ -e "$4" ]; then
        say skip "$1" 0 "$5"
        return 0
    fi
    check=check
    attempt=0
    while :; do
        set_limit "$3"
        [ ! -e "$dir/$1.skipped" ] || rm -f "$dir/$1.skipped"
        run_script "$dir/$1.sh" "$limit_now" "$check"
        check=
        [ "$code" -ne 0 ] || break
        sweep "$id"
        [ -z "$late" ] && [ "$attempt" -lt "$2" ] || break
        attempt=$((attempt + 1))
        say retry "$1" "$attempt" "$5"
        sleep 2
    done
    if [ -n "$late" ]; then
        say timeout "$1" "$((now - began))" "$limit_now" "$limit_of" "$5"
        finish timeout "$1"
    elif [ "$code" -ne 0 ]; then
        say fail "$1" "$((now - began))" "$code" "$5"
        finish failed "$1" "$code"
    fi
    # Its check holds, or the step itself found nothing to do (`done_already`).
    if [ -e "$dir/$1.skipped" ]; then
        say skip "$1" "$((now - began))" "$5"
    elif [ "$6" = yes ]; then
        if ! may_restart "$1"; then
            say fail "$1" "$((now - began))" 75 "$5"
            finish failed "$1" 75
        fi
        printf '%s %s %s\n' "$stage-$digest" "$1" "$boot" >>"$home/program/rebooted"
        restart_machine
        say reboot "$1" "$((now - began))" "$5"
        finish reboot "$1"
    else
        say change "$1" "$((now - began))" "$5"
    fi
}

complete() {
    {
        printf '#digest %s\n' "$digest"
        grep -v '^#' "$dir/values"
    } >"$home/prepared/$stage.new"
    mv -f "$home/prepared/$stage.new" "$home/prepared/$stage"
    finish ok
}
