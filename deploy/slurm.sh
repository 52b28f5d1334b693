#!/bin/bash
# A training job of several hosts under Slurm:
#   sbatch --nodes=4 --ntasks-per-node=2 deploy/slurm.sh RUN.toml [strata launch's options]
# A rank is a task; its threads are the task's processors. The folder of the run must be one that all hosts share.
#SBATCH --job-name=strata
#SBATCH --time=24:00:00
#SBATCH --exclusive
# Two minutes before the end a signal lets the run save and leave with code 75; --requeue starts it again. Failures in
# between are repaired within the job: strata launch starts the ranks again.
#SBATCH --signal=USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append
set -uo pipefail

# Tasks share a host's processors evenly. srun takes these variables for options.
threads=$((SLURM_CPUS_ON_NODE / SLURM_NTASKS_PER_NODE))
export SRUN_CPUS_PER_TASK="$threads" SLURM_CPU_BIND=cores
strata launch "$@" --set device.threads="$threads"
code=$?
# Stopped by its time limit after a clean save: the same command goes on.
if [ "$code" -eq 75 ]; then
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
