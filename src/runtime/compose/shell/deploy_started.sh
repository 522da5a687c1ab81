# What runs is what is asked for, and all of it runs.
[ "$(cat compose/applied 2>/dev/null)" = "$config" ]
for name in $containers; do
    [ "$(docker inspect -f '{{.State.Status}}' "$name" 2>/dev/null)" = running ]
done
