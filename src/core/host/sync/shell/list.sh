# Prints what is at $goal: for each entry its kind, permissions, size, time and path, and the target of a link, each
# ended by a NUL. $scope is `top`, `one` (the name $name and the stage) or `all`. A link in the goal's own name is
# followed unless $within is set: there a job could have made it.
LC_ALL=C
export LC_ALL
find / -maxdepth 0 -printf '' 2>/dev/null || { echo "its find is not GNU's: install findutils there" >&2; exit 1; }
if [ -n "$within" ] && [ -L "$goal" ]; then echo "$shown is a link there" >&2; exit 1; fi
fields='%y %m %s %T@'
if [ -d "$goal" ]; then
    cd -P -- "$goal"
    case $scope in
        top) find . -maxdepth 0 -printf "$fields %P\\0%l\\0" ;;
        all) find . -ignore_readdir_race -printf "$fields %P\\0%l\\0" ;;
        one)
            find . -maxdepth 0 -printf "$fields %P\\0%l\\0"
            if [ -e "./$name" ] || [ -L "./$name" ]; then find "./$name" -maxdepth 0 -printf "$fields %p\\0%l\\0"; fi
            if [ -d ./.gpucl-sync ]; then find ./.gpucl-sync -maxdepth 1 -printf "$fields %p\\0%l\\0"; fi
            ;;
    esac
elif [ -e "$goal" ] || [ -L "$goal" ]; then
    find "$goal" -maxdepth 0 -printf "$fields \\0%l\\0"
else
    exit 3
fi
