"""The layouts of ToolBank, on small banks and, where available, on the real tool files."""

import json
import sys

import pytest

from jaxret.data import load
from jaxret.data.split import own_split
from tests.data.folders import label_ids, read_lines, write_lines, write_parquet

TOOLS = {
    "numpy.sin": {"new_func": "circular_ratio", "description": "Opposite over hypotenuse."},
    "numpy.add": {"new_func": "sum_up", "description": "Adds.", "class": "ufunc"},
    "numpy.cos": {"new_func": "circular_ratio", "description": "Adjacent over hypotenuse."},
    "numpy.sort": {"description": "Orders from low to high."},
}
QUERIES = {
    "train": [
        {"instruction": "Sum.", "refined_instruction": "How much?", "functions": ["sum_up"]},
        {"instruction": "Ratio.", "refined_instruction": None, "functions": ["circular_ratio"]},
    ],
    "val": [
        {
            "instruction": "Sort, sum.",
            "refined_instruction": "Add the largest ones.",
            "functions": ["numpy.sort", "sum_up"],
        }
    ],
    "test": [{"instruction": "Sort.", "refined_instruction": "Who won?", "functions": ["sum_up"]}],
}
REFINED = ("How much?", "Ratio.", "Add the largest ones.", "Who won?")


def dump(file, value):
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(value), encoding="utf-8")


def write_json(folder, part, rows):
    dump(folder / f"NumpyBank_{part}.json", rows)


def write_jsonl(folder, part, rows):
    write_lines(folder / f"NumpyBank_{part}.jsonl", *rows)


def write_shards(folder, part, rows):
    half = (len(rows) + 1) // 2
    for shard, some in enumerate((rows[:half], rows[half:])):
        file = folder / f"data/NumpyBank_{part}-0000{shard}-of-00002.parquet"
        write_parquet(file, *some, columns_of=rows)


@pytest.fixture
def tools(tmp_path):
    """Return a folder that contains only the tool file."""
    dump(tmp_path / "numpy_function_descriptions.json", TOOLS)
    return tmp_path


@pytest.fixture
def folder(tools):
    for part, rows in QUERIES.items():
        write_json(tools, part, rows)
    return tools


@pytest.mark.parametrize("write", [write_json, write_jsonl, write_shards])
def test_the_three_layouts_of_queries_load_the_same(tools, write):
    for part, rows in QUERIES.items():
        write(tools, part, rows)
    dataset = load("toolbank", tools, bank="numpy")
    assert dataset.queries == REFINED
    assert dataset.query_ids == ("train_0", "train_1", "val_0", "test_0")
    assert dataset.split == ("train", "train", "val", "test")
    labels = [["sum_up"], ["circular_ratio"], ["numpy.sort", "sum_up"], ["sum_up"]]
    assert label_ids(dataset) == labels
    assert [part.tolist() for part in own_split(dataset)] == [[0, 1], [2], [3]]
    raw = load("toolbank", tools, refined=False)
    assert raw.queries == ("Sum.", "Ratio.", "Sort, sum.", "Sort.")


def test_functions_of_one_name_are_one_tool_with_the_first_description(folder):
    dataset = load("toolbank", folder)
    assert dataset.tool_ids == ("circular_ratio", "sum_up", "numpy.sort")
    assert dataset.documents == (
        {"name": "circular_ratio", "description": "Opposite over hypotenuse."},
        {"name": "sum_up", "description": "Adds.", "class": "ufunc"},
        {"name": "numpy.sort", "description": "Orders from low to high."},
    )
    assert dataset.merged_tools == 1
    (folder / "numpy_function_descriptions.json").unlink()
    rows = [{"id": real, "name": real, "documentation": about} for real, about in TOOLS.items()]
    write_lines(folder / "tools_numpy.jsonl", *rows)  # a converted file instead
    assert load("toolbank", folder).documents == dataset.documents


def test_files_of_the_hub_hold_no_raw_instruction(tools):
    rows = [{"refined_instruction": "Who won?", "functions": ["sum_up"], "explanation": "Because."}]
    write_shards(tools, "test", rows)
    assert load("toolbank", tools).queries == ("Who won?",)
    with pytest.raises(ValueError, match=r"row 1 has no raw instruction; refined=True takes"):
        load("toolbank", tools, refined=False)


def test_unknown_functions_are_refused_by_name_or_dropped_with_their_query(folder):
    rows = QUERIES["test"] + [
        {"instruction": "Store it.", "functions": ["sum_up", "s3.put"], "refined_instruction": None}
    ]
    write_json(folder, "test", rows)
    message = r"query 'test_1' calls functions \['s3\.put'\] that the .*\(3 names\); unknown='drop'"
    with pytest.raises(ValueError, match=message):
        load("toolbank", folder)
    assert load("toolbank", folder, unknown="drop").queries == REFINED


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"instruction": "x", "functions": "sum_up"}, r"row 1: expected a list of names under"),
        ({"instruction": "x", "functions": [1]}, r"row 1: expected a list of names under"),
        ({"instruction": "x"}, r"row 1: expected a list of names under"),
        (["sum_up"], r"row 1: expected a list of names under"),
        ({"instruction": "x", "functions": []}, "query 'train_0' has no labels"),
        ({"instruction": " ", "functions": ["sum_up"]}, "row 1 has no instruction, refined or raw"),
        ({"refined_instruction": " ", "functions": ["sum_up"]}, "row 1 has no instruction, ref"),
        ({"functions": ["sum_up"]}, r"NumpyBank_train\.json, row 1 has no instruction"),
    ],
)
def test_broken_queries_are_refused_with_file_and_row(folder, row, message):
    write_json(folder, "train", [row])
    with pytest.raises(ValueError, match=message):
        load("toolbank", folder)


DESCRIPTIONS = "numpy_function_descriptions.json"
TWICE = '{"a": {"description": "x"}, "a": {"description": "y"}}'
UNTOLD = '{"a": {"new_func": "b"}}'
TWO_ROWS = """{"id": "a", "documentation": {"description": "x"}}
{"id": "a", "documentation": {"description": "y"}}"""


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("NumpyBank_val.json", "[{", r"NumpyBank_val\.json: not JSON: .*line 1 column 3"),
        ("NumpyBank_val.json", "{}", r"NumpyBank_val\.json: expected a JSON list, got {}"),
        ("NumpyBank_val.jsonl", '{"functions"', r"NumpyBank_val\.jsonl, line 1: not JSON"),
        ("NumpyBank_val.parquet", "PAR1 cut short", r"NumpyBank_val\.parquet: not parquet"),
        (DESCRIPTIONS, '{"a', r"descriptions\.json: not JSON"),
        (DESCRIPTIONS, "[]", r"expected a JSON dict, got \[\]"),
        (DESCRIPTIONS, TWICE, r"descriptions\.json: 'a' is there twice, with different contents"),
        (
            DESCRIPTIONS,
            UNTOLD,
            r"descriptions\.json: tool 'a' needs a description, got {'new_func': 'b'}",
        ),
        ("tools_numpy.jsonl", TWO_ROWS, r"tools_numpy\.jsonl: 'a' is there twice"),
    ],
)
def test_broken_files_are_named(folder, name, text, message):
    (folder / name).write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        load("toolbank", folder)


@pytest.mark.parametrize(
    ("error", "options", "message"),
    [
        (FileNotFoundError, {}, r"holds no queries; .*NumpyBank_train, .*parquet"),
        (FileNotFoundError, {"bank": "aws"}, r"aws_function_descriptions\.json does .*bank_aws"),
        (ValueError, {"bank": "scipy"}, "bank must be one of numpy, pandas, aws, got 'scipy'"),
        (ValueError, {"unknown": "keep"}, "unknown must be 'refuse' or 'drop', got 'keep'"),
    ],
)
def test_missing_files_and_unknown_options_are_refused(tools, error, options, message):
    with pytest.raises(error, match=message):
        load("toolbank", tools, **options)


def test_parquet_without_pyarrow_names_the_extra(tools, monkeypatch):
    write_shards(tools, "test", QUERIES["test"])
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    with pytest.raises(ImportError, match=r"needs pyarrow: install jaxret\[parquet\]"):
        load("toolbank", tools)


@pytest.mark.parametrize(
    ("bank", "name", "tools", "merged"),
    [("numpy", "Numpy", 513, 14), ("pandas", "Pandas", 1655, 0), ("aws", "AWS", 1002, 0)],
)
def test_the_real_tool_files_give_the_label_space(shared_data, tmp_path, bank, name, tools, merged):
    rows = read_lines(shared_data / f"toolbank-tools-only/tools_{bank}.jsonl")
    write_lines(tmp_path / f"tools_{bank}.jsonl", *rows)
    described = [row["documentation"]["new_func"] for row in rows]
    queries = [{"instruction": f"Call {f}.", "functions": [f]} for f in dict.fromkeys(described)]
    dump(tmp_path / f"{name}Bank_train.json", queries)
    dataset = load("toolbank", tmp_path, bank=bank)
    assert (len(dataset.tool_ids), dataset.merged_tools) == (tools, merged)
    assert set(dataset.tool_ids) == set(described)
    assert dataset.labels[:, 0].tolist() == list(range(tools))
