"""Lists of tools in the shapes in which they are found, and what is refused of them."""

import json

import pytest
import yaml

from jaxret.tools import Tool, read

SCHEMA = {"type": "object", "properties": {"to": {"type": "string", "description": "who pays"}}}
BILL = {"name": "send_invoice", "description": "Bills a customer.", "inputSchema": SCHEMA}
FIND = {"name": "findOrder", "description": "Looks an order up.", "inputSchema": {}}
PAYER = {"to": "who pays"}
BOTH = [
    Tool("send_invoice", "send_invoice", "Bills a customer.", "", PAYER),
    Tool("findOrder", "findOrder", "Looks an order up.", "", {}),
]


def of(category, *tools):
    return [tool._replace(category=category) for tool in tools]


class Model:
    """A stand-in for a pydantic model of the MCP package."""

    def __init__(self, content):
        self.content = content

    def model_dump(self, *, mode, by_alias, exclude_none):
        assert (mode, by_alias, exclude_none) == ("json", True, True)
        return self.content


class OfServer:
    """A stand-in for a tool of a FastMCP server, whose own fields cannot be dumped."""

    def __init__(self, content):
        self.content = content

    def to_mcp_tool(self):
        return Model(self.content)


CHAT = [{"type": "function", "function": {"name": "f", "description": "d", "parameters": SCHEMA}}]
SHAPES = {
    # MCP's tools/list, alone, with its envelope, bare, in pages, and as objects
    "tools": ({"tools": [BILL, FIND]}, BOTH),
    "answer": ({"jsonrpc": "2.0", "id": 1, "result": {"tools": [BILL, FIND]}}, BOTH),
    "bare": ([BILL, FIND], BOTH),
    "pages": ([{"tools": [BILL], "nextCursor": "2"}, {"tools": [FIND]}], BOTH),
    "objects": ([Model(BILL), OfServer(FIND)], BOTH),
    "result": (Model({"tools": [BILL, FIND]}), BOTH),
    "read": (tuple(BOTH), BOTH),
    # by server, by category, by module
    "by server": (
        {"shop": {"tools": [BILL]}, "store": [FIND]},
        of("shop", BOTH[0]) + of("store", BOTH[1]),
    ),
    "by category": (
        {"categories": {"money": [BILL], "goods": [FIND], "empty": []}},
        of("money", BOTH[0]) + of("goods", BOTH[1]),
    ),
    "by module": (
        {"shop.api": {"send_invoice": BILL, "findOrder": {"description": FIND["description"]}}},
        of("shop.api", *BOTH),
    ),
    "modules": (
        {"modules": [{"module": "shop", "functions": [BILL, FIND]}]},
        of("shop", *BOTH),
    ),
    "names of fields": (
        {"text": {"documentation": BILL}, "summary": [FIND]},
        of("text", BOTH[0]) + of("summary", BOTH[1]),
    ),
    # nested servers
    "servers": (
        {
            "total": 2,
            "servers": [
                {"name": "shop", "status": "up", "tools": [BILL, FIND], "error": None},
                {"name": "down", "tools": None},
            ],
        },
        of("shop", *BOTH),
    ),
    "mcpServers": (
        {"mcpServers": {"shop": {"url": "http://shop", "tools": {"send_invoice": BILL}}}},
        of("shop", BOTH[0]),
    ),
    # other frameworks
    "chat": (CHAT, [Tool("f", "f", "d", "", PAYER)]),
    "responses": (
        [{"type": "function", "name": "f", "description": "d", "parameters": SCHEMA}],
        [Tool("f", "f", "d", "", PAYER)],
    ),
    "namespace": (
        [{"type": "namespace", "name": "crm", "tools": [{"type": "function", "name": "f"}]}],
        [Tool("f", "f", "", "crm", {})],
    ),
    "anthropic": (
        [{"name": "f", "description": "d", "input_schema": SCHEMA}],
        [Tool("f", "f", "d", "", PAYER)],
    ),
    # a field with the name of a group is no group
    "result of a tool": ([BILL | {"result": {"x": 1}, "categories": ["a"]}], BOTH[:1]),
    "tags": ([{"name": "f", "description": "d", "categories": ["a"]}], [Tool("f", "f", "d")]),
}


@pytest.mark.parametrize(("content", "tools"), SHAPES.values(), ids=SHAPES)
def test_a_list_is_read_in_its_shape(content, tools):
    assert read(content) == tools


def test_files_are_read_by_their_ending(tmp_path):
    content = {"tools": [BILL, FIND]}
    texts = {
        "tools.json": json.dumps(content),
        "tools": json.dumps(content, indent=1),
        "tools.yaml": yaml.safe_dump(content),
        "tools.YML": yaml.safe_dump(content["tools"]),
        "tools.jsonl": f"{json.dumps(BILL)}\n\n{json.dumps(FIND)}\n",
        "bom.json": "\ufeff" + json.dumps(content),
    }
    for name, text in texts.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
        assert read(tmp_path / name) == BOTH
        assert read(str(tmp_path / name)) == BOTH


def test_tools_of_the_general_layout_keep_their_ids(tmp_path):
    rows = [
        {"id": "mail.send", "name": "send", "documentation": {"description": "Sends."}},
        {"id": 7, "documentation": "Rents a car.", "domain": "travel"},
    ]
    (tmp_path / "t.jsonl").write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    assert read(tmp_path / "t.jsonl") == [
        Tool("mail.send", "send", "Sends."),
        Tool("7", "7", "Rents a car.", "travel"),
    ]


TABLES = {
    "t.csv": 'Name,Description,Parameters\nf,"Does, what\nit says","to, cc"\n\ng,,\n',
    "semicolons.csv": '\ufeffname;description;parameters\nf;"Does, what\nit says";to,cc\ng;;\n',
    "t.tsv": 'tool_name\ttext\tinputSchema\nf\t"Does, what\nit says"\t'
    '"{""properties"": {""to"": {}, ""cc"": {}}}"\ng\t\t\n',
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_read_by_its_columns(tmp_path, name):
    (tmp_path / name).write_text(TABLES[name], encoding="utf-8")
    does = Tool("f", "f", "Does, what\nit says", "", {"to": "", "cc": ""})
    assert read(tmp_path / name) == [does, Tool("g", "g")]


def test_columns_of_other_names_are_given(tmp_path):
    file = tmp_path / "t.csv"
    file.write_text("Werkzeug,Zweck,Gruppe\nf,Tut was,A\n", encoding="utf-8")
    columns = {"name": "Werkzeug", "description": "Zweck", "category": "Gruppe"}
    assert read(file, columns=columns) == [Tool("f", "f", "Tut was", "A")]
    refused = [
        (None, r"t\.csv, line 2: no column holds a name; there are \['Werkzeug', .*columns="),
        ({"name": "Tool"}, r"t\.csv, line 2: no column 'Tool'; there are \['Werkzeug'"),
        ({"nom": "Werkzeug"}, "columns must be one of id, name, description, .* got 'nom'"),
    ]
    for given, message in refused:
        with pytest.raises(ValueError, match=message):
            read(file, columns=given)
    (tmp_path / "t.json").write_text("[]", encoding="utf-8")
    with pytest.raises(ValueError, match=r"columns= are those of a table .*t\.json"):
        read(tmp_path / "t.json", columns=columns)


def test_the_category_comes_before_names_that_clash():
    other = BILL | {"description": "Sends an invoice for approval."}
    servers = {"shop": [BILL, FIND], "office": [other]}
    assert [x.id for x in read(servers)] == [
        "shop.send_invoice",
        "findOrder",
        "office.send_invoice",
    ]
    always = ["shop.send_invoice", "shop.findOrder", "office.send_invoice"]
    assert [x.id for x in read(servers, prefix="always")] == always
    assert [x.id for x in read(read(servers), prefix="always")] == always
    assert read([BILL, FIND, BILL]) == BOTH  # equal tools are one


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "source: there is no tool; expected a tool"),
        ({"tools": []}, "source: there is no tool"),
        (3, "source: expected a tool .* or a group of tools .*, got 3"),
        ({"tools": [BILL, "x"]}, r"source, tools\[1\]: expected a tool .*, got 'x'"),
        ({"shop": {"tools": [BILL, None]}}, r"source, shop, tools\[1\]: expected .*, got None"),
        ({"tools": [BILL], "nextCursor": "p2"}, "not complete, its nextCursor is 'p2': ask the"),
        ([{"tools": [BILL]}, {"result": {"tools": [], "nextCursor": "p3"}}], "nextCursor is 'p3'"),
        ({"tools": [BILL], "admin": [FIND]}, "both 'tools' and 'admin' hold tools"),
        ([BILL, BILL | {"description": "x"}], r"\[1\]: tool 'send_invoice' differs .*source\[0\]"),
        ([BILL | {"description": ["x"]}], r"\[0\]: the description of 'send_invoice' must be a"),
        ([{"name": ["x"], "inputSchema": {}}], r"source\[0\]: an id must be a string .*\['x'\]"),
        ([{"inputSchema": {}}], r"source\[0\]: a tool needs a name, got .*\['inputSchema'\]"),
        ([{"description": "x"}], r"source\[0\]: a tool needs a name"),
        ([{"function": {"description": "d"}}], r"source\[0\]: a tool needs a name, got an object"),
        ({"mcpServers": {"shop": {"command": "npx"}}}, "mcpServers, shop, command: expected a"),
    ],
)
def test_what_is_no_list_of_tools_is_refused_in_one_line(content, message):
    with pytest.raises(ValueError, match=message) as caught:
        read(content)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("t.json", '{"tools": [\n{"name": }]}', r"t\.json, line 2: not JSON: .* at column 10"),
        ("t.json", '{"tools": [3]}', r"t\.json, tools\[0\]: expected a tool"),
        ("t.yaml", "tools:\n  - {name: x", r"t\.yaml, line 2: not YAML: "),
        ("t.jsonl", '{"name": "x"}\n[1]', r"t\.jsonl, line 2: expected an object, got \[1\]"),
        ("t.jsonl", '{"name": "x"}\n{"a": 1}', r"t\.jsonl, line 2, a: expected a tool"),
        (
            "t.csv",
            "name,text\nf,a\ng,b,c\n",
            r"t\.csv, line 3: expected cells for \['name', 'text'",
        ),
        ("t.csv", "name,name\nf,a\n", r"t\.csv, line 1: expected a header of different names"),
        ("t.csv", "name,text\n,a\n", r"t\.csv, line 2: a tool needs a name"),
        ("t.csv", "name,parameters\nf,{x\n", r"t\.csv, line 2: the parameters of 'f' are not JSON"),
    ],
)
def test_a_damaged_file_is_refused_with_file_and_place(tmp_path, name, text, message):
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=message) as caught:
        read(tmp_path / name)
    assert "\n" not in str(caught.value)


def test_folders_and_missing_files_are_refused(tmp_path):
    with pytest.raises(ValueError, match="is a folder: give a file of tools"):
        read(tmp_path)
    with pytest.raises(
        FileNotFoundError, match=r"none\.json does not exist; expected there: a file"
    ):
        read(tmp_path / "none.json")
