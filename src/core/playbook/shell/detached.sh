# The detached program of one stage: it holds the lock, has the steps run, and outlives the exec that started it.

# Runs the `finally` steps of a failed stage that come after the current one.
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
        reboot)
            printf '%s %s %s\n' "$stage-$digest" "$2" "$boot" >>"$home/program/rebooted"
            restart_machine
            ;;
        failed | timeout)
            forget_reboots
            give_back
            ;;
    esac
    say end "$@"
    printf '%s\n' "$id $*" >"$dir/result"
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
    printf '%s\n' "$id $$ $started $boot $stage $digest $deadline $nonce" >"$home/program/current" || exit 1
    say begin "$stage"
}

# Runs the steps for at most the stage's limit, apart from this process group and without the lock. Returns when all
# succeeded.
run_steps() {
    GPUCL_PROGRAM=$id timeout -k 5 "$limit" sh "$dir/steps.sh" $$ "$started" "$deadline" </dev/null 9>&- &
    runner=$!
    code=0
    # A shell prints `Killed` for its children; that is not the step's output.
    { wait "$runner" || code=$?; } 2>/dev/null
    [ "$code" -ne 0 ] || return 0
    set_now
    # At the limit `timeout` signals its process group, but waits only for the shell that runs the steps.
    [ "$now" -ge "$deadline" ] || runner=
    # Nothing of a failed step may go on.
    sweep "GPUCL_PROGRAM=$id" 50 "$runner"
    { read -r current began name <"$dir/at"; } 2>/dev/null || current=0 began=$now name=''
    verdict=
    if [ -e "$dir/verdict" ]; then
        # The step's end is in the log already, even if the disk is too full for the verdict.
        { read -r verdict <"$dir/verdict"; } 2>/dev/null || verdict="failed $current $code"
    elif [ "$now" -ge "$deadline" ]; then
        say timeout "$current" "$((now - began))" "$limit" stage "$name"
        verdict="timeout $current"
    else
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
