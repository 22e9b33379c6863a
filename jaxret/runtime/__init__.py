"""Files, checkpoints, processes, devices, progress, tracking and validation."""

from jaxret.runtime.programs import keep_programs

keep_programs()
