"""Operations of OpenAPI descriptions as tools."""

import json

import pytest
import yaml

from jaxret.tools import Tool, read

SPEC = {
    "openapi": "3.1.0",
    "info": {"title": "Pets", "version": "1"},
    "paths": {
        "/pets/{petId}": {
            "parameters": [
                {"$ref": "#/components/parameters/PetId"},
                {"name": "lang", "in": "query", "description": "language of all"},
            ],
            "get": {
                "operationId": "getPetById",
                "summary": "Find a pet",
                "description": "Returns one pet.",
                "tags": ["pets", "read"],
                "parameters": [
                    {"name": "lang", "in": "query", "description": "language of names"},
                    {"name": "X-Trace", "in": "header", "description": "for logs"},
                    {
                        "name": "kind",
                        "in": "query",
                        "schema": {"$ref": "#/components/schemas/Kind"},
                    },
                ],
            },
            "delete": {"description": "Gives a pet away."},
        },
        "/pets": {
            "post": {
                "operationId": "addPet",
                "summary": "Adds a pet.",
                "requestBody": {"$ref": "#/components/requestBodies/Pet"},
            },
        },
        "/linked": {"$ref": "#/components/pathItems/linked"},
    },
    "components": {
        "parameters": {
            "PetId": {"name": "petId", "in": "path", "required": True, "description": "which pet"}
        },
        "requestBodies": {
            "Pet": {
                "content": {
                    "text/plain": {"schema": {"type": "string"}},
                    "application/json": {"schema": {"$ref": "#/components/schemas/Pet"}},
                }
            }
        },
        "schemas": {
            "Kind": {"description": "kind of pet", "enum": ["cat", "dog"]},
            "Pet": {
                "allOf": [{"properties": {"name": {"description": "what it is called"}}}],
                "properties": {"kind": {"$ref": "#/components/schemas/Kind"}},
            },
        },
        "pathItems": {"linked": {"put": {"operationId": "link"}}},
    },
}
KIND = "kind of pet (cat, dog)"
PET = {"petId": "which pet", "lang": "language of all"}
TOOLS = [
    Tool(
        "getPetById",
        "getPetById",
        "Find a pet. Returns one pet.",
        "pets, read",
        {"petId": "which pet", "lang": "language of names", "kind": KIND},
    ),
    Tool("DELETE /pets/{petId}", "DELETE /pets/{petId}", "Gives a pet away.", "", PET),
    Tool("addPet", "addPet", "Adds a pet.", "", {"kind": KIND, "name": "what it is called"}),
    Tool("link", "link"),
]


def test_operations_are_read_from_json_yaml_and_objects(tmp_path):
    (tmp_path / "api.json").write_text(json.dumps(SPEC), encoding="utf-8")
    (tmp_path / "api.yaml").write_text(yaml.safe_dump(SPEC, sort_keys=False), encoding="utf-8")
    for source in (SPEC, tmp_path / "api.json", tmp_path / "api.yaml"):
        assert read(source) == TOOLS


def changed(**parts):
    return SPEC | parts


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"swagger": "2.0", "paths": {}}, "OpenAPI 2.0 is not read: convert it to 3.0 or 3.1"),
        (changed(paths={}), "has no paths, and so no operations"),
        (changed(paths={"/a": {"get": {"requestBody": {"$ref": "b.yaml"}}}}), "GET /a: .*bundle"),
        (changed(paths={"/a": {"get": {"parameters": [{"$ref": "#/no"}]}}}), "GET /a: .*nothing"),
        (changed(paths={"/a": {"$ref": "#/paths/~1a"}}), "source, /a: .* points to itself"),
        (changed(paths={"/a": [1]}), r"source, /a: expected an object, got \[1\]"),
        (
            changed(paths={x: {"get": {"operationId": "f", "summary": x}} for x in ("/a", "/b")}),
            "GET /b: tool 'f' differs from that of source, GET /a",
        ),
    ],
)
def test_a_description_that_cannot_be_read_is_refused_with_its_place(spec, message):
    with pytest.raises(ValueError, match=message):
        read(spec)
