# Unpacks an archive from the input into the stage; then $script, which comes before it, puts everything in place.
script=$(dd bs=65536 count="$length" iflag=fullblock,count_bytes 2>/dev/null)
land=$(mktemp -d ./land-XXXXXX)
land=${land#./}
trap 'cd -P -- "$stage" && rm -rf -- "./$land"; leave' EXIT
trap 'exit 1' HUP INT TERM
cd -P -- "./$land"
tar -xopf -
new=$stage/$land
eval "$script"
