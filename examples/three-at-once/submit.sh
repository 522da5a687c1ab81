#!/bin/sh
# Submits three jobs at once, waits for all of them, and says how long they took together.
#
#   sh three-at-once/submit.sh [SECONDS]      in the folder of cluster.yaml; each job takes that long
set -eu
gpucl=${GPUCL:-gpucl}
folder=$(dirname "$0")
run=$(date +%s)
begin=$(date +%s)

for name in one two three; do
    "$gpucl" job submit --quiet --no-wait --id "$name-$run" --working-dir "$folder" -- python work.py "$name" "${1:-5}"
done
"$gpucl" job list
failed=0
for name in one two three; do
    "$gpucl" job logs --quiet --follow "$name-$run"
    "$gpucl" job status "$name-$run" | grep -q SUCCEEDED || failed=1
done
echo "three jobs took $(($(date +%s) - begin)) s together"
exit "$failed"
