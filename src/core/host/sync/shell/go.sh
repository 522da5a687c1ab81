# Goes to the folder at $1 below the one where this begins, name by name and through no link. That folder is held open:
# the user of jobs may enter a data folder, and not the folders above it.
root=$(pwd -P)
exec 8<.
top=/proc/self/fd/8
go() {
    cd -P -- "$top"
    rest=$1
    while [ -n "$rest" ]; do
        part=${rest%%/*}
        case $rest in */*) rest=${rest#*/} ;; *) rest= ;; esac
        if [ -L "./$part" ]; then echo "$part is a link there; nothing was written through it" >&2; exit 1; fi
        cd -P -- "./$part"
        case $PWD/ in "${root%/}"/*) ;; *) echo "$part leads out of the folder there" >&2; exit 1 ;; esac
    done
}
LC_ALL=C
export LC_ALL
