from . import (
    availability as availability,
    censoring as censoring,
    clicks as clicks,
    delay as delay,
    drift as drift,
    poison as poison,
    restart as restart,
    rewriting as rewriting,
)
