# Prints everything on this host with one tag. Changes nothing.
supervised=
if { read -r _ pid ticks _ <"$home/run/supervisor"; } 2>/dev/null && is_alive "$pid" "$ticks"; then supervised=1; fi
for file in "$home"/run/*; do
    case $file in *.new) continue ;; esac
    { read -r state pid ticks since restarts code digest <"$file"; } 2>/dev/null || continue
    key=${file##*/}
    name=$tag
    [ "$key" = supervisor ] || name=${tag%-*}-$key
    case $state in
        running) is_alive "$pid" "$ticks" || state=exited ;;
        restarting) [ -n "$supervised" ] || state=exited ;;
        *) state=exited ;;
    esac
    case $code in '' | *[!0-9]*) code=null ;; esac
    if [ "$state" = running ]; then code=null; else pid=null; fi
    printf '::process {"name":"%s","key":"%s","state":"%s","health":null,"started_at":"%s","exit_code":%s,"pid":%s,"digest":"%s"}\n' \
        "$name" "$key" "$state" "$since" "$code" "$pid" "$digest"
    # The file was written last when the node ended, unless it was started again.
    at=
    [ "$state" = running ] || at=$(date -u -r "$file" +%Y-%m-%dT%H:%M:%SZ 2>/dev/null)
    case $restarts in '' | *[!0-9]*) restarts=0 ;; esac
    [ "$restarts$at" = 0 ] || printf '::ended {"key":"%s","restarts":%s,"at":"%s"}\n' "$key" "$restarts" "$at"
done
count=$(ours | wc -l)
[ "$((count))" -eq 0 ] || echo "::alive $((count))"
kept_data | sed "s|^|::remains data folder $home/|"
[ -z "$(other_contents)" ] || echo "::remains folder $home"
short_folders | sed 's/^/::remains folder /'
