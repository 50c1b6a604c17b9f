#!/bin/bash
# Trains @NAME@ under Slurm. Written by `shardc launch slurm`; options of sbatch override these lines:
#   sbatch --partition=P --account=A --time=24:00:00 SCRIPT
#SBATCH --job-name=@NAME@
#SBATCH --nodes=@NODES@
@gpu@#SBATCH --gpus-per-node=@PER_NODE@
#SBATCH --exclusive
#SBATCH --requeue
#SBATCH --signal=TERM@300
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.log
# --nodes MIN-MAX: after the loss of a node Slurm requeues the job, which starts again on the nodes that are left, under
# the largest plan of the executable that they can run. --signal: ranks save, and end with 75, 300 s before the time of
# the job is over. A run that ends in any other way continues from its last checkpoint.
set -u
plans=(@RANKS@)   # ranks of the plans that @EXE@ was compiled for, the largest first
per_node=@PER_NODE@
out=@OUT@

@net@export SHARDC_SECRET=${SHARDC_SECRET:-$(head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n')}
@gpu@export NCCL_DEBUG=${NCCL_DEBUG:-WARN}
@net@# Where NCCL picks a wrong network: export NCCL_SOCKET_IFNAME=eth0 NCCL_IB_HCA=mlx5
ranks=0
for n in "${plans[@]}"; do
  if [ "$n" -le $((SLURM_JOB_NUM_NODES * per_node)) ]; then ranks=$n; break; fi
done
if [ "$ranks" = 0 ]; then echo "no plan for $SLURM_JOB_NUM_NODES nodes"; exit 3; fi
nodes=$(((ranks + per_node - 1) / per_node))
here=$((ranks < per_node ? ranks : per_node))
cpus=$((SLURM_CPUS_ON_NODE / here))

ended=''
trap 'ended=1' TERM   # scancel, preemption, the end of the job's time: ranks get the signal from Slurm
failed=0 last=''
while [ -z "$ended" ]; do
  echo "$(date +%FT%T) start $ranks ranks on $nodes of $SLURM_JOB_NUM_NODES nodes"
  srun --nodes="$nodes" --ntasks="$ranks" --ntasks-per-node="$here" --distribution=block \
    --cpus-per-task="$((cpus > 0 ? cpus : 1))" --cpu-bind=cores --kill-on-bad-exit=0 --wait=120 \
    @COMMAND@
  status=$?
  at=$(readlink "$out/latest")
  echo "$(date +%FT%T) status $status at ${at:-no checkpoint}"
  case $status in
    0 | 2 | 4 | 5) exit $status ;;   # done; or usage, data or weights, not finite: a person must look
    75) if [ -z "$ended" ]; then exec scontrol requeue "$SLURM_JOB_ID"; fi; break ;;
  esac
  if [ "$at" != "$last" ]; then failed=0; fi
  last=$at failed=$((failed + 1))
  if [ $failed -ge 5 ]; then echo "no checkpoint was written in 5 starts"; exit $status; fi
done
exit 75
