# Checks everything that this host runs, in parallel. Prints one line per check; changes nothing.
# In the cluster's folder, for which there is room: others may have filled the common one.
dir=$home/.checks-$$
mkdir -m 700 "$dir" 2>/dev/null || dir=$(mktemp -d) || exit 0
ray_env=$(sed -n 's/^ray_env //p' "$home/prepared/prepare" 2>/dev/null)
RAY_AUTH_MODE=token
RAY_AUTH_TOKEN_PATH=$home/secrets/ray_token
GPUCL_SECRETS=$home/secrets
RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER=0
RAY_USAGE_STATS_ENABLED=0
# Python puts sockets there, which need short paths.
TMPDIR=$links/r/t
[ -d "$TMPDIR" ] || TMPDIR=$dir
export GPUCL_SECRETS RAY_AUTH_MODE RAY_AUTH_TOKEN_PATH RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER RAY_USAGE_STATS_ENABLED TMPDIR
unset RAY_AUTH_TOKEN

# Workers that were stopped by hand, which the caller names, are left out.
GPUCL_STOPPED=${stopped:-}
export GPUCL_STOPPED
# Nodes that do not run: then the checks need not wait for answers.
silent=
for key in $keys; do
    case " ${stopped_keys:-} " in *" $key "*) continue ;; esac
    state=
    { read -r state pid ticks _ <"$home/run/$key"; } 2>/dev/null
    if [ "$state" != running ] || ! is_alive "$pid" "$ticks"; then silent="$silent $key"; fi
done

# Makes text safe for a JSON string.
plain() { tr -d '"\\' | tr -c '[:print:]' ' ' | cut -c 1-400; }

# Runs a check with Ray's Python: check name, target, seconds, then the arguments.
by_python() {
    check=$1 target=$2 limit=$3
    shift 3
    if [ -n "$silent" ]; then
        printf '::check {"check": "%s", "target": "%s", "ok": false, "saw": "not asked, as these do not run:%s"}\n' \
            "$check" "$target" "$silent"
        return 0
    fi
    # Its mark lets it be ended with the nodes, should the caller be gone.
    GPUCL_HOST=$tag timeout "$limit" "$ray_env/bin/python" -I -B "$@" </dev/null >"$dir/$target-$check" 2>"$dir/$target-$check.err"
    code=$?
    # After another exit code than 0, some results may be missing.
    grep -a '^::check ' "$dir/$target-$check" && [ "$code" -eq 0 ] && return 0
    why=$(tail -n 2 "$dir/$target-$check.err" | plain)
    why="the check ended with exit code $code${why:+: $why}"
    [ "$code" -ne 124 ] || why="no answer within $limit s"
    printf '::check {"check": "%s", "target": "%s", "ok": false, "saw": "%s"}\n' "$check" "$target" "$why"
}
