from . import (
    cross_encoder as cross_encoder,
    encoder_tuning as encoder_tuning,
    mlc as mlc,
    nudge as nudge,
    refiner as refiner,
    refit as refit,
    tool2vec as tool2vec,
    tool_rank as tool_rank,
)
from .files import (
    load as load,
    save as save,
)
