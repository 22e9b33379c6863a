"""Expands tool documents with language models (Tool-REX, Section 2.3, Figure 2).

    expand    a first model writes the tool profile of each document
    check     `jaxret.documents.tool_profile.violations`, without a model
    judge     a second model says whether the documentation supports all of the profile: true, false
    refine    a third model rewrites profiles that failed. It gets all earlier attempts and the
              fault of the last one (at temperature 0 the same question would give the same answer).
              The new profile is checked and judged again. If the only fault is that texts are too
              long, the model gets each text alone: small models repeat a whole profile instead of
              correcting it, but do shorten a single sentence
    confirm   (optional, not in the paper) the second model is asked about single fields of an
              accepted profile; fields that it does not confirm are removed. A small judge accepts
              every whole profile, but rejects many invented sentences in isolation

A profile is accepted only if it keeps the rules and the judge says true. A judge that says neither
true nor false is asked again, with its first answer in the conversation. A document without an
accepted profile has one of these problems, beside those of `jaxret.llm.Stage`:

    unreadable     the document has no content
    refusal        the model apologised instead of writing an object
    bad_json       there is no JSON object, or a broken one
    rules          the object breaks the rules
    judged_false   the judge says that the documentation does not support the profile
    no_verdict     the judge said neither true nor false

Answers are stored on disk (`jaxret.llm.Chat`), so an interrupted run resumes without asking any
question twice. The paper's models: Qwen3-32B with reasoning, LLaMA-3.1-70B, and GPT-4o for the
third stage, which about 1.5 % of the tools needed.

Letters: I documents.
"""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jaxret.data.dataset import Document
from jaxret.documents.fields import original
from jaxret.documents.tool_profile import Rules, aim, longest, schema, tidy, violations
from jaxret.llm import Malformed, Messages, Problem, Prompt, Stage, load_prompt, without_thoughts
from jaxret.runtime.validate import require

FOLDER = Path(__file__).parent / "prompts"


class Prompts(NamedTuple):
    """The texts of all questions."""

    expand: Prompt
    refine: Prompt  # with the reason why an answer cannot be used
    shorten: Prompt
    judge: Prompt
    judge_again: Prompt
    claim: Prompt


#: Our texts. A number is optional: another text may state its own bounds, or none.
OURS = Prompts(
    expand=load_prompt(
        FOLDER / "expand.txt",
        ("document",),
        optional=("text_aim", "limitation_aim", *Rules._fields),
    ),
    refine=load_prompt(FOLDER / "refine.txt", ("problem",)),
    shorten=load_prompt(FOLDER / "shorten.txt", ("text",), optional=("words",)),
    judge=load_prompt(FOLDER / "judge.txt", ("document", "profile")),
    judge_again=load_prompt(FOLDER / "judge_again.txt", ()),
    claim=load_prompt(FOLDER / "claim.txt", ("document", "claim")),
)
STAGE_PROMPTS = {
    "expand": ("expand",),
    "judge": ("judge", "judge_again", "claim"),
    "refine": ("expand", "refine", "shorten"),
}
CONFIRMABLE = ("when_to_use", "limitation")  # optional fields of one sentence each
MAX_CHARACTERS = 16_000  # most characters of a document or an answer, about 4,000 tokens
REPAIRABLE = ("refusal", "bad_json", "rules", "judged_false")  # a better answer may follow
UNSUPPORTED = Problem(
    kind="judged_false",
    reason="Held against the documentation, not all of it is supported, or it contradicts itself.",
)
_REGRET = re.compile(r"\b(sorry|apologi[sz]e|cannot|can['’]t|unable|won['’]t|not able)\b", re.I)
_VERDICT = re.compile(
    r"(?:^|\b(?:answer|verdict|judge?ment|conclusion)(?:\s+is)?[\s:=]*)(true|false)$"
)


class Stages(NamedTuple):
    """The models of the pipeline, which may be three or one."""

    expand: Stage
    judge: Stage
    refine: Stage | None  # None: nothing is refined


class Outcome(NamedTuple):
    """The result of one document."""

    profile: dict[str, Any] | None  # accepted; with example_usage if the model wrote some
    problem: Problem | None  # None if there is a profile
    rounds: int  # rounds of refinement


class Long(NamedTuple):
    """A profile whose only fault is that these texts are too long."""

    profile: dict[str, Any]
    fields: tuple[str, ...]


class Draft(NamedTuple):
    """An answer without its reasoning, and the profile that was read from it."""

    answer: str
    profile: dict[str, Any] | None
    problem: Problem | None  # None: the profile keeps all rules
    long: Long | None = None  # set if the only problem is that texts are too long


def expand_documents(
    documents: Sequence[Document],
    stages: Stages,
    rules: Rules,
    *,
    rounds: int = 2,
    verdicts: int = 2,
    confirm: Sequence[str] = (),
    prompts: Prompts = OURS,
) -> list[Outcome]:
    """Write, check, judge and refine the profile of every document.

    Args:
      documents: I documents, with or without an earlier profile, which no model sees.
      stages: the models.
      rules: the bounds of a profile.
      rounds: largest number of refinements.
      verdicts: largest number of times that a judge is asked until it says true or false.
      confirm: the fields about which the judge is asked separately, from `CONFIRMABLE`.
      prompts: the texts of the questions.

    Returns:
      I outcomes, in the order of the documents.

    Raises:
      ValueError: a setting is out of range.
      OutOfReach: an endpoint stopped answering.
      Unanswered: a key or the name of a model is wrong.
    """
    require("rounds", rounds, ">= 0", lambda x: x >= 0)
    require("verdicts", verdicts, ">= 1", lambda x: x >= 1)
    for field in confirm:
        require("confirm", field, f"some of {', '.join(CONFIRMABLE)}", CONFIRMABLE.__contains__)
    outcomes, rows = _readable(documents)
    questions = [expand_question(documents[row], rules, prompts.expand) for row in rows]
    drafts = _drafts(stages.expand, questions, rules, "expand") if rows else []
    for number in range(rounds + 1):
        judged = [documents[row] for row in rows]
        drafts = _judged(stages.judge, judged, drafts, verdicts, prompts)
        for row, draft in zip(rows, drafts, strict=True):
            accepted = draft.profile if draft.problem is None else None
            outcomes[row] = Outcome(profile=accepted, problem=draft.problem, rounds=number)
        wrong = [
            i
            for i, draft in enumerate(drafts)
            if draft.problem is not None and draft.problem.kind in REPAIRABLE
        ]
        if number == rounds or not wrong or stages.refine is None:
            break
        rows, questions, drafts = ([some[i] for i in wrong] for some in (rows, questions, drafts))
        title = f"refine, round {number + 1}"
        questions, drafts = _refined(stages.refine, questions, drafts, rules, title, prompts)
    if confirm:
        outcomes |= _confirmed(stages.judge, documents, outcomes, confirm, prompts.claim)
    return [outcomes[row] for row in range(len(documents))]


def expand_question(document: Document, rules: Rules, prompt: Prompt = OURS.expand) -> Messages:
    """Build the question for the profile of a tool.

    Args:
      document: a dict or a string; an earlier profile is not shown.
      rules: the bounds that the prompt states.
      prompt: the text of the question.

    Raises:
      TypeError: the document is neither a dict nor a string.
      ValueError: the document has no content.
    """
    numbers = rules._asdict() | {
        "text_aim": aim(rules.text_words),
        "limitation_aim": aim(rules.limitation_words),
    }
    bounds = {name: str(value) for name, value in numbers.items()}
    return prompt.messages(document=documentation(document), **bounds)


def judge_question(
    document: Document, profile: dict[str, Any], prompt: Prompt = OURS.judge
) -> Messages:
    """Build the question whether a profile agrees with its document.

    Args:
      document: a dict or a string; an earlier profile is not shown.
      profile: the fields of the profile that is judged.
      prompt: the text of the question.
    """
    text = json.dumps(profile, ensure_ascii=False, indent=1)
    return prompt.messages(document=documentation(document), profile=text)


def documentation(document: Document) -> str:
    """Return the original documentation as JSON, cut at `MAX_CHARACTERS`.

    Fields that were added to the documentation, such as an earlier profile, are left out.
    """
    # default: Python dicts hold values that JSON does not know
    text = json.dumps(original(document), ensure_ascii=False, indent=1, default=str)
    return text[:MAX_CHARACTERS]


def read_draft(text: str, rules: Rules) -> Draft:
    """Read the profile in an answer; words and code fences around the object are ignored."""
    answer = without_thoughts(text)
    start, end = answer.find("{"), answer.rfind("}")
    problem = Problem(kind="bad_json", reason="there is no JSON object")
    if start < 0:
        if _REGRET.search(answer):
            problem = Problem(kind="refusal", reason="it is a refusal")
        return Draft(answer=answer, profile=None, problem=problem)
    try:
        found = json.loads(answer[start : end + 1] if end > start else answer[start:])
    except (json.JSONDecodeError, RecursionError) as error:
        problem = problem._replace(reason=f"the JSON object is broken: {error}")
        return Draft(answer=answer, profile=None, problem=problem)
    return _checked(answer, found, rules)


def read_verdict(answer: str) -> bool:
    """Read ``true`` or ``false``, alone or at the end of a reasoned answer.

    The reasoning of a model before ``</think>`` is ignored. The last line of the rest must be the
    word, or end in ``answer: true``, ``verdict is false`` and the like, and must not contain the
    other word.

    Raises:
      Malformed: the answer ends in neither word, or its last line has both.
    """
    plain = re.sub(r"[*`\"'.]", "", without_thoughts(answer)).strip().lower()
    last = plain.splitlines()[-1].strip() if plain else ""
    ending = _VERDICT.search(last)
    if ending is None or len(set(re.findall(r"true|false", last))) > 1:
        raise Malformed(f"ends neither in true nor in false: {answer[-80:]!r}")
    return ending[1] == "true"


def says_yes(answer: str) -> bool:
    """Return whether an answer contains the word yes and not the word no."""
    words = re.findall(r"[a-z]+", without_thoughts(answer).lower())
    return {"yes", "no"} & set(words) == {"yes"}


def _checked(answer: str, found: Any, rules: Rules) -> Draft:
    """Make the draft of an object: tidied, and checked against the rules."""
    profile = tidy(found)
    if not (broken := violations(profile, rules)):
        return Draft(answer=answer, profile=profile, problem=None)
    problem = Problem(kind="rules", reason="\n".join(broken))
    return Draft(answer=answer, profile=None, problem=problem, long=_too_long(profile, rules))


def _too_long(profile: Any, rules: Rules) -> Long | None:
    """Find the texts to shorten; None if the profile has another fault."""
    if not isinstance(profile, dict):
        return None
    fields = tuple(
        field
        for field, words in longest(rules).items()
        if isinstance(text := profile.get(field), str) and len(text.split()) > words
    )
    rest = profile | dict.fromkeys(fields, "short")
    return Long(profile, fields) if fields and not violations(rest, rules) else None


def _readable(documents: Sequence[Document]) -> tuple[dict[int, Outcome], list[int]]:
    """Return the outcomes of documents without content, and the rows of the others."""
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


def _drafts(stage: Stage, questions: Sequence[Messages], rules: Rules, title: str) -> list[Draft]:
    drafts = []
    for answer in stage.ask(questions, title, schema=schema(rules)):
        if isinstance(answer, Problem):
            drafts.append(Draft(answer="", profile=None, problem=answer))
            continue
        draft = read_draft(answer, rules)
        stage.noted(draft.problem)
        drafts.append(draft)
    return drafts


def _refined(
    stage: Stage,
    questions: Sequence[Messages],
    drafts: Sequence[Draft],
    rules: Rules,
    title: str,
    prompts: Prompts,
) -> tuple[list[Messages], list[Draft]]:
    """Ask for texts that are too long one by one, and for every other profile as a whole.

    Returns:
      The last question of each profile and the new drafts.
    """
    whole = [i for i, draft in enumerate(drafts) if draft.long is None]
    again, refined = list(questions), list(drafts)
    for i in whole:
        again[i] = _refine_question(questions[i], drafts[i], prompts.refine)
    if whole:
        new = _drafts(stage, [again[i] for i in whole], rules, title)
        for i, draft in zip(whole, new, strict=True):
            refined[i] = draft
    long = {i: draft.long for i, draft in enumerate(drafts) if draft.long is not None}
    most = longest(rules)
    texts = [
        prompts.shorten.messages(text=one.profile[field], words=str(aim(most[field])))
        for one in long.values()
        for field in one.fields
    ]
    answers = iter(stage.ask(texts, f"{title}, long texts") if texts else [])
    for i, one in long.items():
        new = [next(answers) for _ in one.fields]
        if problems := [text for text in new if isinstance(text, Problem)]:
            refined[i] = Draft(answer=drafts[i].answer, profile=None, problem=problems[0])
            continue
        shorter = [" ".join(without_thoughts(str(x)).split()).strip("\"'“”") for x in new]
        profile = one.profile | dict(zip(one.fields, shorter, strict=True))
        refined[i] = _checked(json.dumps(profile, ensure_ascii=False), profile, rules)
        stage.noted(refined[i].problem)
    return again, refined


def _refine_question(question: Messages, draft: Draft, prompt: Prompt) -> Messages:
    assert draft.problem is not None
    answer = {"role": "assistant", "content": draft.answer[:MAX_CHARACTERS] or "(no answer)"}
    return [*question, answer, *prompt.messages(problem=draft.problem.reason)]


def _judged(
    stage: Stage,
    documents: Sequence[Document],
    drafts: Sequence[Draft],
    verdicts: int,
    prompts: Prompts,
) -> list[Draft]:
    """Return the drafts, with a problem if the judge does not accept a profile."""
    judged = list(drafts)
    questions = {
        row: judge_question(documents[row], draft.profile, prompts.judge)
        for row, draft in enumerate(drafts)
        if draft.profile is not None
    }
    for number in range(verdicts if questions else 0):
        answers = stage.ask(list(questions.values()), "judge again" if number else "judge")
        silent = {}
        for row, answer in zip(questions, answers, strict=True):
            problem = answer if isinstance(answer, Problem) else _objection(answer)
            judged[row] = drafts[row]._replace(problem=problem)
            if problem is not None and not isinstance(answer, Problem):
                stage.noted(problem)
                if problem.kind == "no_verdict":
                    reply = without_thoughts(answer)[:MAX_CHARACTERS] or "..."
                    before = [*questions[row], {"role": "assistant", "content": reply}]
                    silent[row] = [*before, *prompts.judge_again.messages()]
        if not (questions := silent):
            break
    return judged


def _objection(answer: str) -> Problem | None:
    try:
        return None if read_verdict(without_thoughts(answer)) else UNSUPPORTED
    except Malformed as error:
        return Problem(kind="no_verdict", reason=f"the judge {error}")


def _confirmed(
    stage: Stage,
    documents: Sequence[Document],
    outcomes: dict[int, Outcome],
    confirm: Sequence[str],
    prompt: Prompt,
) -> dict[int, Outcome]:
    """Remove fields that the judge does not confirm; an unanswered question confirms nothing."""
    claimed = {
        row: (one.profile, [field for field in confirm if field in one.profile])
        for row, one in outcomes.items()
        if one.profile is not None
    }
    questions = [
        prompt.messages(document=documentation(documents[row]), claim=profile[field])
        for row, (profile, fields) in claimed.items()
        for field in fields
    ]
    answers = iter(stage.ask(questions, "confirm") if questions else [])
    kept = {}
    for row, (profile, fields) in claimed.items():
        left = dict(profile)
        for field, answer in [(field, next(answers)) for field in fields]:
            if isinstance(answer, Problem) or not says_yes(answer):
                del left[field]
                stage.noted(Problem(kind="unconfirmed", reason=f"{field}: {profile[field]}"))
        kept[row] = outcomes[row]._replace(profile=left)
    return kept
