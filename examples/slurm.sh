#!/bin/bash
#SBATCH --job-name=longreach
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=32
#SBATCH --gpus-per-node=4
#SBATCH --time=24:00:00
#SBATCH --signal=B:TERM@120
# Ray on all nodes of the job, then a sweep:  sbatch examples/slurm.sh FILE OUT
# Activate an environment with longreach[ray] first; OUT is a folder that all nodes see, or a URL.  Submit again to go on.
set -euo pipefail

address=$(hostname --ip-address | awk '{print $1}'):6379 # this script runs on the first node
ray start --head --port=6379
if [ "$SLURM_JOB_NUM_NODES" -gt 1 ]; then
    srun --nodes=$((SLURM_JOB_NUM_NODES - 1)) --exclude="$(hostname)" ray start --address="$address" --block &
fi
# in place of this shell, so that the signal before the end reaches the sweep, which then lets every run save
exec longreach sweep run "$1" --backend ray --address "$address" --out "$2"
