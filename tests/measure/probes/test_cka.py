"""CKA through an inspection: what a peer has got wrong, by name, and against the book on features
taken by hand."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import vitreous
from measure.probes.noise import noise
from measure.probes.test_alignment import cka_by_the_book
from specimen.toys import WIDTH, Block, Convolutional, Residual, Transformer, settled
from vitreous.data.dataset import Dataset
from vitreous.data.subsets import class_balanced_order
from vitreous.errors import UnknownName, VitreousError
from vitreous.measure.probes.cka import CKA
from vitreous.measure.subject import subjects
from vitreous.results import Result


def vit() -> nn.Module:
    return settled(Transformer(Block(), Block(), Block(), cls=True))


def resnet() -> nn.Module:
    return settled(
        Convolutional(Residual(), Residual(WIDTH, 2 * WIDTH, 2), Residual(2 * WIDTH, 2 * WIDTH))
    )


def ask(models: object, data: Dataset | None = None, **options: object) -> Result:
    """`shard` and `batch` go to the inspection, the rest to the probe."""
    how = {name: options.pop(name) for name in ("shard", "batch", "seed") if name in options}
    data = noise(24) if data is None else data
    return vitreous.inspect(models, data, {"cka": options}, image=16, **how)["cka"]  # type: ignore[arg-type]


def shown(data: Dataset) -> Dataset:
    """In the order in which an inspection takes the images."""
    return data.take(torch.from_numpy(class_balanced_order(data.labels.numpy(), 0)))


def square(result: Result, one: str, other: str) -> np.ndarray:
    """Rows of model `one`, columns of model `other`, in the order of the table."""
    table = result.table[(result.table["model"] == one) & (result.table["other_model"] == other)]
    wide = table.pivot_table("value", "layer", "other_layer", sort=False, dropna=False)
    return wide.to_numpy()


def features(model: nn.Module, data: Dataset, site: str = "out") -> dict[str, Tensor]:
    (subject,) = subjects(model, image=16)
    seen = subject.specimen.observe(subject.prepare(data.images), (site,))  # type: ignore[arg-type]
    return {
        name: getattr(at, site).tokens.flatten(1)
        for name, at in seen.items()
        if getattr(at, site) is not None
    }


@pytest.mark.parametrize("estimator", ["unbiased", "biased"])
def test_by_the_book_in_minibatches(estimator: str) -> None:
    models, data = {"vit": vit(), "resnet": resnet()}, noise(24)
    result = ask(models, data, estimator=estimator, minibatch=8)
    taken = {name: features(model, shown(data)) for name, model in models.items()}
    for one, other in (("vit", "vit"), ("resnet", "resnet"), ("vit", "resnet")):
        want = [
            [cka_by_the_book(x, y, estimator, 8) for y in taken[other].values()]  # type: ignore[arg-type]
            for x in taken[one].values()
        ]
        np.testing.assert_allclose(square(result, one, other), want, atol=1e-6)
    assert result.about["minibatches"] == 3
    assert (result.table["n"] == 24).all()
    ends = result.table[["low", "value", "high"]].to_numpy()
    assert (np.diff(ends, axis=1) > -1e-9).all()


def test_one_shard_is_full_batch() -> None:
    model, data = vit(), noise(24)
    taken = list(features(model, data).values())
    want = [[cka_by_the_book(x, y) for y in taken] for x in taken]
    for batch in (24, 7):  # also where features have to wait for each other
        found = ask({"vit": model}, data, shard=24, batch=batch)
        np.testing.assert_allclose(square(found, "vit", "vit"), want, atol=1e-5)


def test_layers_are_in_order_of_computation() -> None:
    """A peer's labels follow the modules' order of definition, its rows the order of execution."""

    class Backwards(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stem, self.head = nn.Conv2d(3, WIDTH, 3, 2, 1), nn.Linear(WIDTH, 5)
            self.second, self.first = Residual(), Residual()

        def forward(self, images: Tensor) -> Tensor:
            found: Tensor = self.head(self.second(self.first(self.stem(images))).mean((2, 3)))
            return found

    model, data = settled(Backwards()), noise(24)
    result = ask({"m": model}, data)
    assert list(result.table["unit"].unique()) == ["stem", "first", "second", "head"]
    with torch.no_grad():
        images = subjects(model, image=16)[0].prepare(data.images)
        stem = model.get_submodule("stem")(images)
        first = model.get_submodule("first")(stem)
    row = result.table[(result.table["unit"] == "stem") & (result.table["other_unit"] == "first")]
    assert row["value"].item() == pytest.approx(
        cka_by_the_book(stem.flatten(1), first.flatten(1)), abs=1e-6
    )


def test_in_place_activations_do_not_alias() -> None:
    """The branch ends before `+=` and an in-place ReLU; a peer calls the two 1.000."""
    model, data = resnet(), noise(24)
    result = ask({"m": model}, data, sites=("branch", "out"))
    table = result.table[
        (result.table["layer"] == "blocks.0 (branch)") & (result.table["other_layer"] == "blocks.0")
    ]
    block = model.get_submodule("blocks.0")
    with torch.no_grad():
        before = model.get_submodule("stem")(subjects(model, image=16)[0].prepare(data.images))
        parts = {name: block.get_submodule(name) for name in ("conv1", "bn1", "conv2", "bn2")}
        branch = parts["bn2"](parts["conv2"](parts["bn1"](parts["conv1"](before)).relu()))
        want = cka_by_the_book(branch.flatten(1), (branch + before).relu().flatten(1))
    assert table["value"].item() == pytest.approx(want, abs=1e-6)
    assert want < 0.99


def test_finer_sites_in_order() -> None:
    model = vit()
    result = ask({"m": model}, sites=["hidden", "out", "norm"])
    layers = list(result.table["layer"].unique())
    assert layers[:7] == [
        "stem", "blocks.0.attn (norm)", "blocks.0.attn (hidden)", "blocks.0.attn",
        "blocks.0.mlp (norm)", "blocks.0.mlp (hidden)", "blocks.0.mlp",
    ]  # fmt: skip
    hidden = features(model, noise(24), "hidden")["blocks.0.mlp"]
    after = features(model, noise(24))["blocks.0.mlp"]
    row = result.table[
        (result.table["layer"] == layers[5]) & (result.table["other_layer"] == layers[6])
    ]
    assert row["value"].item() == pytest.approx(cka_by_the_book(hidden, after), abs=1e-6)


def test_cka_of_a_model_and_its_copy_is_one() -> None:
    model = vit()
    result = ask({"one": model, "other": copy.deepcopy(model)})
    np.testing.assert_allclose(np.diag(square(result, "one", "other")), 1, atol=1e-6)
    np.testing.assert_allclose(np.diag(square(result, "one", "one")), 1, atol=1e-12)
    np.testing.assert_allclose(
        square(result, "one", "other"), square(result, "one", "one"), atol=1e-6
    )
    across = result.table[result.table["pair"] == "one × other"]
    same = across[across["unit"] == across["other_unit"]]  # A4.24, unit by unit
    np.testing.assert_allclose(same["value"], 1, atol=1e-6)


@pytest.mark.parametrize(
    "how", [{"shard": 3}, {"shard": 12}, {"shard": 24, "batch": 10}, {"shard": 1000, "batch": 7}]
)
@pytest.mark.parametrize("minibatch", [8, None])
def test_no_number_depends_on_how_images_are_divided(
    how: dict[str, int], minibatch: int | None
) -> None:
    """Shards are larger on a GPU than on a CPU, and batches are what there is memory for."""
    model = vit()
    usual, other = (ask({"m": model}, None, minibatch=minibatch, **given) for given in ({}, how))
    for column in ("value", "low", "high", "n"):
        np.testing.assert_allclose(other.table[column], usual.table[column], atol=1e-6)
    for name in ("minibatches", "images_compared", "images_left_out"):
        assert usual.about[name] == other.about[name]
    assert usual.about["minibatches"] == (3 if minibatch else 1)


@pytest.mark.parametrize("batch", [24, 5])
def test_duplicate_images_are_left_out(batch: int) -> None:
    """Pairs of an image with its copy raise the unbiased estimate towards the biased one."""
    model, data = vit(), noise(24)
    twice = data.take(torch.tensor([*range(24), 3, 3, *range(10, 20)]))
    plain, found = (
        ask({"m": model}, data, minibatch=None),
        ask({"m": model}, twice, minibatch=None, batch=batch),
    )
    np.testing.assert_allclose(square(found, "m", "m"), square(plain, "m", "m"), atol=1e-5)
    assert (found.table["n"] == 24).all()
    assert found.about["copies_left_out"] == found.about["images_left_out"] == 12
    assert found.about["note"].startswith("12 of 36 images are copies of others and were left out")
    assert "note" not in plain.about
    taken = list(features(model, twice).values())
    assert (
        cka_by_the_book(taken[0], taken[-1]) > cka_by_the_book(taken[0][:24], taken[-1][:24]) + 0.05
    )
    same = ask(
        {"m": model}, data.take([5] * 9 + [1, 2, 3]), minibatch=None
    )  # nine times the same, and three others
    assert (same.table["n"] == 4).all()


def test_minibatches_of_odd_sizes() -> None:
    model = vit()
    apart = ask({"m": model}, minibatch=8)
    assert (
        len({*ask({"m": model}, shard=24, minibatch=None).table["value"]} & {*apart.table["value"]})
        < 5
    )
    few = ask({"m": model}, shard=24, minibatch=11)
    assert (few.about["images_compared"], few.about["images_left_out"]) == (22, 2)
    with pytest.raises(
        VitreousError, match="needs at least 4 images a minibatch, and 3 were asked for"
    ):
        ask({"m": model}, minibatch=3)


def test_shuffled_images_give_the_same_answer() -> None:
    """A peer iterates a shuffled loader once for each model: two identical models came to -0.05."""
    data = noise(24)
    mixed = data.take(torch.randperm(24))
    model = vit()
    models = {"one": model, "other": copy.deepcopy(model), "third": resnet()}
    plain, shuffled = (ask(models, each, shard=24) for each in (data, mixed))
    np.testing.assert_allclose(plain.table["value"], shuffled.table["value"], atol=1e-5)
    np.testing.assert_allclose(np.diag(square(shuffled, "one", "other")), 1, atol=1e-6)


def test_batches_accumulate() -> None:
    """A peer keeps the last batch only."""
    data = noise(24)
    model = vit()
    whole, last = (
        ask({"m": model}, each, minibatch=8)
        for each in (data, shown(data).take(torch.arange(16, 24)))
    )
    assert np.abs(whole.table["value"] - last.table["value"]).max() > 1e-3


def test_constant_and_missing_layers_are_reported() -> None:
    class Odd(nn.Module):
        """One block gives the same for all images, another is never used."""

        def __init__(self) -> None:
            super().__init__()
            self.stem, self.one, self.two = nn.Conv2d(3, WIDTH, 4, 4), Residual(), Residual()
            self.never, self.head = Residual(), nn.Linear(WIDTH, 5)

        def forward(self, images: Tensor) -> Tensor:
            found: Tensor = self.head(self.two(self.one(self.stem(images))).mean((2, 3)))
            return found

    model = settled(Odd())
    norm = model.get_submodule("two.bn2")
    with torch.no_grad():
        for parameter in norm.parameters():
            parameter.zero_()
    result = ask({"m": model}, sites=("branch", "out"))
    assert result.about["without_value"] == {
        "m": {"two (branch)": "It is the same for all images."}
    }
    empty = result.table[result.table["layer"] == "two (branch)"]
    assert empty["value"].isna().all()
    assert not result.table["layer"].str.contains("never").any()
    others = result.table[
        (result.table["layer"] != "two (branch)") & (result.table["other_layer"] != "two (branch)")
    ]
    assert others["value"].notna().all()
    result.chart()


def test_a_small_last_minibatch_is_left_out_and_reported() -> None:
    model, data = vit(), noise(19)
    result = ask({"m": model}, data, minibatch=8)
    assert result.about["images_left_out"] == 3
    assert (result.table["n"] == 16).all()
    taken = list(features(model, shown(data).take(torch.arange(16))).values())
    want = [[cka_by_the_book(x, y, batch=8) for y in taken] for x in taken]
    np.testing.assert_allclose(square(result, "m", "m"), want, atol=1e-6)


def test_too_few_images() -> None:
    with pytest.raises(VitreousError, match=r"needs at least 4 images, and there are 3\."):
        ask({"m": vit()}, noise(3))
    assert np.isfinite(ask({"m": vit()}, noise(4)).table["value"]).all()
    assert np.isfinite(ask({"m": vit()}, noise(2), estimator="biased").table["value"]).all()


def test_wrong_options() -> None:
    with pytest.raises(UnknownName, match="unbiased"):
        CKA(estimator="debiased")  # type: ignore[arg-type]
    with pytest.raises(UnknownName, match="branch"):
        CKA(sites=("brunch",))  # type: ignore[arg-type]
    with pytest.raises(UnknownName, match="attention"):
        CKA(sites=("attention",))
    with pytest.raises(VitreousError, match="no site"):
        CKA(sites=())


def test_block_structure_by_hand() -> None:
    """A4.13: stages where there are several, thirds where there is one; stem and head in none."""
    result = ask({"vit": vit(), "resnet": resnet()})
    structure = result.table[result.table["within"]].drop_duplicates("model").set_index("model")
    assert dict(structure["groups"]) == {"vit": "thirds", "resnet": "stages"}
    values = square(result, "vit", "vit")[1:-1, 1:-1]
    third = np.array([0, 0, 1, 1, 2, 2])
    pairs = [(i, j) for i in range(6) for j in range(i)]
    within = np.mean([values[i, j] for i, j in pairs if third[i] == third[j]])
    across = np.mean([values[i, j] for i, j in pairs if third[i] != third[j]])
    vit_row = structure.loc["vit"]
    assert vit_row["block_structure"] == pytest.approx(within - across)
    assert vit_row["block_structure_low"] < within - across < vit_row["block_structure_high"]
    rows = (result.table["model"] == "vit") & result.table["within"]
    drawn = result.draws("block_structure")[1:, rows.to_numpy()]
    assert np.isfinite(drawn).all()
    assert (drawn == drawn[:, :1]).all()
    assert result.table.loc[result.table["across"], "block_structure"].isna().all()


def test_two_views_and_the_model_untouched() -> None:
    model = resnet()
    state = {name: value.clone() for name, value in model.state_dict().items()}
    result = ask({"a": model, "b": vit()})
    assert [view.where for view in result.views] == ["within", "across"]
    assert len(ask({"a": model}).views) == 1
    for view in range(2):
        result.chart(view)
    for name, value in model.state_dict().items():
        assert torch.equal(value, state[name])
    copy.deepcopy(model)
