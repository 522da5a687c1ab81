deliver() {
    printf '%s\n' "$job_sh" | sed "s|@home@|$HOME|g" >"$folder/job.sh"
    printf '%s\n' "$node_py" >"$folder/node.py"
    printf '%s\n' "$reach_sh" >"$folder/reach"
    printf '%s\n' "$authorized" >"$folder/authorized_keys"
    printf '%s\n' "$host_key" >"$folder/ssh_host_key"
}
main() {
    if [ -n "$allocation" ]; then enter; else submit; fi
}
