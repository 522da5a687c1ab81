# Shows the `chosen` logs, each with `show`; the runtime defines both before this.
if [ -z "$follow" ]; then
    for one in $chosen; do show "$one"; done
    exit 0
fi
[ -n "$chosen" ] || exit 0
trap '' PIPE
for one in $chosen; do show "$one" & done
# The reader may have disappeared silently: then this line cannot be written, and everything started here must end.
while sleep 5 && echo ::here; do
    kill -0 $(jobs -p) 2>/dev/null || break
done 2>/dev/null
kill 0
