# Succeeds when the requested configuration is applied and all containers run.
[ "$(cat compose/applied 2>/dev/null)" = "$config" ]
for name in $containers; do
    [ "$(docker inspect -f '{{.State.Status}}' "$name" 2>/dev/null)" = running ]
done
