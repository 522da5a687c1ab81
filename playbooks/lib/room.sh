# Functions that look whether a folder can take an environment, before anything is downloaded.

# What is left where the folder $2 is, as `df $1` says: `-Pk` counts KiB, `-Pi` files. Nothing is printed where a file
# system does not say: some have no fixed number of files (btrfs) and print 0 or `-`.
left_of() {
  df "$1" "$2" 2>/dev/null | awk 'END {
    for (i = 5; i <= NF; i++) if ($i ~ /^[0-9]+%$/ && ($(i - 3) $(i - 2) $(i - 1)) ~ /^[0-9]+$/ && $(i - 3) > 0) { print $(i - 1); exit }
  }'
}

# Says what is wrong where the folder $1 has no room for $2 MiB in $3 files, or nothing in it may be run. $4 is what
# needs it.
room_for() {
  left=$(left_of -Pk "$1")
  if [ -n "$left" ] && [ $((left / 1024)) -lt "$2" ]; then
    echo "only $((left / 1024)) MiB are free in $1, and $4 needs $2 MiB"
    return 1
  fi
  left=$(left_of -Pi "$1")
  if [ -n "$left" ] && [ "$left" -lt "$3" ]; then
    echo "only $left more files fit on the file system of $1, and $4 has $3"
    return 1
  fi
  # Installing works without it; what fails then is the start of what was installed.
  trial=$1/.trial-$$
  if ! printf '#!/bin/sh\n' >"$trial" || ! chmod 700 "$trial"; then
    rm -f "$trial"
    echo "nothing can be written into $1"
    return 1
  fi
  runs=yes
  "$trial" >/dev/null 2>&1 || runs=
  rm -f "$trial"
  if [ -z "$runs" ]; then
    echo "programs in $1 cannot be run: its file system is mounted with \`noexec\`, or the machine's rules forbid it"
    return 1
  fi
}
