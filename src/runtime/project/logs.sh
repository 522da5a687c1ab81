# Shows the `chosen` logs, each by `show`, which a runtime defines before this.
if [ -z "$follow" ]; then
    for one in $chosen; do show "$one"; done
    exit 0
fi
[ -n "$chosen" ] || exit 0
trap '' PIPE
for one in $chosen; do show "$one" & done
# Whoever listens may have gone without a word: then nobody takes this line, and nothing of ours may stay.
while sleep 5 && echo ::here; do
    kill -0 $(jobs -p) 2>/dev/null || break
done 2>/dev/null
kill 0
