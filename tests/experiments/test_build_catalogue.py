"""Catalogues from descriptions, a small library and NumPy, and the authors' lists of tools."""

import importlib
import sys
from collections import Counter

import numpy as np
import pytest

from experiments.build_catalogue.docstrings import condense, parameters, strip_html
from experiments.build_catalogue.libraries import Library, build_catalogue, library_catalogue
from jaxret.generation.queries import shorten
from tests.experiments.conftest import rows_of

SOURCE = '''
"""A library."""
from collections import OrderedDict
from toylib.sub import deep
__all__ = ["add", "plus", "Base", "Child", "deep", "Oops", "bare", "LIMIT", "OrderedDict"]
__version__ = "3.1"
LIMIT = 3

def add(a, b=1, *rest, c, **more):
    """Adds `a` to b."""

plus = add

def bare(): pass

class Oops(ValueError):
    """An error."""

class Words:
    """Words of a base."""
    def upper(self):
        """To capitals."""

class Accessor:
    def __get__(self, owner, kind):
        return Words

class Base:
    """A base."""
    words = Accessor()
    kind = Words

    def __init__(self, start, end=0): pass

    @property
    def size(self):
        """How many."""

    @classmethod
    def make(cls, path):
        """Makes one."""

    build = make

    def walk(self, far):
        """Walks."""

    def _hidden(self):
        """Not said."""

class Child(Base):
    """A child."""
    def walk(self, far):
        """Walks farther."""

    def run(self):
        """Runs."""
'''
TOY = Library(packages=("", "sub"), members=("",))


@pytest.fixture
def toy(tmp_path, monkeypatch):
    """Return a function that lists the tools of the small library."""
    (tmp_path / "toylib").mkdir()
    (tmp_path / "toylib" / "__init__.py").write_text(SOURCE)
    (tmp_path / "toylib" / "sub.py").write_text('def deep(x):\n    """Deep in the library."""\n')
    monkeypatch.syspath_prepend(str(tmp_path))
    yield lambda library=TOY: library_catalogue("toylib", library, words=80)
    for name in ("toylib", "toylib.sub"):
        sys.modules.pop(name, None)


def test_a_library_is_its_public_documented_things_each_once(toy):
    found = toy()
    base = ["Base", "Base.make", "Base.size", "Base.walk", "Base.words.upper"]
    names = [*base, "Child", "Child.run", "Words", "Words.upper", "add", "deep"]
    assert [tool.id for tool in found.tools] == [f"toylib.{name}" for name in names]
    # found: Accessor, Base, Child, Words, add, plus, bare, deep (8); build, make, size, walk and
    # words.upper of Base (5); upper of Words (1); build, make, size, walk, run of Child (5)
    assert found.counts["toylib"] == Counter(
        found=19, aliases=2, inherited=4, undocumented=2, tools=11
    )
    assert found.counts["sub"] == Counter(found=1, aliases=1)
    assert found.source == "toylib 3.1"
    # An inherited member is listed again if the package lists it.
    ids = {tool.id for tool in toy(TOY._replace(inherited=("",))).tools}
    assert {"toylib.Child.make", "toylib.Child.walk", "toylib.Child.words.upper"} <= ids


def test_a_tool_is_a_line_of_a_data_set(toy):
    tools = {tool.id: tool for tool in toy().tools}
    needed, optional = {"required": True}, {"required": False}
    taken = {"a": needed, "b": optional, "c": needed}
    assert tools["toylib.add"].row() == {
        "id": "toylib.add",
        "name": "toylib.add",
        "documentation": {"description": "Adds a to b.", "parameters": taken},
    }
    assert tools["toylib.Base"].parameters == {"start": needed, "end": optional}
    assert tools["toylib.Base.make"].parameters == {"path": needed}
    assert tools["toylib.Base.walk"].parameters == {"far": needed}


def resolved(name):
    package, attribute = name.rsplit(".", 1)
    return getattr(importlib.import_module(package), attribute, None)


def test_numpys_tools_are_functions_by_their_own_names_without_what_the_paper_leaves_out():
    found = build_catalogue("numpy")
    ids = [tool.id for tool in found.tools]
    things = [resolved(name) for name in ids]
    assert all(map(callable, things))
    assert len({id(thing) for thing in things}) == len(things)
    assert not any(isinstance(x, type) and issubclass(x, np.generic) for x in things)
    excluded = tuple(f"numpy.{x}." for x in ("ctypeslib", "dtypes", "emath", "rec", "version"))
    assert not any(name.startswith(excluded) for name in ids)
    assert {"numpy.absolute", "numpy.linalg.inv", "numpy.fft.fft", "numpy.strings.find"} <= set(ids)
    assert not {"numpy.abs", "numpy.conj", "numpy.test", "numpy.float64"} & set(ids)
    assert all(tool.description for tool in found.tools)
    totals = sum((Counter(count) for count in found.counts.values()), Counter())
    assert totals["found"] == totals["aliases"] + totals["undocumented"] + len(ids)
    sine = next(tool for tool in found.tools if tool.id == "numpy.sin")
    assert sine.description.startswith("Trigonometric sine, element-wise.")
    assert sine.parameters["x"] == {"required": True}
    assert sine.parameters["out"] == {"required": False}


def authors(shared_data, library):
    path = shared_data / "toolbank-tools-only" / f"tools_{library}.jsonl"
    return {row["id"] for row in rows_of(path)}


def test_nearly_all_of_numpy_that_the_authors_crawled_is_found(shared_data):
    """Only aliases, modules, indexable objects, scalar types and removed names may be missing."""
    theirs = authors(shared_data, "numpy")
    ours = {tool.id for tool in build_catalogue("numpy").tools}
    assert len(theirs & ours) > 0.9 * len(theirs)
    here = {id(resolved(name)) for name in ours}  # what they list may be an alias of one of these
    missing = {name: resolved(name) for name in theirs - ours}
    unexplained = {name for name, x in missing.items() if callable(x) and id(x) not in here}
    assert unexplained == {"numpy.record", "numpy.linalg.LinAlgError"}


def test_every_operation_that_the_authors_list_for_aws_is_found(shared_data):
    """Five helpers of boto3's clients may be missing, since they are not service operations."""
    pytest.importorskip("botocore", reason="AWS's services: install jaxret[generation]")
    ours = {tool.id: tool for tool in build_catalogue("aws").tools}
    missing = {name.rsplit(".", 1)[1] for name in authors(shared_data, "aws") - set(ours)}
    helpers = {"can_paginate", "close", "get_paginator", "get_waiter"}
    assert missing <= helpers | {"generate_db_auth_token"}
    parameters = ours["ec2.client.attach_volume"].parameters
    assert parameters["VolumeId"] == {"type": "string", "required": True}
    assert parameters["DryRun"] == {"type": "boolean", "required": False}
    assert not any("<" in tool.description for tool in ours.values())


def test_most_of_pandas_that_the_authors_crawled_is_found(shared_data):
    pytest.importorskip("pandas", reason="pandas: install jaxret[generation]")
    ours = {tool.id for tool in build_catalogue("pandas").tools}
    theirs = authors(shared_data, "pandas")
    assert len(theirs & ours) > 0.75 * len(theirs)
    assert {"pandas.Series.str.extract", "pandas.DataFrame.abs", "pandas.Series.abs"} <= ours
    assert "pandas.DatetimeIndex.abs" not in ours
    assert "pandas.isnull" not in ours or "pandas.isna" not in ours  # aliases of one function


def test_a_library_that_is_not_installed_or_not_known_is_one_clear_error(monkeypatch):
    for library, module in {"pandas": "pandas", "aws": "botocore"}.items():
        monkeypatch.setitem(sys.modules, module, None)
        with pytest.raises(ImportError, match=rf"{module} installed: install jaxret\[generation\]"):
            build_catalogue(library)
    with pytest.raises(ValueError, match="library must be one of numpy, pandas, aws, got scipy"):
        build_catalogue("scipy")


NUMPY_STYLE = """clip(a, low, high=None,
     out=None)

Limit the values, as :func:`~lib.where` and ``sort`` do.

.. versionadded:: 1.2
   not said

It is `fast <http://x>`_. See::

    code

Parameters
----------
a : array_like
    What is limited.
low, high : float
    Bounds.
out : ndarray, optional
    A place.
*args
    More.

Returns
-------
b : ndarray
"""


def test_a_docstring_has_a_description_before_its_sections_and_parameters():
    text = "Limit the values, as lib.where and sort do. It is fast <http://x>. See:"
    assert condense(NUMPY_STYLE) == text
    assert condense("f(a, b)") == condense("") == condense("Parameters\n----------\na : int") == ""

    assert parameters(NUMPY_STYLE) == {"a": True, "low": True, "high": True, "out": False}
    assert parameters("No section.") == {}


def test_a_text_is_cut_behind_a_sentence():
    for words, expected in {
        9: "One two. Three four five! Six seven 8.5 nine.",
        8: "One two. Three four five!",
        4: "One two.",
        1: "One ...",
    }.items():
        assert shorten("One two. Three four  five!\nSix seven 8.5 nine.", words) == expected


def test_html_is_text_without_its_notices():
    html = (
        "<p>Stops an <code>instance</code>.</p><note><p>Not <i>now</i>.</p></note>"
        "<ul><li>a &amp; b</li><li>c</li></ul>"
    )
    assert strip_html(html) == "Stops an instance. a & b c"
