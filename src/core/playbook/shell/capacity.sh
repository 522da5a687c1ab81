# Prints how many processors and how much memory the machine has, and what limits them: for everything on it (`whole`), as
# in a container, or for a login's own processes (`own`). It only reads.

# Whether $1 is a number that the shell can calculate with. What is longer stands for no limit.
facts_is_number() {
    case $1 in '' | *[!0-9]* | 0[0-9]* | ????????????????*) return 1 ;; esac
}

# Sets `count`: how many numbers are in both $1 and $2, which are lists of ranges, like `0-3,6`. Fails if one is not.
facts_common() {
    count=0
    before=$IFS
    IFS=,
    for range in $1; do
        for other in $2; do
            low=${range%-*} high=${range#*-}
            for edge in "$low" "$high" "${other%-*}" "${other#*-}"; do
                facts_is_number "$edge" || { IFS=$before count=; return 1; }
            done
            [ "${other%-*}" -le "$low" ] || low=${other%-*}
            [ "${other#*-}" -ge "$high" ] || high=${other#*-}
            [ "$low" -gt "$high" ] || count=$((count + high - low + 1))
        done
    done
    IFS=$before
    [ "$count" -gt 0 ]
}

# Keeps the limit $3 of $2, which $4 sets for $1 (`own`, `whole`), if it is the least so far.
facts_least() {
    facts_is_number "$3" && [ "$3" -gt 0 ] || return 0
    eval "kept=\$$1_$2"
    [ -n "$kept" ] && [ "${kept%% *}" -le "$3" ] || eval "$1_$2=\"\$3 \$4\""
}

# Reads the processors of the file $1, if they are those of everything here: a process' own are its affinity.
facts_cpuset() {
    [ -z "$level" ] || return 0
    cpus_of=
    { read -r cpus_of _ <"$1"; } 2>/dev/null
    if facts_common "$online" "$cpus_of"; then facts_least whole cpus "$count" "cpuset /"; fi
}

# Reads the limits of one cgroup, whose files are in $2, in a hierarchy of the kind $1.
facts_cgroup() {
    scope=own
    [ -n "$level" ] || scope=whole
    quota='' period=''
    case $1 in
        2)
            for file in memory.max memory.high; do
                amount=
                { read -r amount _ <"$2/$file"; } 2>/dev/null
                facts_least "$scope" memory "$amount" "cgroup ${level:-/}"
            done
            { read -r quota period _ <"$2/cpu.max"; } 2>/dev/null
            facts_cpuset "$2/cpuset.cpus.effective"
            ;;
        cpuset) facts_cpuset "$2/cpuset.cpus" ;;
        memory)
            amount=
            { read -r amount _ <"$2/memory.limit_in_bytes"; } 2>/dev/null
            facts_least "$scope" memory "$amount" "cgroup ${level:-/}"
            ;;
        cpu)
            { read -r quota _ <"$2/cpu.cfs_quota_us"; } 2>/dev/null
            { read -r period _ <"$2/cpu.cfs_period_us"; } 2>/dev/null
            ;;
    esac
    facts_is_number "$quota" && facts_is_number "$period" && [ "$quota" -gt 0 ] && [ "$period" -gt 0 ] || return 0
    amount=$((quota / period))
    [ "$amount" -gt 0 ] || amount=1
    facts_least "$scope" cpus "$amount" "quota ${level:-/}"
}

# Reads the limits of the cgroup $2, and of all that it is in, in the hierarchy of the kind $1. What is mounted may be a
# part of the hierarchy, and the path may be that outside of a container.
facts_hierarchy() {
    base='' level=''
    while read -r _ _ _ part point more; do
        case $more in
            *' - cgroup2 '*) kinds=,2, ;;
            *' - cgroup '*) kinds=,${more##* }, ;;
            *) continue ;;
        esac
        case $kinds in *,"$1",*) ;; *) continue ;; esac
        part=${part%/}
        case $2/ in "$part"/*) base=$root$point level=${2#"$part"}; break ;; esac
        [ -n "$base" ] || base=$root$point
    done <"$root/proc/$who/mountinfo"
    [ -n "$base" ] || return 0
    case $level/ in */../*) level= ;; esac
    level=${level%/}
    until [ -z "$level" ] || [ -d "$base$level" ]; do level=${level%/*}; done
    while :; do
        facts_cgroup "$1" "$base$level"
        [ -n "$level" ] || break
        level=${level%/*}
    done
}

# Sets the limits of the process `who`.
facts_limits() {
    own_memory='' own_cpus='' whole_memory='' whole_cpus=''
    if [ -r "$root/proc/$who/cgroup" ] && [ -r "$root/proc/$who/mountinfo" ]; then
        while IFS=: read -r number controllers path; do
            case $path in /*) ;; *) continue ;; esac
            case $number,$controllers in 0,) facts_hierarchy 2 "$path" ;; esac
            case ,$controllers, in *,memory,*) facts_hierarchy memory "$path" ;; esac
            case ,$controllers, in *,cpu,*) facts_hierarchy cpu "$path" ;; esac
            case ,$controllers, in *,cpuset,*) facts_hierarchy cpuset "$path" ;; esac
        done <"$root/proc/$who/cgroup"
    fi
    [ -r "$root/proc/$who/status" ] || return 0
    while read -r name value _; do
        [ "$name" = Cpus_allowed_list: ] || continue
        # Those that are allowed may be offline.
        if facts_common "$online" "$value"; then facts_least own cpus "$count" affinity; fi
        break
    done <"$root/proc/$who/status"
}

# Sets `who`: what supervises this host's nodes, if that runs. They have the limits of the login that started it, not
# those of the moment. Else this process.
facts_who() {
    who=self
    { read -r _ pid ticks _ <"$home/run/supervisor"; } 2>/dev/null || return 0
    set_started "$pid"
    [ -z "$started" ] || [ "$started" != "$ticks" ] || who=$pid
}

# Prints it for the machine whose files are below $1, which is empty except in tests, and for the process $2.
facts_capacity() {
    root=$1 who=$2
    online='' count=''
    { read -r online </"$root/sys/devices/system/cpu/online"; } 2>/dev/null
    facts_common "$online" "$online" || count=$(nproc)
    all=$count
    memory=0
    while read -r name value _; do
        [ "$name" != MemTotal: ] || { memory=$value; break; }
    done <"$root/proc/meminfo"
    # In a batch job, its part of the machine.
    case ${GPUCL_CPUS:-0} in 0) cpus=$count ;; *) cpus=$GPUCL_CPUS ;; esac
    case ${GPUCL_MEMORY_KIB:-0} in 0) ;; *) memory=$GPUCL_MEMORY_KIB ;; esac
    fact cpus "$cpus"
    fact memory "$memory"
    facts_limits
    for scope in whole own; do
        eval "limit_memory=\$${scope}_memory limit_cpus=\$${scope}_cpus"
        amount=${limit_memory%% *}
        amount=$((${amount:-0} / 1024))
        [ "$amount" -eq 0 ] || [ "$amount" -ge "$memory" ] || fact limit memory "$amount" "$scope" "${limit_memory#* }"
        amount=${limit_cpus%% *}
        # What leaves all of the machine is no limit, even where a batch system counts more than there are.
        [ "${amount:-0}" -eq 0 ] || [ "$amount" -ge "$cpus" ] || [ "$amount" -ge "$all" ] || fact limit cpus "$amount" "$scope" "${limit_cpus#* }"
    done
}
