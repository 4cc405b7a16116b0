"""The matrix of two models is that of the table, whichever is named first."""

from __future__ import annotations

import numpy as np
import pytest

import vitreous
from results.conftest import distances
from vitreous.errors import VitreousError
from vitreous.results import Result


@pytest.fixture(scope="module")
def cka() -> Result:
    data = vitreous.data.load("world:shapes", split="test", size=16)
    models = {"net": "nano:resnet", "vit": "nano:vit"}
    return vitreous.inspect(models, data, {"cka": {"sites": ("out", "branch")}})["cka"]


def test_a_matrix_of_layers(cka: Result) -> None:
    matrix = cka.between("vit", "net")
    assert (matrix.index.name, matrix.columns.name) == ("vit", "net")
    assert matrix.index[0] == "patch_embed (branch)"
    assert "blocks.0.attn (branch)" in matrix.index
    assert list(matrix.columns[:2]) == ["stem (branch)", "stem"]
    cells = matrix.to_dict()
    for row in cka.table[cka.table["across"]].to_dict("records"):
        assert cells[row["layer"]][row["other_layer"]] == row["value"]
    assert not matrix.isna().any().any()


def test_the_other_way_round_is_the_transpose(cka: Result) -> None:
    np.testing.assert_array_equal(cka.between("net", "vit"), cka.between("vit", "net").T)


def test_a_model_with_itself(cka: Result) -> None:
    matrix = cka.between("vit")
    assert matrix.equals(cka.between("vit", "vit"))
    np.testing.assert_allclose(np.diag(matrix), 1)
    np.testing.assert_array_equal(matrix, matrix.T)
    assert (cka.between("vit", column="low") <= matrix + 1e-9).all().all()


def test_mistakes(cka: Result) -> None:
    with pytest.raises(VitreousError, match=r"no model 'vitt'\. Did you mean vit\? This result "):
        cka.between("vitt", "net")
    with pytest.raises(VitreousError, match=r"no column 'vale'. Did you mean value"):
        cka.between("vit", column="vale")
    alone = cka.select((cka.table["pair"] == "vit").to_numpy())
    with pytest.raises(VitreousError, match=r"compares vit only; inspect both models together"):
        alone.between("vit", "net")
    apart = cka.select((cka.table["within"]).to_numpy())
    with pytest.raises(VitreousError, match="has 'vit' and 'net' but not their pair"):
        apart.between("vit", "net")
    with pytest.raises(VitreousError, match="'attention_distance' does not compare pairs"):
        distances("vit").between("vit", "vit")
