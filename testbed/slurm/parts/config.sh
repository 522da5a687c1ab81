# config.sh: the configuration of each machine, as a tree of files that is copied into its container.
# shellcheck shell=bash

slurm_conf() {
  local n name type count
  cat <<CONF
ClusterName=testbed
SlurmctldHost=ctl
SlurmUser=slurm
AuthType=auth/munge
StateSaveLocation=/var/lib/slurm/ctld
SlurmdSpoolDir=/var/spool/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd.log
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup
JobAcctGatherType=jobacct_gather/linux
# Contain: the extern step, which pam_slurm_adopt needs.
PrologFlags=Alloc,Contain
LaunchParameters=ulimit_pam_adopt
Prolog=/etc/slurm/prolog
Epilog=/etc/slurm/epilog
TaskProlog=/etc/slurm/task-prolog
PropagateResourceLimits=NONE
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
DefMemPerCPU=1000
# A node has more processors and memory than slurmd finds.
SlurmdParameters=config_overrides
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=5,sched_interval=10
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
ReturnToService=2
SlurmctldTimeout=30
SlurmdTimeout=30
KillWait=10
MinJobAge=300
GresTypes=gpu
CONF
  [ "$1" = no ] || cat <<CONF
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=ctl
AccountingStorageTRES=gres/gpu,gres/gpu:a100,gres/gpu:v100
AccountingStorageEnforce=associations,limits,qos
AccountingStoreFlags=job_comment
PriorityType=priority/multifactor
CONF
  for n in $NODES; do
    IFS=: read -r name _ type count <<<"$n"
    echo "NodeName=$name NodeAddr=$(address_of "$name") CPUs=$CPUS RealMemory=$MEMORY Gres=gpu:$type:$count Feature=$type State=UNKNOWN"
  done
  cat <<CONF
PartitionName=gpu Nodes=n[1-3] Default=YES DefaultTime=30:00 MaxTime=1-00:00:00 PriorityTier=10 PreemptMode=OFF State=UP
PartitionName=short Nodes=n[1-3] DefaultTime=5:00 MaxTime=10:00 PriorityTier=10 PreemptMode=OFF State=UP
PartitionName=spot Nodes=n[1-3] DefaultTime=30:00 MaxTime=1-00:00:00 PriorityTier=1 PreemptMode=REQUEUE State=UP
CONF
}

gres_conf() {
  local n name type count
  for n in $NODES; do
    IFS=: read -r name _ type count <<<"$n"
    echo "NodeName=$name Name=gpu Type=$type File=/dev/nvidia$([ "$count" = 1 ] && echo 0 || echo "[0-$((count - 1))]")"
  done
}

slurmdbd_conf() {
  printf '%s\n' AuthType=auth/munge DbdHost=ctl SlurmUser=slurm PidFile=/run/slurm/slurmdbd.pid LogFile=/var/log/slurm/slurmdbd.log StorageType=accounting_storage/mysql \
    StorageHost=localhost StorageUser=slurm StorageLoc=slurm_acct_db
}

# Secrets and host keys are kept: a cluster that is made again is known by the same key.
secrets() {
  local m
  mkdir -p "$STATE"; chmod 700 "$STATE"
  [ -s "$STATE/munge.key" ] || { head -c 1024 /dev/urandom >"$STATE/munge.key.new"; mv "$STATE/munge.key.new" "$STATE/munge.key"; }
  for m in $MACHINES; do
    m=${m%:*}; [ -s "$STATE/$m" ] || ssh-keygen -q -t ed25519 -N '' -C "$m" -f "$STATE/$m"
  done
}

uuid_of() { python3 -c 'import sys, uuid; print("GPU-%s" % uuid.uuid5(uuid.NAMESPACE_DNS, sys.argv[1]))' "$1"; }

# tree MACHINE DIR ACCOUNTING
tree() {
  local m=$1 d=$2 n name type count i k
  mkdir -p "$d"/etc/{slurm,munge,ssh,testbed,standin,pam.d} "$d"/usr/local/{bin,sbin,lib}
  slurm_conf "$3" >"$d/etc/slurm/slurm.conf"; gres_conf >"$d/etc/slurm/gres.conf"; cp "$SLURM/files/cgroup.conf" "$d/etc/slurm/"
  for k in prolog epilog task-prolog; do install -m 755 "$SLURM/files/$k" "$d/etc/slurm/$k"; done
  install -m 755 "$SLURM/files/slurm-init" "$d/usr/local/sbin/slurm-init"
  cp "$STATE/munge.key" "$d/etc/munge/munge.key"
  cp "$STATE/$m" "$d/etc/ssh/ssh_host_ed25519_key"; cp "$STATE/$m.pub" "$d/etc/ssh/ssh_host_ed25519_key.pub"
  for k in $MACHINES; do k=${k%:*}; echo "$k,$(address_of "$k") $(cut -d' ' -f1,2 "$STATE/$k.pub")"; done >"$d/etc/ssh/ssh_known_hosts"
  cp "$IDENTITY.pub" "$d/etc/testbed/identity.pub"; echo "$USERS" >"$d/etc/testbed/users"
  case $m in
    ctl) echo ctl >"$d/etc/testbed/role"; [ "$3" = no ] || slurmdbd_conf >"$d/etc/slurm/slurmdbd.conf" ;;
    login) echo login >"$d/etc/testbed/role" ;;
    *)
      echo compute >"$d/etc/testbed/role"
      cp "$CACHE/slurm/standin/nvidia-smi" "$d/usr/local/bin/"; cp "$CACHE/slurm/standin/libcuda.so.1" "$d/usr/local/lib/"
      for n in $NODES; do
        IFS=: read -r name _ type count <<<"$n"
        [ "$name" = "$m" ] || continue
        for ((i = 0; i < count; i++)); do printf '%d %s 0000:%02x:00.0\n' "$i" "$(uuid_of "$name-$i")" $((16 + i * 16)); done >"$d/etc/standin/gpus"
      done ;;
  esac
}
