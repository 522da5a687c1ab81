# Takes on what the environment modules have set, as `prepare` has saved it, with Ray's programs first in the path. Values
# of an earlier preparation stay, so those of another environment do not count.
ray_env=$(sed -n 's/^ray_env //p' "$home/prepared/prepare" 2>/dev/null) || :
modules_for=$(sed -n 's/^modules_for //p' "$home/prepared/prepare" 2>/dev/null) || :
case $ray_env in
    "${modules_for:-/}" | "${modules_for:-/}"-setup-*)
        # shellcheck source=/dev/null
        [ ! -r "$home/modules.sh" ] || . "$home/modules.sh"
        PATH=$ray_env/bin:$PATH
        export PATH
        ;;
esac
