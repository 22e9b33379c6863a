import numpy as np
import pytest
from scipy import stats

from jaxret import data
from jaxret.data.templates import PROFILE_FIELDS, template, with_profile
from jaxret.documents import ablate

DOCUMENT = {
    "name": "pay",
    "description": "Sends money.",
    "terse": "Payment entity.",
    "tool_profile": {
        "function": "Pays.",
        "tags": ["money", "debt"],
        "when_to_use": "",
        "example_usage": [{"query": "pay Ann", "api_call": "pay('Ann')"}],
    },
}


def test_fields_are_added_in_the_order_given_and_empty_ones_are_not():
    text = with_profile(("tags", "when_to_use", "function"))(DOCUMENT)
    assert text == "Name: pay Description: Sends money. Tags: money, debt Function: Pays."
    assert with_profile(())(DOCUMENT) == template("full")(DOCUMENT)
    shown = with_profile(("example_usage",), base=template("terse"))(DOCUMENT)
    assert shown == "pay: Payment entity. Example usage: query: pay Ann, api_call: pay('Ann')"


def test_all_four_fields_are_the_recipe_expanded():
    for document in data.load("deskbank").documents[:20]:
        assert with_profile(PROFILE_FIELDS)(document) == template("expanded")(document)


def test_only_fields_that_a_document_has_are_ablated():
    assert ablate.present([DOCUMENT]) == ("function", "tags", "example_usage")
    assert ablate.present(data.load("deskbank").documents, ("tags", "example_usage")) == ("tags",)
    with pytest.raises(ValueError, match=r"fields: unknown \['tag'\]; known: function"):
        ablate.present([DOCUMENT], ("tag",))
    with pytest.raises(ValueError, match="no document has a tool_profile with one of function"):
        ablate.present([{"name": "pay"}])


def test_each_protocol_changes_one_field():
    assert ablate.variants(("a", "b", "c")) == {
        "original": (),
        "full": ("a", "b", "c"),
        "add/a": ("a",),
        "add/b": ("b",),
        "add/c": ("c",),
        "out/a": ("b", "c"),
        "out/b": ("a", "c"),
        "out/c": ("a", "b"),
    }
    gains = ablate.gains(("a", "b"))
    assert gains["add/a"] == ("add/a", "original")
    assert gains["out/b"] == ("full", "out/b")


def test_values_a_tool_keep_the_mean_and_give_the_error_of_clusters():
    """The clustered variance of a mean, written as the double sum over queries of one tool."""
    rng = np.random.default_rng(0)
    tools = rng.integers(0, 20, 300)
    values = rng.standard_normal(20)[tools] + 0.3 * rng.standard_normal(300)
    found = ablate.per_tool(values, tools)
    clusters = len(np.unique(tools))
    assert found.shape == (clusters,)
    assert found.mean() == pytest.approx(values.mean())
    left = values - values.mean()
    double = sum(left[i] * left[j] for i in range(300) for j in range(300) if tools[i] == tools[j])
    variance = clusters / (clusters - 1) * double / 300**2
    assert found.std(ddof=1) / np.sqrt(clusters) == pytest.approx(np.sqrt(variance))
    assert variance > 3 * values.var() / 300  # queries that hang together tell less


def test_values_of_single_queries_stay_themselves():
    values = np.array([0.5, -1.0, 2.0])
    np.testing.assert_allclose(ablate.per_tool(values, np.array([4, 2, 9]))[[1, 0, 2]], values)


def test_sign_flips_agree_with_scipy_and_with_enumeration():
    values = np.random.default_rng(1).normal(0.4, 1.0, 30)
    expected = stats.permutation_test(
        (values,), np.mean, permutation_type="samples", n_resamples=20_000, random_state=0
    ).pvalue
    assert ablate.sign_flips(values, draws=20_000) == pytest.approx(expected, abs=0.01)
    assert ablate.sign_flips(np.ones(4), draws=50_000) == pytest.approx(2 / 16, abs=0.01)
    assert ablate.sign_flips(np.zeros(5), draws=99) == 1.0
    assert ablate.sign_flips(np.ones(50), draws=99) == 0.01


def test_holm_by_hand():
    # 0.01 x 4, 0.02 x 3, 0.04 x 2 = 0.08, and 0.03 x 2 = 0.06 before it; 0.9 stays.
    np.testing.assert_allclose(ablate.holm([0.04, 0.01, 0.9, 0.02]), [0.08, 0.04, 0.9, 0.06])
    np.testing.assert_allclose(ablate.holm([0.03, 0.02]), [0.04, 0.04])
    np.testing.assert_allclose(ablate.holm([0.6, 0.7, 0.8]), [1.0, 1.0, 1.0])
