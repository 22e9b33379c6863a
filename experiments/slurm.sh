#!/bin/bash
# One run on many GPUs of many nodes: a process a GPU.   sbatch experiments/slurm.sh dataset=ultratool ..
# The folder with this checkout, the cache and runs/ must be one that all nodes share.
#SBATCH --job-name=jaxret
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4        # processes, as many as GPUs: local_device_ids is each one's number on its node
#SBATCH --gres=gpu:4               # not --gpus-per-task: a process that sees one GPU alone has no number for it
#SBATCH --cpus-per-task=8
#SBATCH --time=04:00:00
#SBATCH --signal=TERM@120          # two minutes before the end: the run saves, and the same command goes on
#SBATCH --requeue

set -euo pipefail
export OMP_NUM_THREADS=$SLURM_CPUS_PER_TASK
export XLA_PYTHON_CLIENT_MEM_FRACTION=.9
unset http_proxy https_proxy HTTP_PROXY HTTPS_PROXY   # else the processes may not find each other

# A process that dies takes all others with it within a minute.
# On nodes without GPUs: no --gres, --ntasks-per-node=CORES, --cpus-per-task=1: a process has one device, which a core serves.
# A sweep, a job a point, needs no script (pip install jaxret[sweeps]; on a login node, in screen or tmux):
#   uv run python -m experiments.orag -m hydra/launcher=submitit_slurm hydra.launcher.timeout_min=240 \
#       hydra.launcher.nodes=2 hydra.launcher.tasks_per_node=4 hydra.launcher.gres=gpu:4 distributed=auto exposures=1,5
# and one process a job: hydra.launcher.gpus_per_node=1 without distributed=, nodes and tasks_per_node.
srun uv run --no-sync python -m experiments.orag distributed=auto "$@"
