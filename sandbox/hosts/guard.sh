# Guards one host: starts its sshd, and ends everything that ran there once its stdin is closed.
# Arguments: the host's folder, the path of sshd, seconds to wait before sshd starts.
folder=$1
mark=STAND_IN_HOST=$folder
sshd=$2
sleep "$3"
"$sshd" -D -e -f "$folder/sshd_config" </dev/null >>"$folder/sshd.log" 2>&1 &
server=$!

# The parent writes nothing: cat returns when the parent ends the host, or dies.
cat >/dev/null

# These processes and their descendants: sshd sessions overwrite their environment with their title, so the mark does
# not find them.
below() {
    all=" $1 "
    grown=1
    while [ -n "$grown" ]; do
        grown=
        for stat in /proc/[0-9]*/stat; do
            { read -r line <"$stat"; } 2>/dev/null || continue
            pid=${line%% *}
            # The name is in parentheses and may contain blanks: count fields after it.
            # shellcheck disable=SC2086
            set -- ${line##*) }
            case "$all" in
                *" $pid "*) ;;
                *" ${2:-0} "*) all="$all$pid " grown=1 ;;
            esac
        done
    done
    echo "$all"
}

marked() {
    for file in $(grep -l -s -F "$mark" /proc/[0-9]*/environ); do
        if { tr '\0' '\n' <"$file" | grep -q -x -F "$mark"; } 2>/dev/null; then
            pid=${file#/proc/}
            echo "${pid%/environ}"
        fi
    done
}

if kill -0 "$server" 2>/dev/null; then
    # shellcheck disable=SC2046
    kill -s KILL $(below "$server") 2>/dev/null
fi
tries=0
while [ "$tries" -lt 100 ]; do
    left=$(marked)
    [ -n "$left" ] || break
    # shellcheck disable=SC2086
    kill -s KILL $left 2>/dev/null
    tries=$((tries + 1))
    sleep 0.1 2>/dev/null || sleep 1
done
# Folders of short paths into this host's home, which Ray's sockets need.
for link in /tmp/gpucl-*/r; do
    if [ ! -L "$link" ] || [ ! -O "${link%/r}" ]; then continue; fi
    case $(readlink "$link") in "$folder"/*) rm -rf "${link%/r}" ;; esac
done
cd /
rm -rf "$folder" 2>/dev/null || { sleep 1; rm -rf "$folder"; }
rmdir "${folder%/*}" 2>/dev/null
[ "$tries" -lt 100 ] && [ ! -e "$folder" ]
