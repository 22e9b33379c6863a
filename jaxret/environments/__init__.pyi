from . import (
    availability as availability,
    drift as drift,
    feedback as feedback,
    interventions as interventions,
)
