# Adds the input to the file $part in the stage, which has $from bytes; when it is whole, moves it to $name in $folder.
trap 'exit 1' HUP INT TERM
if [ "$from" = 0 ]; then rm -rf -- "./$part"; : >"./$part"; fi
[ -f "./$part" ] && [ "$(stat -c %s "./$part")" = "$from" ] || { echo "what had arrived of $name has changed" >&2; exit 1; }
cat >>"./$part"
[ "$(stat -c %s "./$part")" = "$size" ] || { echo "$name arrived only in part" >&2; exit 4; }
chmod "$mode" "./$part"
touch -d "@$modified" "./$part"
go "$folder"
mv -fT -- "$stage/$part" "./$name"
leave
