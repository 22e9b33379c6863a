from .cache import cache_directory as cache_directory
from .callables import (
    Encoder as Encoder,
    TextFunction as TextFunction,
    encoder_name as encoder_name,
)
from .encoding import (
    encode as encode,
    forward as forward,
)
from .padding import (
    batches as batches,
    pad as pad,
)
from .specs import (
    ENCODERS as ENCODERS,
    TASK as TASK,
    EncoderSpec as EncoderSpec,
    Kind as Kind,
)
from .text_encoder import (
    DType as DType,
    TextEncoder as TextEncoder,
    load_encoder as load_encoder,
)
