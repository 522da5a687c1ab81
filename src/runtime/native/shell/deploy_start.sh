# Starts the supervisor of this host anew: it ends nodes that are not asked for any more, keeps those that are, starts the rest.
ray_env=$(sed -n 's/^ray_env //p' "$home/prepared/prepare" 2>/dev/null)
[ -x "$ray_env/bin/python" ] || { echo "the Ray environment is gone: ${ray_env:-none was made}"; exit 1; }
end_supervisor || { echo "the supervisor of before cannot be ended"; exit 1; }
mkdir -p run logs
rm -f run/supervisor run/.ready
# Who ends nodes later knows how long they may take.
printf '%s\n' "$stop_limit" >run/.grace
: >logs/supervisor.log
# Where a manager of this user's own outlives its sessions, it holds what is started; elsewhere a session of its own does, which
# most machines let be at the end of a login.
hold=
if [ -d /run/systemd/system ] && [ "$(loginctl show-user "$(id -un)" --property Linger --value 2>/dev/null)" = yes ] &&
    systemd-run --user --scope --quiet --collect true >/dev/null 2>&1; then
    hold="systemd-run --user --scope --quiet --collect"
fi
(
    # What a proxy asks for is for who installs, and not for jobs, which can read their environment.
    for name in http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY; do
        eval "value=\${$name:-}"
        case $value in
            *@*)
                case $value in *://*) scheme=${value%%://*}:// ;; *) scheme= ;; esac
                export "$name=$scheme${value##*@}"
                ;;
        esac
    done
    # It is no part of the program that starts it.
    unset GPUCL_PROGRAM GPUCL_EXEC
    GPUCL_HOST=$tag
    GPUCL_TAG=$tag
    export GPUCL_HOST GPUCL_TAG
    # shellcheck disable=SC2086
    setsid $hold "$ray_env/bin/python" -I -B "$home/host.py" supervise "$home" </dev/null >>logs/supervisor.log 2>&1 &
)
tries=0
until [ -e run/supervisor ]; do
    tries=$((tries + 1))
    if [ "$tries" -gt "$((450 + stop_limit * 10))" ] || { [ "$tries" -gt 10 ] && [ -z "$(carrying "GPUCL_TAG=$tag")" ] && [ ! -e run/supervisor ]; }; then
        tail -n 10 logs/supervisor.log
        echo "the supervisor of the nodes did not start"
        exit 1
    fi
    sleep 0.1 2>/dev/null || sleep 1
done
printf '%s\n' "$config" >run/.applied
