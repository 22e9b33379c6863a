"""What all experiments share: settings, the run's directory, the command, tables and figures."""

import os

os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")  # that PyTorch was not found
os.environ.setdefault("WANDB_SILENT", "true")  # how to look at a run
os.environ.setdefault("SUBMITIT_PREEMPT_SIGNAL", "TERM")  # near a job's end: the run saves
