# Starts the project. $files are the options that name its files, $config the digest of all that it is made of.
# shellcheck disable=SC2086
docker compose --progress plain -p "$project" $files up -d --remove-orphans --quiet-pull
printf '%s\n' "$config" >compose/applied
