from . import (
    availability as availability,
    environment as environment,
    estimators as estimators,
    policies as policies,
    preconditioners as preconditioners,
    presets as presets,
    projections as projections,
    query_maps as query_maps,
    scenarios as scenarios,
    schedules as schedules,
    streams as streams,
    wrappers as wrappers,
)
