"""Code shared by experiments: settings, run directories, commands, tables and figures."""

import os

os.environ.setdefault("TRANSFORMERS_NO_ADVISORY_WARNINGS", "1")  # no warnings about missing PyTorch
os.environ.setdefault("WANDB_SILENT", "true")  # no hints about runs
os.environ.setdefault("SUBMITIT_PREEMPT_SIGNAL", "TERM")  # near a job's end, so that the run saves
