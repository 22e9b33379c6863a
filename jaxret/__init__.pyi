# What `import jaxret as jr` offers, and where it comes from.
from .evaluation.describe import (
    Description as Description,
    describe as describe,
)
from .evaluation.compare import (
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
from .evaluation.estimate import Estimate as Estimate
from .evaluation.evaluate import (
    evaluate as evaluate,
    evaluate_each as evaluate_each,
)
from .logs import (
    Log as Log,
    load_log as load_log,
)
from .offline.off_policy import (
    OffPolicy as OffPolicy,
    off_policy as off_policy,
)
from .offline.select import select as select
from .offline.threshold import (
    Threshold as Threshold,
    threshold as threshold,
)
from .offline.snapshots import Snapshot as Snapshot
from .offline.snapshots import warm_start as warm_start
from . import (
    environments as environments,
    tools as tools,
)
from .rules import (
    estimators as estimators,
    policies as policies,
    preconditioners as preconditioners,
    projections as projections,
    query_maps as query_maps,
    schedules as schedules,
)
from .learners.bandits.bootstrapped import bootstrapped as bootstrapped
from .learners.bandits.inverse_gap import fastcb as fastcb, squarecb as squarecb
from .learners.bandits.linear import (
    lints as lints,
    linucb_shared as linucb_shared,
    neural_linear as neural_linear,
)
from .learners.bandits.linucb import (
    linucb as linucb,
    ridge_epsilon_greedy as ridge_epsilon_greedy,
)
from .learners.bandits.logistic_ucb import logistic_ucb as logistic_ucb
from .learners.bandits.perceptrons import (
    banditron as banditron,
    gaptron as gaptron,
    soba as soba,
)
from .learners.bandits.success_prior import success_prior as success_prior
from .environments.environment import (
    Environment as Environment,
    judged as judged,
    judging_reranker as judging_reranker,
    label_noise as label_noise,
    simulated_reranker as simulated_reranker,
)
from .rules.estimators import (
    Estimator as Estimator,
    Observation as Observation,
)
from .learners.confidence import (
    abstaining as abstaining,
    confidence as confidence,
    with_confidence as with_confidence,
)
from .learners.guarded import guarded as guarded
from .serving.catalogue import Synced as Synced
from .serving.index import Index as Index
from .serving.tickets import Ticket as Ticket
from .learners.learner import Learner as Learner
from .learners.memory import with_memory as with_memory
from .learners.minibatch import minibatch as minibatch
from .learners.offsets import (
    with_balance as with_balance,
    with_lexical as with_lexical,
)
from .learners.oracle import (
    oracle as oracle,
    with_labels as with_labels,
)
from .learners.rank_one import rank_one as rank_one
from .learners.replay import with_experience_replay as with_experience_replay
from .learners.grid import (
    grid as grid,
    paired as paired,
    traced as traced,
)
from .learners.registry import learners as learners
from .learners.mixture import (
    default_experts as default_experts,
    mixture as mixture,
)
from .learners.presets import (
    centred as centred,
    centred_replayed as centred_replayed,
    chosen_only as chosen_only,
    clipped as clipped,
    debiased as debiased,
    frozen as frozen,
    full_information as full_information,
    greedy as greedy,
    greedy_replayed as greedy_replayed,
    hybrid as hybrid,
    implicit_exploration as implicit_exploration,
    low_rank as low_rank,
    mapped as mapped,
    mapped_full_information as mapped_full_information,
    mapped_replayed as mapped_replayed,
    orag as orag,
    paper_adamw as paper_adamw,
    paper_sgd as paper_sgd,
    row_steps as row_steps,
    whitened as whitened,
)
from .rules.projections import (
    ball as ball,
    sphere as sphere,
)
from .simulation.run import (
    Run as Run,
    plot as plot,
    table as table,
)
from .simulation.simulate import simulate as simulate
from .simulation.streams import (
    exposures as exposures,
    stream_orders as stream_orders,
)
from .simulation.sweep import (
    Sweep as Sweep,
    sweep as sweep,
)
from .learners.wrappers import (
    with_exploration as with_exploration,
    with_preconditioner as with_preconditioner,
    with_query_map as with_query_map,
)
from .task import (
    Parts as Parts,
    Split as Split,
    Task as Task,
    load_task as load_task,
)
from .testing import check_learner as check_learner
from .theory.regret import Regret as Regret, regret as regret
from .theory.theorems import Statement as Statement
from .theory.bounds import bounds as bounds
from .types import (
    Choice as Choice,
    Feedback as Feedback,
    Slate as Slate,
    State as State,
)

__version__: str
