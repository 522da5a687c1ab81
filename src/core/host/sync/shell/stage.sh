# Makes the folder for what has not arrived whole, and enters it. It is ours alone, whoever owns the one that it is in.
umask 022
[ -d ./.gpucl-sync ] || mkdir -m 700 ./.gpucl-sync
if [ -L ./.gpucl-sync ]; then echo ".gpucl-sync is a link there" >&2; exit 1; fi
cd -P ./.gpucl-sync
exec 9<.
stage=/proc/self/fd/9
leave() { cd -P -- "$top" && rmdir ./.gpucl-sync 2>/dev/null || :; }
[ "$(stat -c '%u %a' .)" = "$(id -u) 700" ] || { echo ".gpucl-sync is there already, and is not ours" >&2; exit 1; }
# What a sync left that was killed.
find . -mindepth 1 -maxdepth 1 -mmin +1440 -exec rm -rf -- {} +
