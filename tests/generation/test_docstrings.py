"""Documentation to a description: by hand, on the forms in which it comes."""

import pytest

from jaxret.generation.docstrings import condense, parameters, shorten, strip_html

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


def test_a_description_is_the_text_before_the_sections_without_signature_and_markup():
    text = "Limit the values, as lib.where and sort do. It is fast <http://x>. See:"
    assert condense(NUMPY_STYLE) == text


def test_what_is_only_a_signature_or_sections_has_no_description():
    assert condense("f(a, b)") == condense("") == condense("Parameters\n----------\na : int") == ""


def test_parameters_are_read_where_no_signature_can_be():
    expected = {"a": True, "low": True, "high": True, "out": False}
    assert parameters(NUMPY_STYLE) == expected
    assert parameters("No section.") == {}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (9, "One two. Three four five! Six seven 8.5 nine."),
        (8, "One two. Three four five!"),
        (4, "One two."),
        (1, "One ..."),
    ],
)
def test_a_text_is_cut_behind_a_sentence(words, expected):
    assert shorten("One two. Three four  five!\nSix seven 8.5 nine.", words) == expected


def test_html_is_text_without_its_notices():
    html = (
        "<p>Stops an <code>instance</code>.</p><note><p>Not <i>now</i>.</p></note>"
        "<ul><li>a &amp; b</li><li>c</li></ul>"
    )
    assert strip_html(html) == "Stops an instance. a & b c"
