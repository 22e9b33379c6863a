from . import (
    cross_encoder as cross_encoder,
    dpr as dpr,
    mlc as mlc,
    nudge as nudge,
    query2desc as query2desc,
    query2query as query2query,
    refiner as refiner,
    refit as refit,
    tool2vec as tool2vec,
    tool_embed as tool_embed,
    tool_rank as tool_rank,
)
