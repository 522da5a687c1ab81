# Takes on what the environment modules have set, as `prepare` has saved it, with Ray's programs first in the path.
if grep -q -s '^modules ' "$home/prepared/prepare" && [ -r "$home/modules.sh" ]; then
    # shellcheck source=/dev/null
    . "$home/modules.sh"
    PATH=$(sed -n 's/^ray_env //p' "$home/prepared/prepare")/bin:$PATH
    export PATH
fi
