"""Prompt files: the messages that they produce, and the files that are refused."""

import pytest

from jaxret.llm import load_prompt, replace_prompts


def write(folder, text):
    path = folder / "prompt.txt"
    path.write_text(text)
    return path


def test_a_prompt_is_one_or_two_messages_and_its_values_are_put_in_as_they_are(tmp_path):
    path = write(tmp_path, 'Answer {"a": 1} for $$5.\n---\nThe tool:\n$tool, ${count}s\n')
    sent = load_prompt(path, ("tool", "count")).messages(tool="costs $7 and {x} $count", count="2")
    assert sent == [
        {"role": "system", "content": 'Answer {"a": 1} for $5.'},
        {"role": "user", "content": "The tool:\ncosts $7 and {x} $count, 2s"},
    ]
    undivided = load_prompt(write(tmp_path, "hello\n"), ())
    assert undivided.messages() == [{"role": "user", "content": "hello"}]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("$tool", r"lack the placeholders \['count'\] and have the unknown \[\]"),
        ("$tool $count $more", r"lack the placeholders \[\] and have the unknown \['more'\]"),
        ("$tool $count for 5 $", "a lone \\$"),
        ("a\n---\n$tool\n---\n$count", "got 3 parts"),
        ("$tool $count\n---\n", "2 parts, 1 of them empty"),
    ],
)
def test_a_file_with_other_holes_than_the_caller_fills_is_refused(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        load_prompt(write(tmp_path, text), ("tool", "count"))


def test_values_must_fill_every_placeholder_and_no_other_and_missing_files_are_named(tmp_path):
    prompt = load_prompt(write(tmp_path, "$tool $count"), ("tool", "count"))
    with pytest.raises(ValueError, match=r"lack the placeholders \['count'\] .* unknown \['n'\]"):
        prompt.messages(tool="a", n="b")
    with pytest.raises(FileNotFoundError, match=r"none\.txt does not exist"):
        load_prompt(tmp_path / "none.txt", ())


def test_a_file_takes_the_place_of_a_prompt_and_may_lack_what_is_optional(tmp_path):
    ours = load_prompt(write(tmp_path, "$tool $n"), ("tool",), optional=("n",))
    both = {"ask": ours, "again": load_prompt(write(tmp_path, "again"), ())}
    assert replace_prompts(both, {"ask": None}) == both
    found = replace_prompts(both, {"ask": str(write(tmp_path, "About $tool:"))})
    assert found["ask"].messages(tool="x", n="2")[0]["content"] == "About x:"
    assert found["ask"].sha256 != ours.sha256
    assert found["again"] is both["again"]
    message = r"prompt\.txt: .* lack .*\['tool'\] .* unknown \['y'\]; .* may be \['n'\]"
    with pytest.raises(ValueError, match=message):
        replace_prompts(both, {"ask": write(tmp_path, "$n $y")})
    with pytest.raises(ValueError, match="prompts: unknown 'answer'; known: ask, again"):
        replace_prompts(both, {"answer": None})


def test_a_conversation_has_all_its_messages_but_perhaps_the_first(tmp_path):
    roles = ("system", "user", "assistant")
    prompt = load_prompt(write(tmp_path, "$q\n---\nyes"), ("q",), roles=roles)
    assert [role for role, _ in prompt.parts] == ["user", "assistant"]
    with pytest.raises(ValueError, match=r"system, user, assistant, .* got 1 parts"):
        load_prompt(write(tmp_path, "$q"), ("q",), roles=roles)
