# What every step may use.
set -eu

# Hands a result of the stage to gpucl: a key and one line.
value() {
    grep -v "^$1 " "$gpucl_values" >"$gpucl_values.new" || :
    printf '%s %s\n' "$1" "$2" >>"$gpucl_values.new"
    mv -f "$gpucl_values.new" "$gpucl_values"
}

# Prints a result of this stage, of this time or of the last that succeeded.
saved() { sed -n "s/^$1 //p" "$gpucl_values" 2>/dev/null; }

# Ends the step as one that had nothing to do, and says why.
done_already() {
    echo "$*"
    : >"$gpucl_skipped"
    exit 0
}

# Remembers what was put on this host, one line each, so that it can be listed and taken away again.
note_installed() { grep -q -s -x -F "$*" "$gpucl_home/installed" || printf '%s\n' "$*" >>"$gpucl_home/installed"; }
