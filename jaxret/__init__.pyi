# What `import jaxret as jr` offers, and where it comes from.
from .embeddings import (
    Embeddings as Embeddings,
)
from .embeddings import (
    load_embeddings as load_embeddings,
)
from .encoders import (
    TextEncoder as TextEncoder,
)
from .encoders import (
    load_encoder as load_encoder,
)
from .estimate import Estimate as Estimate
from .evaluation import evaluate as evaluate
from .online import (
    availability as availability,
)
from .online import (
    estimators as estimators,
)
from .online import (
    policies as policies,
)
from .online import (
    preconditioners as preconditioners,
)
from .online import (
    projections as projections,
)
from .online import (
    query_maps as query_maps,
)
from .online import (
    schedules as schedules,
)
from .online.environment import (
    Environment as Environment,
)
from .online.environment import (
    label_noise as label_noise,
)
from .online.environment import (
    simulated_reranker as simulated_reranker,
)
from .online.estimators import (
    Estimator as Estimator,
)
from .online.estimators import (
    Observation as Observation,
)
from .online.index import (
    Index as Index,
)
from .online.index import (
    Ticket as Ticket,
)
from .online.learner import (
    Learner as Learner,
)
from .online.learner import (
    rank_one as rank_one,
)
from .online.presets import (
    banditron as banditron,
)
from .online.presets import (
    centred as centred,
)
from .online.presets import (
    centred_replayed as centred_replayed,
)
from .online.presets import (
    chosen_only as chosen_only,
)
from .online.presets import (
    clipped as clipped,
)
from .online.presets import (
    debiased as debiased,
)
from .online.presets import (
    frozen as frozen,
)
from .online.presets import (
    full_information as full_information,
)
from .online.presets import (
    greedy as greedy,
)
from .online.presets import (
    greedy_replayed as greedy_replayed,
)
from .online.presets import (
    implicit_exploration as implicit_exploration,
)
from .online.presets import (
    learners as learners,
)
from .online.presets import (
    low_rank as low_rank,
)
from .online.presets import (
    mapped as mapped,
)
from .online.presets import (
    mapped_replayed as mapped_replayed,
)
from .online.presets import (
    orag as orag,
)
from .online.presets import (
    paper_adamw as paper_adamw,
)
from .online.presets import (
    paper_sgd as paper_sgd,
)
from .online.presets import (
    row_steps as row_steps,
)
from .online.presets import (
    whitened as whitened,
)
from .online.projections import (
    ball as ball,
)
from .online.projections import (
    sphere as sphere,
)
from .online.run import (
    Run as Run,
)
from .online.run import (
    plot as plot,
)
from .online.simulate import simulate as simulate
from .online.tuning import (
    Sweep as Sweep,
)
from .online.tuning import (
    sweep as sweep,
)
from .online.tuning import (
    table as table,
)
from .online.wrappers import (
    with_experience_replay as with_experience_replay,
)
from .online.wrappers import (
    with_exploration as with_exploration,
)
from .online.wrappers import (
    with_preconditioner as with_preconditioner,
)
from .online.wrappers import (
    with_query_map as with_query_map,
)
from .task import (
    Split as Split,
)
from .task import (
    Task as Task,
)
from .task import (
    load_task as load_task,
)
from .testing import check_learner as check_learner
from .theory.statements import (
    Regret as Regret,
)
from .theory.statements import (
    Statement as Statement,
)
from .theory.statements import (
    bounds as bounds,
)
from .theory.statements import (
    regret as regret,
)
from .types import (
    Choice as Choice,
)
from .types import (
    Feedback as Feedback,
)
from .types import (
    Slate as Slate,
)
from .types import (
    State as State,
)

__version__: str
