#!/bin/sh
# Written by gpucl: connects standard input and output to the socket $2 of the job's node $1, through a short step.
folder=${0%/*}
read -r job <"$folder/job" || exit 1
command -v srun >/dev/null 2>&1 || {
    place=$(bash -lc 'command -v srun' </dev/null 2>/dev/null | tail -n 1)
    PATH=$PATH:${place%/*}
    export PATH
}
# Without `--unbuffered`, Slurm passes output on line by line.
exec srun --quiet --unbuffered --jobid="$job" --overlap --nodes=1 --ntasks=1 --nodelist="$1" \
    python3 "$folder/node.py" relay "$2"
