# Functions for every step.
set -eu

# Returns a value of the stage to gpucl: a key and one line.
value() {
    grep -v "^$1 " "$gpucl_values" >"$gpucl_values.new" || :
    printf '%s %s\n' "$1" "$2" >>"$gpucl_values.new"
    mv -f "$gpucl_values.new" "$gpucl_values"
}

# Prints a value of this stage, from this run or from the last that succeeded.
saved() { sed -n "s/^$1 //p" "$gpucl_values" 2>/dev/null; }

# Ends the step as skipped, and prints why.
done_already() {
    echo "$*"
    : >"$gpucl_skipped"
    exit 0
}

# Records what was installed on this host, one line each, so that it can be listed and removed again.
note_installed() { grep -q -s -x -F "$*" "$gpucl_home/installed" || printf '%s\n' "$*" >>"$gpucl_home/installed"; }
