"""The expansion pipeline of Tool-REX (Section 2.3, Figure 2), over a whole catalogue.

    expand    a first model writes a profile of each tool
    check     `jaxret.documents.tool_profile.violations`
    judge     a second model says whether all of it is supported by the documentation
    refine    a third model writes what failed again, told what was wrong; checked and judged too.
              Where texts are too long and nothing else is wrong, it is asked for these alone
    confirm   (ours, where it is asked for) the second model says of single fields of an accepted
              profile whether the documentation says so; what it does not confirm is left out

A profile is accepted if it keeps the rules and the judge says true, and in no other case. Answers
are on disk (`jaxret.llm.Chat`), so a run that was killed asks nothing twice. The paper's models:
Qwen3-32B with reasoning, LLaMA-3.1-70B, GPT-4o, the last for about 1.5 % of the tools.

Letters: I documents.
"""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from jaxret.data.dataset import Document
from jaxret.documents import audit, claims, shorten
from jaxret.documents.questions import (
    Draft,
    checked,
    documentation,
    expand_question,
    judge_again_question,
    judge_question,
    read_draft,
    refine_question,
)
from jaxret.documents.tool_profile import Rules, schema
from jaxret.llm import Malformed, Messages, Problem, Stage, without_thoughts
from jaxret.runtime.validate import require

REPAIRABLE = ("refusal", "bad_json", "rules", "judged_false")  # a better answer may follow
UNSUPPORTED = Problem(
    kind="judged_false",
    reason="Held against the documentation, not all of it is supported, or it contradicts itself.",
)


class Stages(NamedTuple):
    """Who is asked. They may be three models or one."""

    expand: Stage
    judge: Stage
    refine: Stage | None  # None: nothing is refined


class Outcome(NamedTuple):
    """What became of one document."""

    profile: dict[str, Any] | None  # accepted; with example_usage, where it has some
    problem: Problem | None  # None if there is a profile
    rounds: int  # of refinement


def expand_documents(
    documents: Sequence[Document],
    stages: Stages,
    rules: Rules,
    *,
    rounds: int = 2,
    verdicts: int = 2,
    confirm: Sequence[str] = (),
) -> list[Outcome]:
    """Writes, checks, judges and refines the profile of every document.

    Args:
      documents: I of them, with or without an earlier profile, which no model gets to see.
      stages: who is asked.
      rules: of a profile.
      rounds: of refinement, at most.
      verdicts: how often a judge is asked that says neither true nor false.
      confirm: fields that the judge is asked about alone, of `claims.FIELDS`.

    Returns:
      I outcomes, in order.

    Raises:
      OutOfReach, Unanswered: see `Stage.ask`.
    """
    require("rounds", rounds, ">= 0", lambda x: x >= 0)
    require("verdicts", verdicts, ">= 1", lambda x: x >= 1)
    for field in confirm:
        require("confirm", field, f"some of {', '.join(claims.FIELDS)}", claims.FIELDS.__contains__)
    outcomes, rows = _readable(documents)
    asked = [expand_question(documents[row], rules) for row in rows]
    drafts = _drafts(stages.expand, asked, rules, "expand") if rows else []
    for number in range(rounds + 1):
        drafts = _judged(stages.judge, [documents[row] for row in rows], drafts, verdicts)
        for row, draft in zip(rows, drafts, strict=True):
            outcomes[row] = _outcome(draft, number)
        wrong = [place for place, draft in enumerate(drafts) if _repairable(draft)]
        if number == rounds or not wrong or stages.refine is None:
            break
        rows, asked, drafts = ([some[i] for i in wrong] for some in (rows, asked, drafts))
        asked, drafts = _refined(stages.refine, asked, drafts, rules, f"refine, round {number + 1}")
    if confirm:
        outcomes |= _confirmed(stages.judge, documents, outcomes, confirm)
    return [outcomes[row] for row in range(len(documents))]


def _readable(documents: Sequence[Document]) -> tuple[dict[int, Outcome], list[int]]:
    """Outcomes of documents that hold nothing to write from, and the rows of the others."""
    outcomes, rows = {}, []
    for row, document in enumerate(documents):
        try:
            documentation(document)
        except (TypeError, ValueError) as error:
            problem = Problem(kind="unreadable", reason=str(error))
            outcomes[row] = Outcome(profile=None, problem=problem, rounds=0)
        else:
            rows.append(row)
    return outcomes, rows


def _drafts(stage: Stage, asked: Sequence[Messages], rules: Rules, title: str) -> list[Draft]:
    drafts = []
    for answer in stage.ask(asked, title, schema=schema(rules)):
        if isinstance(answer, Problem):
            drafts.append(Draft(answer="", profile=None, problem=answer))
            continue
        draft = read_draft(answer, rules)
        stage.noted(draft.problem)
        drafts.append(draft)
    return drafts


def _refined(
    stage: Stage, asked: Sequence[Messages], drafts: Sequence[Draft], rules: Rules, title: str
) -> tuple[list[Messages], list[Draft]]:
    """Texts that are too long are asked for alone; everything else is written again as a whole.

    Returns:
      what each profile was asked with in the end, and the new drafts.
    """
    whole = [i for i, draft in enumerate(drafts) if draft.long is None]
    again, refined = list(asked), list(drafts)
    for i in whole:
        again[i] = refine_question(asked[i], drafts[i])
    if whole:
        written = _drafts(stage, [again[i] for i in whole], rules, title)
        refined = [written[whole.index(i)] if i in whole else x for i, x in enumerate(refined)]
    long = {i: draft.long for i, draft in enumerate(drafts) if draft.long is not None}
    texts = [text for one in long.values() for text in shorten.questions(one, rules)]
    answers = iter(stage.ask(texts, f"{title}, long texts") if texts else [])
    for i, one in long.items():
        new = [next(answers) for _ in one.fields]
        if problems := [text for text in new if isinstance(text, Problem)]:
            refined[i] = Draft(answer=drafts[i].answer, profile=None, problem=problems[0])
            continue
        profile = shorten.shortened(one, [text for text in new if isinstance(text, str)])
        refined[i] = checked(json.dumps(profile, ensure_ascii=False), profile, rules)
        stage.noted(refined[i].problem)
    return again, refined


def _repairable(draft: Draft) -> bool:
    return draft.problem is not None and draft.problem.kind in REPAIRABLE


def _judged(
    stage: Stage, documents: Sequence[Document], drafts: Sequence[Draft], verdicts: int
) -> list[Draft]:
    """The drafts, with a problem where the judge has one with them."""
    judged = list(drafts)
    asked = {
        row: judge_question(documents[row], draft.profile)
        for row, draft in enumerate(drafts)
        if draft.profile is not None
    }
    for number in range(verdicts if asked else 0):
        answers = stage.ask(list(asked.values()), "judge again" if number else "judge")
        silent = {}
        for row, answer in zip(asked, answers, strict=True):
            problem = answer if isinstance(answer, Problem) else _verdict(answer)
            judged[row] = drafts[row]._replace(problem=problem)
            if problem is not None and not isinstance(answer, Problem):
                stage.noted(problem)
                if problem.kind == "no_verdict":
                    silent[row] = judge_again_question(asked[row], answer)
        if not (asked := silent):
            break
    return judged


def _verdict(answer: str) -> Problem | None:
    try:
        return None if audit.parse(without_thoughts(answer)) else UNSUPPORTED
    except Malformed as error:
        return Problem(kind="no_verdict", reason=f"the judge {error}")


def _confirmed(
    stage: Stage,
    documents: Sequence[Document],
    outcomes: dict[int, Outcome],
    confirm: Sequence[str],
) -> dict[int, Outcome]:
    """The outcomes with a profile, by row; a question without an answer confirms nothing."""
    claimed = {
        row: (one.profile, [field for field in confirm if field in one.profile])
        for row, one in outcomes.items()
        if one.profile is not None
    }
    asked = [
        claims.question(documents[row], profile[field])
        for row, (profile, fields) in claimed.items()
        for field in fields
    ]
    answers = iter(stage.ask(asked, "confirm") if asked else [])
    kept = {}
    for row, (profile, fields) in claimed.items():
        said = [next(answers) for _ in fields]
        texts = ["" if isinstance(answer, Problem) else answer for answer in said]
        left = claims.confirmed(profile, fields, texts)
        for field in set(profile) - set(left):
            stage.noted(Problem(kind="unconfirmed", reason=f"{field}: {profile[field]}"))
        kept[row] = outcomes[row]._replace(profile=left)
    return kept


def _outcome(draft: Draft, rounds: int) -> Outcome:
    accepted = draft.profile if draft.problem is None else None
    return Outcome(profile=accepted, problem=draft.problem, rounds=rounds)
