# Restarts the supervisor of this host: it ends nodes that are no longer wanted, keeps the others, and starts missing
# ones.
ray_env=$(sed -n 's/^ray_env //p' "$home/prepared/prepare" 2>/dev/null)
[ -x "$ray_env/bin/python" ] || { echo "the Ray environment is gone: ${ray_env:-none was created}"; exit 1; }
end_supervisor || { echo "the previous supervisor cannot be ended"; exit 1; }
mkdir -p run logs data
rm -f run/supervisor run/.ready
# What was stopped by hand is wanted again.
rm -f run/.stopped-* run/.start-*
# For scripts that end nodes later: how long they may take.
printf '%s\n' "$stop_limit" >run/.grace
rm -f run/.ending
: >logs/supervisor.log
# If this user's systemd manager outlives login sessions, start in a scope of it; else in a new session, which most
# machines leave alone at logout.
hold=
if [ -d /run/systemd/system ] && [ "$(loginctl show-user "$(id -un)" --property Linger --value 2>/dev/null)" = yes ] &&
    systemd-run --user --scope --quiet --collect true >/dev/null 2>&1; then
    hold="systemd-run --user --scope --quiet --collect"
fi
(
    # Proxy credentials are for installation, not for jobs, which can read their environment.
    for name in http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY; do
        eval "value=\${$name:-}"
        case $value in
            *@*)
                case $value in *://*) scheme=${value%%://*}:// ;; *) scheme= ;; esac
                export "$name=$scheme${value##*@}"
                ;;
        esac
    done
    # The supervisor is not part of the program that starts it.
    unset GPUCL_PROGRAM GPUCL_STEP GPUCL_EXEC
    GPUCL_HOST=$tag
    GPUCL_TAG=$tag
    export GPUCL_HOST GPUCL_TAG
    # Nothing is written to an environment of the user's own.
    if [ "$ray_env" = "$(sed -n 's/^ready_env //p' "$home/prepared/prepare")" ]; then
        PYTHONDONTWRITEBYTECODE=1
        export PYTHONDONTWRITEBYTECODE
    fi
    # shellcheck disable=SC2086
    setsid $hold "$ray_env/bin/python" -I -B "$home/host.py" supervise "$home" </dev/null >>logs/supervisor.log 2>&1 &
)
tries=0
until [ -e run/supervisor ]; do
    tries=$((tries + 1))
    if [ "$tries" -gt "$((450 + stop_limit * 10))" ] || { [ "$tries" -gt 10 ] && [ -z "$(carrying "GPUCL_TAG=$tag")" ] && [ ! -e run/supervisor ]; }; then
        tail -n 10 logs/supervisor.log
        echo "the nodes' supervisor did not start"
        exit 1
    fi
    sleep 0.1 2>/dev/null || sleep 1
done
printf '%s\n' "$config" >run/.applied
# Its nodes use no other environment any more.
for file in "${ray_env%/*}"/ray-*/.users/"$tag"; do
    case $file in "$ray_env"/*) ;; *) rm -f "$file" ;; esac
done
