# The detached program of one stage: it holds the lock, has the steps run, and outlives the exec that started it.

# Runs the `finally` steps of a failed stage, up to the current one.
give_back() {
    for number in $finally; do
        [ "$number" -le "$current" ] || GPUCL_PROGRAM=$id timeout -k 5 60 sh "$dir/$number.sh" </dev/null >/dev/null 2>&1 9>&- ||
            sweep "GPUCL_PROGRAM=$id"
    done
}

forget_reboots() { [ ! -e "$home/program/rebooted" ] || rm -f "$home/program/rebooted"; }

finish() {
    case $1 in
        ok) forget_reboots ;;
        reboot) restart_machine ;;
        failed | timeout)
            forget_reboots
            give_back
            ;;
    esac
    say end "$@"
    printf '%s\n' "$*" >"$dir/result"
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
    printf '%s\n' "$id $$ $started $boot $stage $digest $deadline $nonce" >"$home/program/current"
    say begin "$stage"
}

# Runs the steps for at most the stage's limit, in their own process group and without the lock. Returns when all
# succeeded.
run_steps() {
    GPUCL_PROGRAM=$id timeout -k 5 "$limit" sh "$dir/steps.sh" </dev/null 9>&- &
    code=0
    # A shell prints `Killed` for its children; that is not the step's output.
    { wait $! || code=$?; } 2>/dev/null
    [ "$code" -ne 0 ] || return 0
    set_now
    # Nothing of a failed step may go on. `timeout` ends only the shell that runs the steps.
    sweep "GPUCL_PROGRAM=$id" 50
    began=$now name='' verdict=''
    { read -r current began name <"$dir/at"; } 2>/dev/null
    { read -r verdict <"$dir/verdict"; } 2>/dev/null
    if [ -z "$verdict" ] && [ "$now" -ge "$deadline" ]; then
        say timeout "$current" "$((now - began))" "$limit" stage "$name"
        verdict="timeout $current"
    elif [ -z "$verdict" ]; then
        say fail "$current" "$((now - began))" "$code" "$name"
        verdict="failed $current $code"
    fi
    # shellcheck disable=SC2086
    finish $verdict
}

complete() {
    {
        printf '#digest %s\n' "$digest"
        while IFS= read -r line; do
            case $line in '#'*) ;; *) printf '%s\n' "$line" ;; esac
        done <"$dir/values"
    } >"$home/prepared/$stage.new"
    mv -f "$home/prepared/$stage.new" "$home/prepared/$stage"
    finish ok
}
