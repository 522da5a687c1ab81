# What gpucl does on a Slurm cluster's login machine. The caller sets variables and calls one function. Lines that begin
# with `::` are for it.
set -u
base=$HOME/.gpucl/slurm
# Seconds since the epoch: the machine's time zone is not ours.
SLURM_TIME_FORMAT=%s
export SLURM_TIME_FORMAT
unset SQUEUE_FORMAT SQUEUE_FORMAT2 SQUEUE_STATES SQUEUE_SORT SQUEUE_PARTITION SQUEUE_ACCOUNT SINFO_FORMAT SBATCH_OUTPUT 2>/dev/null

# Slurm's commands may be in the PATH of login shells only.
find_slurm() {
    command -v squeue >/dev/null 2>&1 && return 0
    place=$(bash -lc 'command -v squeue' </dev/null 2>/dev/null | tail -n 1)
    case $place in
        /*)
            PATH=$PATH:${place%/*}
            export PATH
            ;;
        *)
            echo "::no-slurm"
            exit 0
            ;;
    esac
}

# Ends with the words of a command of Slurm that failed.
failed() {
    echo "::failed $(tr '\n' ' ' <"$words" | cut -c 1-500)"
    exit 0
}

# A folder of this user alone for what commands print: in /tmp anybody may plant links beside a file. On the shared disk
# only if there is no other place.
set_words() {
    work=$(mktemp -d 2>/dev/null) || {
        work=$HOME/.gpucl-words.$$
        rm -rf "$work"
        mkdir -m 700 "$work" 2>/dev/null || { echo "::failed no temporary folder can be made, in $HOME either"; exit 0; }
    }
    trap 'rm -rf "$work"' EXIT
    words=$work/words
}

# Prints this user's jobs of the last minutes: id, state, reason, time left, start, nodes, name. An allocation of the
# user's own has none of our names; in it, our step has one.
list_jobs() {
    squeue -h -u "$(id -un)" -t all -o '%i|%T|%r|%L|%S|%D|%N|%j' 2>"$words" >"$work/jobs" || failed
    grep '|gpucl-' "$work/jobs" | sed 's/^/::job /'
    squeue -h -s -u "$(id -un)" -o '%i|%j|%A' 2>/dev/null | grep '|gpucl-' |
        while IFS='|' read -r step name nodes; do
            sed -n "s/^\(${step%%.*}|[^|]*|[^|]*|[^|]*|[^|]*\)|.*/::job \\1|$nodes||$name/p" "$work/jobs"
        done
}

# Whether a job in state $1 still waits or runs: the caller sets `ended`, the states that a job does not leave.
is_live() {
    case $1 in
        '' | CANCELLED*) return 1 ;;
    esac
    case " $ended " in *" $1 "*) return 1 ;; esac
}

# Prints the folders of jobs, with what is in them.
list_folders() {
    for folder in "$base"/gpucl-*; do
        [ -d "$folder" ] || continue
        scope=${folder##*/}
        job=-
        { read -r job <"$folder/job"; } 2>/dev/null
        echo "::folder $scope ${job:--}"
        for file in "$folder"/claims/host*; do
            content=
            { read -r content <"$file"; } 2>/dev/null || continue
            echo "::claim $scope ${file##*/} $content"
        done
        for kind in node ended; do
            case $kind in
                node) set -- "$folder"/nodes/*.json ;;
                ended) set -- "$folder"/ended/*.json ;;
            esac
            for file; do
                [ ! -r "$file" ] || printf '::%s %s %s\n' "$kind" "$scope" "$(cat "$file" 2>/dev/null)"
            done
        done
    done
}

# How often a running job was started again.
list_restarts() {
    for id in $running; do
        again=$(scontrol -o show job "$id" 2>/dev/null | sed -n 's/.* Restarts=\([0-9]*\).*/\1/p')
        [ -z "$again" ] || echo "::restarts $id $again"
    done
}

# The place of each of our waiting jobs among those that wait in its partition.
list_places() {
    for id in $pending; do
        partition=$(squeue -h -j "$id" -o %P 2>/dev/null)
        [ -n "$partition" ] || continue
        squeue -h -t PD -p "$partition" -S -p,i -o %i 2>/dev/null |
            awk -v id="$id" '{ count++ } $1 == id { place = count } END { if (place) print "::place", id, place, count }'
    done
}

observe() {
    find_slurm
    set_words
    echo "::now $(date +%s)"
    jobs=$(list_jobs)
    printf '%s\n' "$jobs"
    case $jobs in *::failed* ) exit 0 ;; esac
    running=$(printf '%s\n' "$jobs" | sed -n 's/^::job \([0-9]*\)|RUNNING|.*/\1/p')
    pending=$(printf '%s\n' "$jobs" | sed -n 's/^::job \([0-9]*\)|PENDING|.*/\1/p')
    list_restarts
    list_places
    list_folders
    echo "::seen"
}

# Asks whether the script would be accepted, and when it would start.
try() {
    find_slurm
    umask 077
    set_words
    printf '%s' "$script" >"$work/job.sh"
    sbatch --test-only "$work/job.sh" >"$words" 2>&1
    code=$?
    # It says so of nodes that are down or drained too; `sbatch` takes the job, which waits for them.
    if grep -q 'node configuration is not available' "$words"; then
        away=$(sinfo -h -N -t down,drain,fail,maint,resv -o %N 2>/dev/null | sort -u | paste -sd , -)
        [ -z "$away" ] || { echo "::away $away"; code=0; }
    fi
    echo "::tried $code $(tr '\n' ' ' <"$words" | cut -c 1-500)"
}

# Submits the job, unless one of this name lives. Files come in `deliver`, which the caller defines.
submit() {
    find_slurm
    umask 077
    folder=$base/$scope
    mkdir -p "$base" 2>/dev/null || { echo "::failed $base cannot be made: $(mkdir -p "$base" 2>&1 | tail -n 1)"; exit 0; }
    set_words
    # Where the file system has no locks, the name of the job remains.
    exec 9>>"$base/.lock"
    flock -w 60 9 2>/dev/null
    squeue -h -u "$(id -un)" -t all -o '%i|%T|%j' 2>"$words" >"$work/jobs" || failed
    live=
    while IFS='|' read -r id state name; do
        if [ "$name" = "$tag" ] && is_live "$state"; then live=$id; fi
    done <"$work/jobs"
    if [ -n "$live" ]; then
        mkdir -p "$folder" && printf '%s\n' "$live" >"$folder/job"
        echo "::was $live"
        exit 0
    fi
    rm -rf "$folder"
    if ! { mkdir -p "$folder/nodes" "$folder/ended" "$folder/claims" && deliver; } 2>"$words"; then
        rm -rf "$folder"
        failed
    fi
    if ! id=$(sbatch --parsable "$folder/job.sh" 2>"$words"); then
        rm -rf "$folder"
        forget_folders
        echo "::refused $(tr '\n' ' ' <"$words" | cut -c 1-500)"
        exit 0
    fi
    # `ID;CLUSTER` where there are several clusters.
    id=${id%%;*}
    printf '%s\n' "$id" >"$folder/job"
    echo "::new $id"
}

# Prints the steps of the job $1 that have the name `tag`.
list_steps() {
    squeue -h -s -j "$1" -o '%i|%j' 2>/dev/null | sed -n "s/|$tag\$//p"
}

# Starts our long step in the allocation `allocation`, unless it is there.
enter() {
    find_slurm
    umask 077
    folder=$base/$scope
    mkdir -p "$base" 2>/dev/null || { echo "::failed $base cannot be made: $(mkdir -p "$base" 2>&1 | tail -n 1)"; exit 0; }
    set_words
    exec 9>>"$base/.lock"
    flock -w 60 9 2>/dev/null
    state=$(squeue -h -j "$allocation" -u "$(id -un)" -o %T 2>"$words")
    if [ "$state" != RUNNING ]; then
        echo "::refused the allocation $allocation is not a running one of yours: ${state:-$(tr '\n' ' ' <"$words" | cut -c 1-200)}"
        forget_folders
        exit 0
    fi
    if [ -n "$(list_steps "$allocation")" ]; then
        mkdir -p "$folder" && printf '%s\n' "$allocation" >"$folder/job"
        echo "::was $allocation"
        exit 0
    fi
    rm -rf "$folder"
    if ! { mkdir -p "$folder/nodes" "$folder/ended" "$folder/claims" && deliver && printf '%s\n' "$allocation" >"$folder/job"; } 2>"$words"; then
        rm -rf "$folder"
        failed
    fi
    setsid nohup srun --jobid="$allocation" --overlap --job-name="$tag" --nodes="$nodes" --ntasks="$nodes" \
        --ntasks-per-node=1 --kill-on-bad-exit=0 --wait=0 python3 "$folder/node.py" serve "$folder" \
        </dev/null >"$folder/job.log" 2>&1 9>&- &
    process=$!
    round=0
    while [ -z "$(list_steps "$allocation")" ]; do
        round=$((round + 1))
        if [ "$round" -gt 60 ] || ! kill -0 "$process" 2>/dev/null; then
            kill "$process" 2>/dev/null
            echo "::refused $(tail -n 3 "$folder/job.log" | tr '\n' ' ' | cut -c 1-500)"
            rm -rf "$folder"
            forget_folders
            exit 0
        fi
        sleep 0.5
    done
    echo "::new $allocation"
}

# Marks a node of the job `id` as a host of the cluster: `key` is the host's, `content` names the node.
claim() {
    folder=$base/$scope
    job=
    { read -r job <"$folder/job"; } 2>/dev/null
    [ "$job" = "$id" ] || { echo "::gone"; exit 0; }
    umask 077
    before=
    { read -r before <"$folder/claims/$key"; } 2>/dev/null
    if [ "$before" = "$content" ]; then echo "::was $content"; exit 0; fi
    mkdir -p "$folder/claims"
    printf '%s\n' "$content" >"$folder/claims/.$key.$$" && mv "$folder/claims/.$key.$$" "$folder/claims/$key" && echo "::new $content"
}

unclaim() {
    file=$base/$scope/claims/$key
    before=
    { read -r before <"$file"; } 2>/dev/null
    [ "$before" != "$content" ] || rm -f "$file"
    echo "::gone"
}

# Removes the folders above those of jobs, if there is no job.
forget_folders() {
    if [ -z "$(ls -d "$base"/gpucl-* 2>/dev/null)" ]; then
        rm -f "$base/.lock"
        rmdir "$base" "$HOME/.gpucl" 2>/dev/null
    fi
}

# Removes the folder of the job `id`, and the folders above if they are empty.
forget() {
    job=-
    { read -r job <"$folder/job"; } 2>/dev/null
    [ "$job" != "$id" ] || rm -rf "$folder"
    forget_folders
}

# Cancels the job `id`, if it is really the one of this name, and waits until all of it has ended.
release() {
    find_slurm
    # Half seconds: the processes of a node may take twenty of them, and its last copy comes after.
    grace=60
    folder=$base/$scope
    set_words
    asked=
    round=0
    # In an allocation of the user's own only our step ends.
    case $id in *[!0-9]* | '') steps= ;; *) steps=$(list_steps "$id") ;; esac
    while [ -n "$steps" ]; do
        # A cancelled step is killed at once. The signal lets its nodes clean up, which nobody else would do.
        case $round in
            0) set -- --signal=TERM ;;
            "$grace") set -- ;;
            *) set -- wait ;;
        esac
        if [ "${1-}" != wait ] && ! scancel "$@" $steps 2>"$words"; then
            echo "::refused $(tr '\n' ' ' <"$words" | cut -c 1-500)"
            exit 0
        fi
        round=$((round + 1))
        [ "$round" -lt "$rounds" ] || { echo "::still RUNNING"; exit 0; }
        sleep 0.5
        steps=$(list_steps "$id")
    done
    asked=
    while :; do
        line=
        case $id in
            *[!0-9]* | '') ;;
            *)
                if ! line=$(squeue -h -j "$id" -u "$(id -un)" -t all -o '%T|%j' 2>"$words"); then
                    line=
                    grep -q -i 'invalid job id' "$words" || failed
                fi
                ;;
        esac
        state=${line%%|*}
        # The number of a job that is gone may be another's by now, or another user's.
        if [ "${line#*|}" != "$tag" ] || ! is_live "$state"; then break; fi
        if [ -z "$asked" ]; then
            echo "::state $state"
            if ! scancel "$id" 2>"$words"; then echo "::refused $(tr '\n' ' ' <"$words" | cut -c 1-500)"; exit 0; fi
            asked=1
        fi
        round=$((round + 1))
        [ "$round" -lt "$rounds" ] || { echo "::still $state"; exit 0; }
        sleep 0.5
    done
    list_folders | grep " $scope "
    [ ! -r "$folder/job.log" ] || tail -n 5 "$folder/job.log" | sed 's/^/::log /'
    forget
    echo "::gone"
}

offers() {
    find_slurm
    set_words
    sinfo -h -N -O PartitionName:64,Gres:160,GresUsed:160,CPUsState:32,Memory:16,StateLong:24,Time:24,NodeList:64 \
        >"$work/nodes" 2>"$words" || failed
    tr -s ' ' '|' <"$work/nodes" | sort -u | sed 's/^/::node /'
    echo "::seen"
}

# Prints what the site is like, for the doctor.
look() {
    find_slurm
    echo "::fact version $(sinfo --version 2>/dev/null)"
    echo "::fact accounting $(sacct -n -X -u "$(id -un)" -o JobID 2>&1 | head -n 1 | grep -c -i disabled)"
    echo "::fact sshd $(command -v sshd || ls /usr/sbin/sshd 2>/dev/null)"
    echo "::fact python $(python3 -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])' 2>/dev/null)"
    echo "::fact modules $(bash -lc 'command -v module >/dev/null && echo yes' </dev/null 2>/dev/null | tail -n 1)"
    echo "::fact wheels $(bash -lc 'command -v avail_wheels' </dev/null 2>/dev/null | tail -n 1)"
    echo "::fact accounts $(sacctmgr -n -P show assoc user="$(id -un)" format=account 2>/dev/null | sort -u | tr '\n' ' ')"
    echo "::fact home $(df -Pk "$HOME" 2>/dev/null | awk 'END { print $4 }')"
    scontrol show config 2>/dev/null | sed -n 's/^\(KillWait\|SlurmctldTimeout\|MinJobAge\|TaskPlugin\|ProctrackType\) *= \(.*\)$/::fact \1 \2/p'
    echo "::seen"
}
