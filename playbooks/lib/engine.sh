# What steps that change the engine share: read with `. ./lib/engine.sh`, in the host's folder.

# Prints the engine's version when it answers.
engine_version() { timeout 20 docker version --format '{{.Server.Version}}' 2>/dev/null; }

# Prints the names of running containers that are not this cluster's: the tag's last part is the key, which has no hyphen.
strangers() {
    own=${gpucl_home##*/}
    timeout 20 docker ps --format '{{.Names}} {{.Label "gpucl.tag"}}' 2>/dev/null | while read -r name tag; do
        [ -n "$tag" ] && [ "${tag%-*}" = "${own%-*}" ] || printf '%s ' "$name"
    done
}

# Starts or restarts ($1) the engine and waits until it answers.
engine_service() {
    if [ -d /run/systemd/system ]; then
        systemctl reset-failed docker.service docker.socket 2>/dev/null || :
        systemctl "$1" docker.service || { engine_log; return 1; }
    else
        service docker "$1" || return 1
    fi
    waited=0
    until engine_version >/dev/null; do
        waited=$((waited + 1))
        if [ "$waited" -ge 60 ]; then
            engine_log
            return 1
        fi
        sleep 1
    done
}

engine_log() {
    echo "docker does not start; the last lines of its journal:"
    [ ! -d /run/systemd/system ] || journalctl -u docker.service -n 15 --no-pager -o cat 2>/dev/null || :
}

# Restarts the engine for the reason $1; one that runs others' containers only when `restart` says so.
restart_engine() {
    others=$(strangers)
    if [ -n "$others" ] && [ "$restart" != yes ]; then
        echo "the engine must be restarted to $1, which would stop containers that are not this cluster's: $others"
        return 1
    fi
    [ -z "$others" ] || echo "restarting the engine stops $others"
    engine_service restart
}

# Remembers a file of the system as it was before our change ($1); `down` puts it back.
before_setting() {
    line=$(grep -s "^setting $1 " "$gpucl_home/installed" || :)
    [ -z "$line" ] || return 0
    backup=-
    if [ -e "$1" ]; then
        backup=original/$(printf '%s' "$1" | tr '/' '_')
        mkdir -p "$gpucl_home/original"
        cp -p "$1" "$gpucl_home/$backup"
    fi
    printf 'setting %s %s -\n' "$1" "$backup" >>"$gpucl_home/installed"
}

# Remembers what we made of it, so that somebody else's later change is left alone.
after_setting() {
    sum=$(cksum <"$1" | tr ' ' -)
    sed "s|^\(setting $1 [^ ]*\) .*|\1 $sum|" "$gpucl_home/installed" >"$gpucl_home/installed.new"
    mv -f "$gpucl_home/installed.new" "$gpucl_home/installed"
}

# Makes sure that the list $1 of the engine's settings has the text $2 first; true in `changed` when it had not.
engine_list_setting() {
    file=/etc/docker/daemon.json
    changed=
    if [ ! -s "$file" ] || [ "$(tr -d ' \t\n' <"$file")" = '{}' ]; then
        new=$(printf '{\n  "%s": ["%s"]\n}' "$1" "$2")
    elif command -v python3 >/dev/null 2>&1; then
        new=$(python3 -c '
import json, sys
name, text, path = sys.argv[1:]
try:
    settings = json.load(open(path))
except ValueError as error:
    sys.exit(f"{path} is no JSON: {error}")
now = settings.get(name) or []
if now[:1] != [text]:
    settings[name] = [text] + [other for other in now if other != text]
print(json.dumps(settings, indent=2))' "$1" "$2" "$file") || return 1
        ! python3 -c 'import json, sys; sys.exit(json.load(open(sys.argv[1])) != json.loads(sys.argv[2]))' "$file" "$new" || return 0
    elif command -v jq >/dev/null 2>&1; then
        new=$(jq --arg name "$1" --arg text "$2" '.[$name] = [$text] + ((.[$name] // []) - [$text])' "$file") || return 1
        [ "$(jq -S . "$file")" != "$(printf '%s' "$new" | jq -S .)" ] || return 0
    elif grep -q -F "\"$2\"" "$file"; then
        return 0
    else
        echo "$file holds settings already, and neither python3 nor jq is here to add \"$1\" to them"
        return 1
    fi
    mkdir -p /etc/docker
    before_setting "$file"
    printf '%s\n' "$new" >"$file.gpucl-new"
    chmod 644 "$file.gpucl-new"
    mv -f "$file.gpucl-new" "$file"
    after_setting "$file"
    changed=1
}
