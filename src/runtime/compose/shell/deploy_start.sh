# Starts the project. $files are the options that name its files, $config the digest of all that it is made of.
# No container may have more open files than the host gives to root.
GPUCL_FILES=$(ulimit -H -n)
if [ "$GPUCL_FILES" = unlimited ] || [ "$GPUCL_FILES" -gt 65536 ]; then GPUCL_FILES=65536; fi
export GPUCL_FILES
# shellcheck disable=SC2086
docker compose --progress plain -p "$project" $files up -d --remove-orphans --quiet-pull
printf '%s\n' "$config" >compose/applied
