#!/usr/bin/env bash
# Starts a real Slurm of one node on this machine, for tests. Needs root; installs Debian's packages if they are missing.
#
#     bash scripts/launching/slurm_local.sh start FOLDER
#     export SLURM_CONF=FOLDER/slurm.conf    # for sbatch, squeue and scancel
#     bash scripts/launching/slurm_local.sh stop FOLDER
#
# It has no accounting, as on many clusters, and uses no cgroups, so that it also runs in a container.
set -euo pipefail
action=${1:?expected start or stop} folder=$(realpath -m "${2:?expected a folder}")

stop() {
    export SLURM_CONF=$folder/slurm.conf
    for _ in $(seq 40); do # a running job would outlive slurmd
        [ -n "$(squeue --noheader 2>/dev/null)" ] && scancel --user=root || break
        sleep 1
    done
    for daemon in slurmd slurmctld munged; do
        [ ! -e "$folder/$daemon.pid" ] || kill "$(cat "$folder/$daemon.pid")" 2>/dev/null || true
    done
}

if [ "$action" = stop ]; then
    stop
    exit
fi
[ "$(id -u)" = 0 ] || { echo "error: slurmd: expected to be started as root"; exit 1; }
if [ "$(command -v slurmctld slurmd munged sbatch flock | wc -l)" -lt 5 ]; then # command -v succeeds if one of them is there
    export DEBIAN_FRONTEND=noninteractive
    { apt-get update && apt-get install -y --no-install-recommends slurmctld slurmd slurm-client munge util-linux; } \
        >/tmp/slurm_apt.log 2>&1 || { echo "error: Debian's Slurm cannot be installed: $(tail -n 1 /tmp/slurm_apt.log)"; exit 1; }
fi

mkdir -p "$folder/state" "$folder/spool"
chmod 755 "$folder"
head -c 1024 /dev/urandom >"$folder/munge.key"
chmod 600 "$folder/munge.key"
# --force: munged refuses to run as root with files in a folder of the user's
munged --force --key-file="$folder/munge.key" --socket="$folder/munge.socket" --pid-file="$folder/munged.pid" \
    --log-file="$folder/munged.log" --seed-file="$folder/munged.seed" 2>/dev/null

# two free ports: Debian's own Slurm, or another test, may use the standard ports
read -r port1 port2 < <(python3 -c 'import socket
sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
print(*(s.getsockname()[1] for s in sockets))')
cat >"$folder/slurm.conf" <<END
ClusterName=local
SlurmctldHost=$(hostname -s)(127.0.0.1)
SlurmctldPort=$port1
SlurmdPort=$port2
SlurmUser=root
AuthType=auth/munge
# a requeued job waits until its credential has expired: two minutes by default
AuthInfo=socket=$folder/munge.socket,cred_expire=5
StateSaveLocation=$folder/state
SlurmdSpoolDir=$folder/spool
SlurmctldPidFile=$folder/slurmctld.pid
SlurmdPidFile=$folder/slurmd.pid
SlurmctldLogFile=$folder/slurmctld.log
SlurmdLogFile=$folder/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
MailProg=/bin/true
KillWait=30
SchedulerParameters=sched_interval=1,bf_interval=1
NodeName=$(hostname -s) NodeAddr=127.0.0.1 CPUs=$(nproc) State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
END
export SLURM_CONF=$folder/slurm.conf
slurmctld
slurmd
for _ in $(seq 60); do
    if sinfo --noheader --format=%T 2>/dev/null | grep -q idle; then
        exit
    fi
    sleep 1
done
stop
echo "error: Slurm's node did not come up: $(tail -n 1 "$folder/slurmctld.log" "$folder/slurmd.log" | tr '\n' ' ')"
exit 1
