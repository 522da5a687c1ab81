# Ends the program running on this host, and every process of its steps.
main() {
    umask 077
    read -r boot </proc/sys/kernel/random/boot_id
    if read_current && [ "$c_boot" = "$boot" ] && ! has_result "$c_dir" "$c_id"; then
        set_started "$c_pid"
        if [ -n "$started" ] && [ "$started" = "$c_start" ]; then
            kill -s KILL "$c_pid"
            say ended "$c_stage"
        fi
        sweep "GPUCL_PROGRAM=$c_id"
        printf '%s\n' "$c_id ended" >"$c_dir/result"
    fi
    say bye
}
