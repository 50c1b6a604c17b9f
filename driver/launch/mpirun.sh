#!/bin/bash
# Trains @NAME@ with Open MPI on the hosts of a file, one name a line. Written by `shardc launch mpirun`:
#   HOSTS=hosts SCRIPT
# Before each start the script asks which hosts answer, and takes the largest plan of the executable that they can run.
# ALIVE is the command that asks; after a signal ranks save, and the script ends with 75.
set -u
plans=(@RANKS@)   # ranks of the plans that @EXE@ was compiled for, the largest first
per_node=@PER_NODE@
out=@OUT@
hosts=${HOSTS:-hosts}
alive=${ALIVE:-ssh -o BatchMode=yes -o ConnectTimeout=5 HOST true}

@gpu@export NCCL_DEBUG=${NCCL_DEBUG:-WARN}
@net@# Where NCCL picks a wrong network: export NCCL_SOCKET_IFNAME=eth0 NCCL_IB_HCA=mlx5, and -x NAME for each below
@net@export SHARDC_SECRET=${SHARDC_SECRET:-$(head -c 16 /dev/urandom | od -An -tx1 | tr -d ' \n')}

ended='' pid=''
trap 'ended=1; if [ "$pid" ]; then kill -USR1 "$pid"; fi' TERM INT HUP   # mpirun passes SIGUSR1 on to the ranks
failed=0 last=''
while [ -z "$ended" ]; do
  up=()
  while read -r host _; do
    if [ "$host" ] && ${alive/HOST/$host} < /dev/null; then up+=("$host"); fi
  done < "$hosts"
  ranks=0
  for n in "${plans[@]}"; do
    if [ "$n" -le $((${#up[@]} * per_node)) ]; then ranks=$n; break; fi
  done
  nodes=$(((ranks + per_node - 1) / per_node)) here=$((ranks < per_node ? ranks : per_node))
  status=1 at=$(readlink "$out/latest")
  if [ "$ranks" != 0 ]; then
    list=$(printf ",%s:$here" "${up[@]:0:nodes}")
    echo "$(date +%FT%T) start $ranks ranks on $nodes of ${#up[@]} hosts"
    mpirun -n "$ranks" --host "${list:1}" --map-by "ppr:$here:node" --bind-to none \
@net@      -x SHARDC_SECRET --mca btl_tcp_if_exclude lo \
@gpu@      -x NCCL_DEBUG \
      @COMMAND@ &
    pid=$!
    while wait "$pid"; status=$?; [ -n "$ended" ] && kill -0 "$pid" 2> /dev/null; do :; done
    pid='' at=$(readlink "$out/latest")
    echo "$(date +%FT%T) status $status at ${at:-no checkpoint}"
  fi
  case $status in
    0 | 2 | 4 | 5 | 75) exit $status ;;   # done; usage, data or weights, not finite; stopped and saved
  esac
  if [ "$at" != "$last" ]; then failed=0; fi
  last=$at failed=$((failed + 1))
  if [ $failed -ge 5 ]; then echo "no checkpoint was written in 5 starts"; exit $status; fi
done
exit 75
