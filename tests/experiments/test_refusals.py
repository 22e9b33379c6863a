"""Settings that experiments refuse before any work: each in these words, and without a folder."""

from importlib import import_module

import pytest

from tests.experiments.configs import config_of, refused

WRONG = {
    "agents": {
        "fails=[0,1.5]": "fails must be shares in",
        "skill=2": "skill must be in",
        "calls=0": "calls must be >= 1, got 0",
        "rules=[none]": "rules must be bm25 or presets",
        "traffic=[rare]": "traffic must be some of",
    },
    "benchmarks.scale": {
        "preset=greddy": "preset must be one of .*greedy",
        "rows=[64,64]": "rows must be two sizes or more",
        "measured=1": "devices must be two or more up to 1",
    },
    "bounds": {
        "noise_rate=0.5": "noise_rate must be in",
        "catalogues.few.tools=1": "tools must be >= 2",
        "catalogues.few.horizons=[1]": "horizons must be each >= 2",
    },
    "confused_types": {
        "libraries=[scipy]": "libraries must be one of numpy, pandas, aws, got 'scipy'",
        "libraries=[]": "libraries must be one or more of numpy, pandas, aws",
        "document=fuller": "document must be one of orag_ultratool, .* got fuller",
        "others=0": "others must be >= 1, got 0",
    },
    "describe_data": {
        "only=[deskbnk]": "only must be of deskbank, .*, got deskbnk",
        "only=[etom]": r"only=\['etom'\]: folder= must hold these data sets, got None",
        "folder=nowhere": "nowhere does not exist; expected there: folders such as deskbank",
    },
    "document_ablation": {
        "retrievers=[bm26]": r"retrievers: unknown \['bm26'\]; known: bm25, dense",
        "negatives=[near]": r"negatives: unknown \['near'\]; known: random, hard",
        "cases=-1": "cases must be >= 0, got -1",
        "draws=0": "draws must be >= 1, got 0",
        "cuts=[]": "cuts must be one or more numbers >= 1",
        "fields=[tag]": r"fields: unknown \['tag'\]; known: function",
    },
    "document_fields.__main__": {
        "judge=me": "judge must be one of rules, llm, got me",
        "prompts.audit=LICENSE": r"LICENSE: .* lack the placeholders \['document'\]",
        "sample=0": "sample must be >= 1, got 0",
        "more=[ultratool]": r"more=\['ultratool'\] needs folder=",
    },
    "exploration": {
        "ways.greedy.policy=bold": "learner 'greedy': unknown policy 'bold'; known: softmax",
        "+ways.greedy.tau=[0.1]": "'greedy' needs policy and estimator, got .* given once",
        "tau=[0.1,0.0]": r"needs tau > 0, got tau=\[0.1, 0.0\]",
        "exposures=0": "exposures must be >= 1, got 0",
        "validation=1.0": r"validation must be in \(0, 1\), got 1.0",
    },
    "latency": {
        "queries=0": "queries must be >= 1, got 0",
        "methods=[fastest]": "unknown method 'fastest'; known: bm25",
    },
    "map_every": {
        "seeds=0": "seeds must be >= 1, got 0",
        "every=[0]": "every must be numbers >= 1",
        "rules=[frozen]": "rules must be some of mapped, centred, mixture",
    },
    "multihop.__main__": {
        "planner=steps": "planner must be gold or llm, got steps",
        "judge=human": "judge must be gold or llm or llm_each, got human",
        "bit=judge": "bit=judge is the word of a language model: set judge=llm or llm_each",
        "planner=llm llm.key_variable=NO_KEY": "set the variable NO_KEY",
        "judge=llm llm.key_variable=NO_KEY": "set the variable NO_KEY",
        "answers=true llm.key_variable=NO_KEY": "set the variable NO_KEY",
        "gold_answers=no.jsonl": "no.jsonl",
        "max_hops=0": "max_hops must be >= 1, got 0",
        "accuracy=2": r"accuracy must be in \[0, 1\], got 2",
        "validation=1": r"validation must be in \(0, 1\), got 1",
        "k=0": "k must be >= 1, got 0",
        "prompts.answer=no.txt": "no.txt does not exist",
        "prompts.answer=LICENSE": r"LICENSE: .* lack .*\['documents', 'query'\]",
    },
    "none_of_these": {
        "share=1": r"share must be in \(0, 1\), got 1",
        "known=0": "known must be >= 1, got 0",
        "limit=1": r"limit must be in \(0, 1\), got 1",
    },
    "offsets": {
        "seeds=0": "seeds must be >= 1, got 0",
        "lexical=1": r"lexical must be in \[0, 1\), got 1",
        "balance=-1": "balance must be >= 0, got -1",
        "weights=[0,1]": r"weights must be numbers in \[0, 1\)",
        "rules=[gready]": "rules must be some of the presets frozen, hybrid, ",
        "rules=[linucb]": "'linucb' is not rank one",
        "rules=[hybrid]": "'hybrid' already has a lexical weight",
    },
    "paper_settings": {
        "schedules=[cosine]": "schedules must be one of inverse_sqrt, constant, got cosine",
        "copies=[0]": r"copies must be one or more numbers >= 1, got \[0\]",
        "updates=0": "updates must be >= 1, got 0",
        "batch=0": "batch must be >= 1, got 0",
        "schedules=[]": r"schedules must be one or more, got \[\]",
        "heldout=1": r"heldout must be in \(0, 1\), got 1",
    },
    "rerank": {
        "rerankers=[best]": r"rerankers: unknown \['best'\]; known: none, simulated, rankgpt",
        "rerankers=[rankgpt] llm.key_variable=NO_KEY": "set the variable NO_KEY",
        "prompts.rankgpt=LICENSE": "LICENSE: expected the messages system, user, assistant",
        "learners.reranked.k=0": "k must be >= 1, got 0",
    },
    "ablate_refiner": {
        "base=mlc": "base must be one of refiner_tool2vec, got 'mlc'",
        "+variants.tools_and_head=[documents]": "refiner_tool2vec has no 'head'; it has limit",
        "+variants.tools=[names]": "recipes.tools=names: tools must be one of",
        "+variants.first=[mlc]": "recipes.first=mlc.first must be one of bm25, documents",
    },
    "scenarios.__main__": {
        "only=[drizzle]": "only must be of drift, rotation, .*, got drizzle",
        "scenarios.drift.name=drifted": "scenario 'drift': unknown kind 'drifted'; known: swapp",
        "scenarios.drift.share=1.5": r"share must be in \(0, 1\], got 1.5",
        "scenarios.restart.ago=0.7": r"ago must be in \(0, at=0.5\], got 0.7",
        "scenarios.rewritten_keep.how=burn": "how must be keep, reset or carry, got burn",
        "scenarios.rewritten_keep.document=haiku": "unknown template 'haiku'",
        "guard.epsilon=0": r"epsilon must be in \(0, 1\), got 0",
        "window=0": "window must be >= 1, got 0",
    },
    "scenarios.guarantee": {
        "times=[0.5]": "times must be >= 1, got 0.5",
        "deltas=[1.0]": r"delta must be in \(0, 1\), got 1.0",
        "runs=0": "runs must be >= 1, got 0",
    },
    "tune": {
        "+search.size=[1]": r"search: unknown \['size'\]; known: tau, eta_over_tau, schedule, ba",
        "search.schedule=[]": "search: schedule must be a list",
        "search.tau.low=0": "search: tau needs 0 < low < high",
        "search.eta_over_tau=3": "search: eta_over_tau must be a list",
    },
    "variance": {
        "~learners.full_information": "learners must hold 'full_information'",
        "rates=[0.5]": r"rates must be in \[0, 0.5\), got 0.5",
        "sizes=[some]": "sizes must be 'all' or a number >= 2, got some",
        "learners.debiased.estimator=right": "'debiased': unknown estimator 'right'; known",
        "~learners.debiased.policy": r"'debiased' needs .* estimator, got \['estimator'\]",
        "learners.debiased.policy={name:softmax,k:2}": "'debiased' must show one item",
        "+learners.debiased.query_map=linear": "'debiased' needs policy and estimator, got",
    },
    "warm_start": {
        "learner=[frozen]": "learner 'frozen' has no step size of Theorem 5.1",
        "learner=[paper_adamw]": "learner 'paper_adamw' has no step size of Theorem 5.1",
        "document=raw": "document=raw must be one of templates.deskbank: .*'terse', 'full'",
    },
    "benchmarks.rules": {"learner=[frozen,linucb]": "learner must be with greedy among them"},
    "benchmarks.sizes": {"sizes=[0x8]": "sizes must be written as 1000x384"},
    "mixture": {
        "repeats=0": "repeats must be >= 1, got 0",
        "switches=-1": "switches must be >= 0, got -1",
    },
    "mixture_variants": {"clusters=0": "clusters must be >= 1, got 0"},
    "real_judge.rerank": {"rerankers=[me]": "rerankers must be some of none, judge, matched, got"},
    "transfer.__main__": {
        "transferred=cube": r"transferred must be one of projections=.*'sphere'\], got 'cube'",
        "projections=[sphere,cube]": "unknown projection 'cube'; known: none, ball, sphere",
        "learner=[mapped]": "learner 'mapped' must be rank one, without a query map",
        "later.share=1": r"later.share must be in \(0, 1\), got 1",
        "other.layers=9": r"layers must be in 1 .. 6, got 9",
    },
}


@pytest.mark.parametrize("module", WRONG)
def test_wrong_settings_are_refused_before_any_work(module, tmp_path):
    main = import_module(f"experiments.{module}").main
    given = [f"directory={tmp_path / 'run'}", "tracking=files"]
    for override, message in WRONG[module].items():
        cfg = config_of(main.config, *given, *override.split())
        refused(main, cfg, message, (ValueError, FileNotFoundError))
