# Writes the bytes of a file from $from up to $size.
if [ -L "./$name" ] || [ ! -f "./$name" ]; then echo "$name is no file there any more" >&2; exit 1; fi
tail -c "+$((from + 1))" -- "./$name" 2>/dev/null | head -c "$((size - from))"
