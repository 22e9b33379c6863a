"""Files, checkpoints, processes, devices, progress, tracking and validation."""

from jaxret.runtime.precision import keep_float32
from jaxret.runtime.programs import keep_programs

keep_float32()
keep_programs()
