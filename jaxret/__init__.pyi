# What `import jaxret as jr` offers, and where it comes from.
from .description import (
    Description as Description,
    describe as describe,
)
from .comparison import (
    Comparison as Comparison,
    compare as compare,
    compare_all as compare_all,
)
from .embeddings import (
    Embeddings as Embeddings,
    load_embeddings as load_embeddings,
)
from .encoders import (
    TextEncoder as TextEncoder,
    load_encoder as load_encoder,
)
from .estimate import Estimate as Estimate
from .evaluation import evaluate as evaluate
from .logs import (
    Log as Log,
    load_log as load_log,
)
from .offline.off_policy import (
    OffPolicy as OffPolicy,
    off_policy as off_policy,
)
from .offline.select import select as select
from .offline.target import Snapshot as Snapshot
from .offline.warm_start import warm_start as warm_start
from .online import (
    availability as availability,
    estimators as estimators,
    policies as policies,
    preconditioners as preconditioners,
    projections as projections,
    query_maps as query_maps,
    scenarios as scenarios,
    schedules as schedules,
)
from .online.bandits.banditron import banditron as banditron
from .online.bandits.bootstrapped import bootstrapped as bootstrapped
from .online.bandits.fastcb import fastcb as fastcb
from .online.bandits.gaptron import gaptron as gaptron
from .online.bandits.linucb import linucb as linucb
from .online.bandits.linucb_shared import linucb_shared as linucb_shared
from .online.bandits.lints import lints as lints
from .online.bandits.logistic_ucb import logistic_ucb as logistic_ucb
from .online.bandits.neural_linear import neural_linear as neural_linear
from .online.bandits.ridge_epsilon_greedy import ridge_epsilon_greedy as ridge_epsilon_greedy
from .online.bandits.soba import soba as soba
from .online.bandits.squarecb import squarecb as squarecb
from .online.bandits.success_prior import success_prior as success_prior
from .online.environment import (
    Environment as Environment,
    judged as judged,
    judging_reranker as judging_reranker,
    label_noise as label_noise,
    simulated_reranker as simulated_reranker,
)
from .online.estimators import (
    Estimator as Estimator,
    Observation as Observation,
)
from .online.guard import guarded as guarded
from .online.index import Index as Index
from .online.tickets import Ticket as Ticket
from .online.learner import Learner as Learner
from .online.rank_one import rank_one as rank_one
from .online.grids import (
    grid as grid,
    paired as paired,
)
from .online.learners import learners as learners
from .online.mixture import mixture as mixture
from .online.presets import (
    centred as centred,
    centred_replayed as centred_replayed,
    chosen_only as chosen_only,
    clipped as clipped,
    debiased as debiased,
    frozen as frozen,
    full_information as full_information,
    greedy as greedy,
    greedy_replayed as greedy_replayed,
    implicit_exploration as implicit_exploration,
    low_rank as low_rank,
    mapped as mapped,
    mapped_replayed as mapped_replayed,
    orag as orag,
    paper_adamw as paper_adamw,
    paper_sgd as paper_sgd,
    row_steps as row_steps,
    whitened as whitened,
)
from .online.projections import (
    ball as ball,
    sphere as sphere,
)
from .online.run import (
    Run as Run,
    plot as plot,
)
from .online.simulate import simulate as simulate
from .online.tuning import (
    Sweep as Sweep,
    sweep as sweep,
    table as table,
)
from .online.wrappers import (
    in_bfloat16 as in_bfloat16,
    with_experience_replay as with_experience_replay,
    with_exploration as with_exploration,
    with_preconditioner as with_preconditioner,
    with_query_map as with_query_map,
)
from .task import (
    Split as Split,
    Task as Task,
    load_task as load_task,
)
from .testing import check_learner as check_learner
from .theory.run_regret import Regret as Regret, regret as regret
from .theory.statements import Statement as Statement, bounds as bounds
from .types import (
    Choice as Choice,
    Feedback as Feedback,
    Slate as Slate,
    State as State,
)

__version__: str
