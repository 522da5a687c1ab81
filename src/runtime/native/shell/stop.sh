# Ends what runs of one tag on this host: asked first, then ended. Files stay.
stop_project() {
    end_supervisor || return 1
    pids=$(carrying "GPUCL_HOST=$tag")
    [ -z "$pids" ] || count=$(printf '%s\n' "$pids" | wc -l)
    rounds=0
    while [ -n "$pids" ]; do
        mains=
        for pid in $pids; do
            if tr '\0' '\n' <"/proc/$pid/cmdline" 2>/dev/null | grep -q '/node\.py$'; then mains="$mains $pid"; fi
        done
        # A node ends its children itself; when only children are left, or it takes too long, the rest is ended.
        if [ -n "$mains" ] && [ "$rounds" -lt "$((grace * 5))" ]; then
            # shellcheck disable=SC2086
            [ "$rounds" -gt 0 ] || kill -s TERM $mains 2>/dev/null
        else
            # shellcheck disable=SC2086
            kill -s KILL $pids 2>/dev/null
        fi
        rounds=$((rounds + 1))
        [ "$rounds" -lt "$((grace * 5 + 75))" ] || return 1
        sleep 0.2 2>/dev/null || sleep 1
        pids=$(carrying "GPUCL_HOST=$tag")
    done
    rm -f "$home"/run/*
    [ -z "${count:-}" ] || echo "::removed $((count)) processes"
}
