# The program of one exec: collect the facts, then start the stage's program or attach to a running one, and follow it.

trouble() {
    say trouble "$*"
    say bye
    exit 1
}

fact() { say fact "$@"; }

# The free KiB of the file system that path $1 is on, or will be on.
free_of() {
    place=$1
    until [ -e "$place" ] || [ -z "$place" ]; do place=${place%/*}; done
    df -Pk "${place:-/}" 2>/dev/null | awk 'END { print $4 }'
}

# Prints a full disk as the reason for a failed write: some shells report only that there was an error.
or_full() {
    free=$(free_of "$home")
    [ "${free:-64}" -ge 64 ] || printf ': No space left on device (%s)' "$home"
}

# Reads which program runs, or ran last. False when unknown: a line that is being written has no end yet.
read_current() {
    { read -r c_id c_pid c_start c_boot c_stage c_digest c_deadline c_nonce <"$home/program/current"; } 2>/dev/null || return 1
    c_dir=$home/program/$c_stage-$c_digest
}

# Sets `verdict`: how the program $2 in the folder $1 ended. False when it has not: the folder may be another's by now.
has_result() {
    { read -r ended verdict <"$1/result"; } 2>/dev/null && [ "$ended" = "$2" ] && return 0
    verdict=
    return 1
}

# Whether the program named in `current` still runs.
runs() {
    read_current && [ "$c_boot" = "$boot" ] && ! has_result "$c_dir" "$c_id" || return 1
    set_started "$c_pid"
    [ "$started" = "$c_start" ]
}

# Sets `who` to the stage and tag of another cluster's program running on this host; false when there is none.
find_other() {
    who=
    for file in "${lock%/*}"/*/program/current; do
        { read -r o_id o_pid o_start o_boot o_stage o_digest _ <"$file"; } 2>/dev/null || continue
        other=${file%/program/current}
        [ "$other" != "$home" ] && [ "$o_boot" = "$boot" ] || continue
        ! has_result "$other/program/$o_stage-$o_digest" "$o_id" || continue
        set_started "$o_pid"
        [ "$started" = "$o_start" ] || continue
        who="$o_stage ${other##*/}"
        return 0
    done
    return 1
}

# The lock is held, but not by a program of this cluster: waits a moment, and gives up at a limit.
wait_for_lock() {
    set_now
    [ -n "$waiting_since" ] || waiting_since=$now
    if find_other; then
        [ "$who" = "$waiting_for" ] || say waiting "$limit" "$who"
        waiting_for=$who
        [ "$((now - waiting_since))" -lt "$((limit * 1000))" ] || trouble "another cluster's program (stage $who) did not end within $limit seconds"
        nap 1
    else
        # A program is about to start or to end.
        waited=$((waited + 1))
        [ "$waited" -lt 600 ] || trouble "$lock is held, but not by a program of gpucl"
        nap 0.1
    fi
}

# Whether the machine is about to reboot, which would cut off anything started now.
is_rebooting() {
    rebooting=
    { read -r rebooting _ <"$lock.reboot"; } 2>/dev/null
    [ -n "$rebooting" ] || return 1
    if [ "$rebooting" != "$boot" ]; then
        rm -f "$lock.reboot"
        return 1
    fi
    # Requested more than two minutes ago without effect: once more.
    [ -z "$(find "$lock.reboot" -mmin +2 2>/dev/null)" ] || restart_machine
}

# A killed program may have left a step running: ends it before anything else starts.
end_leftover() {
    read_current || return 0
    [ "$c_boot" = "$boot" ] || return 0
    ! has_result "$c_dir" "$c_id" || return 0
    sweep "GPUCL_PROGRAM=$c_id" || trouble "a step of the killed program of stage $c_stage cannot be ended"
}

say_values() {
    [ ! -r "$1" ] || while read -r key value; do
        case $key in '#'* | '') ;; *) say value "$key" "$value" ;; esac
    done <"$1"
}

# Whether the stage last succeeded with this digest and still passes the cheap checks.
is_unchanged() {
    [ -r "$home/prepared/$stage" ] || return 1
    read -r _ done_digest <"$home/prepared/$stage"
    [ "$done_digest" = "$digest" ] || return 1
    still_holds "$home/prepared/$stage"
}

# Starts the detached program, which inherits the lock: it is released when the program ends, however it ends.
start() {
    # Keep the last program's folder: another exec may still read its result.
    last=
    if read_current; then last=$c_dir; fi
    [ ! -e "$home/program/current" ] || rm -f "$home/program/current"
    for old in "$home/program/$stage-"*; do
        [ ! -e "$old" ] || [ "$old" = "$last" ] && [ "$old" != "$dir" ] || rm -rf "$old"
    done
    mkdir -p "$dir" || trouble "the folder $dir cannot be created$(or_full)"
    # The values of the last program, for `saved` and for skipped steps.
    [ ! -r "$home/prepared/$stage" ] || cp "$home/prepared/$stage" "$dir/values" || trouble "$dir cannot be written$(or_full)"
    deliver || trouble "a file cannot be written$(or_full)"
    # From here on the stage counts as incomplete. What it found before stays known: nodes that it started still run with that.
    if [ -e "$home/prepared/$stage" ]; then
        { echo '#digest incomplete' && grep -v '^#' "$dir/values" || :; } >"$home/prepared/$stage.new" &&
            mv -f "$home/prepared/$stage.new" "$home/prepared/$stage" || trouble "$home/prepared/$stage cannot be written$(or_full)"
    fi
    printf '' >"$dir/log" || trouble "$dir cannot be written$(or_full)"
    # Where systemd ends a session's processes with its connection, a separate scope survives. Whether it can be had is
    # known only by starting in it.
    if [ -d /run/systemd/system ] && [ "$(id -u)" = 0 ]; then
        setsid sh -c '
            systemd-run --scope --quiet --collect --unit="gpucl-$1" sh -c '\''exec sh "$1" 2>&3 3>&-'\'' - "$2" 3>&1 2>/dev/null ||
                grep -q "^$1 " "$3" 2>/dev/null || exec sh "$2"' - "$id" "$dir/run.sh" "$home/program/current" \
            </dev/null >>"$dir/log" 2>&1 &
    else
        setsid sh "$dir/run.sh" </dev/null >>"$dir/log" 2>&1 &
    fi
    exec 9>&-
    set_now
    c_id=$id c_pid='' c_start='' c_boot=$boot c_stage=$stage c_digest=$digest c_nonce=$program_nonce c_dir=$dir
    c_deadline=$((now + limit * 1000))
}

# The program that this exec has started records its pid when it begins; until then it is followed without.
find_pid() {
    { read -r o_id o_pid o_start _ _ _ o_deadline _ <"$home/program/current"; } 2>/dev/null || o_id=
    case $o_id in
        "$id") c_pid=$o_pid c_start=$o_start c_deadline=$o_deadline ;;
        # It held the lock before another program could record itself, and has ended.
        ?*) c_pid=0 c_start=- ;;
        *)
            set_now
            # Whoever starts it holds the lock until it ends.
            if [ -n "$is_free" ]; then patience=2000; else patience=30000; fi
            [ "$now" -lt "$((c_deadline - limit * 1000 + patience))" ] ||
                trouble "the program did not start: $(tail -n 3 "$dir/log" 2>/dev/null)$(or_full)"
            ;;
    esac
}

# Opens the log of the current program at byte $1.
open_log() {
    reached=$1
    # A failing redirection of `exec` would end the shell.
    (: <"$c_dir/log") 2>/dev/null || return 0
    exec 8<"$c_dir/log"
    [ "$reached" -eq 0 ] || dd bs="$reached" count=1 <&8 >/dev/null 2>&1
}

# Prints what is new in the log, a line break, and then the byte offset reached: a line may not be whole yet. At most 16
# MiB at a time, since a step may print faster than the network takes it. False when there is nothing new.
show_new() {
    before=$reached
    { dd bs=65536 count=256 <&8; } 2>/dev/null
    # The offset is that of our file, which `dd` shares: that takes no other process.
    { read -r _ reached <"/proc/$$/fdinfo/8"; } 2>/dev/null
    [ "$reached" -gt "$before" ] || return 1
    echo
    say at "$reached"
}

# Waits half a second, later a whole one, or until the program ends: its lock is free then.
nap_or_end() {
    looks=$((looks + 1))
    if [ "$looks" -lt 7 ]; then pause=0.5; else pause=1; fi
    code=0
    { flock -s -E 7 -w "$pause" 6 6<"$lock" || code=$?; } 2>/dev/null
    case $code in
        7) return 0 ;;
        # The program must have ended, or something else took its lock away.
        0) [ -n "$is_free" ] || { is_free=1; return 0; } ;;
    esac
    nap 0.2
}

# Follows the current program from byte $1 of its log to its end; sets `over`.
follow() {
    over=
    is_free=
    looks=0
    same=other
    [ "$c_stage-$c_digest" != "$stage-$digest" ] || same=same
    say log "$c_nonce" "$c_id" "$same" "$c_stage"
    open_log "$1"
    set_started "$PPID"
    parent=$started
    while :; do
        # The reader was killed.
        set_started "$PPID"
        [ "$started" = "$parent" ] || exit 1
        [ -n "$c_pid" ] || find_pid
        # The order matters: check for the end first, then read what was written before it.
        set_started "${c_pid:-0}"
        if has_result "$c_dir" "$c_id"; then
            over=result
        elif [ ! -e "$c_dir/log" ]; then
            over=gone
        elif [ "$started" != "$c_start" ]; then
            over=died
        else
            set_now
            [ "$now" -lt "$((c_deadline + 30000))" ] || over=stuck
        fi
        [ -z "$c_pid$over" ] || show_new
        [ -z "$over" ] || break
        nap_or_end
    done
    # It may have ended normally between the two checks.
    if [ "$over" = died ] && has_result "$c_dir" "$c_id"; then over=result; fi
    # All of it is shown unless there was more than is shown at a time.
    while [ "$((reached - before))" -ge 16777216 ] && show_new; do :; done
    exec 8<&-
}

# Reports how the followed program ended.
report() {
    say_values "$c_dir/values"
    say over "$c_id" "$over" "$verdict"
}

main() {
    umask 077
    read -r boot </proc/sys/kernel/random/boot_id
    if [ "$stage" = - ]; then
        facts
        say bye
        return 0
    fi
    for tool in flock setsid timeout base64 grep; do
        command -v "$tool" >/dev/null 2>&1 || trouble "the command $tool is missing on this host"
    done
    [ -d "$home/program" ] && [ -d "$home/prepared" ] && [ -d "${lock%/*}" ] || mkdir -p "$home/program" "$home/prepared" "${lock%/*}" || trouble "the folder $home cannot be written$(or_full)"
    cd "$home" || trouble "the folder $home cannot be entered"
    fact boot_id "$boot"
    waited=0
    waiting_since=
    waiting_for=
    # A broken exec may have started our program already, before it could report that.
    own=$id
    while :; do
        if [ -n "$resume" ] && read_current && [ "$c_id" = "$resume" ] && [ "$c_boot" = "$boot" ]; then
            from=$resume_at
        elif [ -n "$own" ] && read_current && [ "$c_id" = "$own" ] && [ "$c_boot" = "$boot" ]; then
            from=0
        else
            # A failing redirection of `exec` would end the shell without our error message.
            (: >>"$lock") || trouble "the file $lock cannot be written$(or_full)"
            exec 9>>"$lock"
            from=0
            if flock -n 9; then
                if is_rebooting; then
                    say rebooting
                    verdict=
                    break
                fi
                end_leftover
                if is_unchanged; then
                    say_values "$home/prepared/$stage"
                    say unchanged
                    verdict=ok
                    break
                fi
                start
            elif ! runs; then
                wait_for_lock
                continue
            fi
        fi
        resume=
        own=
        exec 9>&-
        follow "$from"
        # Two later programs replaced its folder, so its result is unknown: start over.
        [ "$over" != gone ] || continue
        report
        [ "$same" = other ] && [ "$over" != stuck ] || break
    done
    # Only now: once its driver is installed, a GPU reports its name.
    case ${verdict-} in ok*) [ -n "$brief" ] || facts ;; esac
    say bye
}
