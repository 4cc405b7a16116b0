"""Questions about units, asked of models that others made: the same code for all of them, weights
as they come."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

import vitreous
from specimen import zoo
from vitreous.data.dataset import Dataset
from vitreous.specimen.specimen import Specimen

FAMILIES = {"vit": 64, "swin": 56, "convnext": 64, "tv resnet": 64, "hf vit": 32}
IMAGES = 8
every = pytest.mark.parametrize("family", FAMILIES)


@cache
def opened(family: str) -> Specimen:
    return vitreous.open(zoo.build(family), image=FAMILIES[family])


@cache
def data(family: str, split: str, classes: int) -> Dataset:
    generator = torch.Generator().manual_seed(len(split))
    images = torch.randint(0, 256, (IMAGES, 3, 32, 32), dtype=torch.uint8, generator=generator)
    names = tuple(f"class {i}" for i in range(classes))
    return Dataset(images, torch.arange(IMAGES) % classes, names, "noise", split)


def outputs(family: str) -> int:
    with torch.no_grad():
        output = opened(family)(torch.zeros(1, 3, FAMILIES[family], FAMILIES[family]))
    return zoo.first_tensor(output).shape[1]


def asked(family: str, name: str, **options: Any) -> vitreous.Result:
    """With as many classes as the model has."""
    sets = {split: data(family, split, outputs(family)) for split in ("train", "test")}
    return vitreous.analyse({family: opened(family)}, sets, {name: options}, batch=32)[name]


@every
def test_lesion(family: str) -> None:
    found = asked(family, "lesion")
    inner = [unit.name for unit in opened(family).units if unit.skip]
    assert list(found.table["unit"]) == inner
    assert found.table["rise"].abs().min() > 0
    assert set(found.about["left_out"][family]) == {
        unit.name for unit in opened(family).units
    } - set(inner)


def test_lesions_of_attention_and_positions() -> None:
    for family, tables in (("vit", 1), ("swin", 4), ("hf vit", 1)):
        attending = [unit.name for unit in opened(family).units if unit.kind == "attention"]
        found = asked(family, "lesion", what="attention").table
        assert list(found["unit"]) == [name for name in attending for _ in range(3)]
        assert found["rise"].abs().min() > 0
        masked = asked(family, "lesion", what="positions").table
        assert len(masked) == tables
        assert masked["rise"].abs().min() > 0


@every
def test_linear_probe(family: str) -> None:
    found = asked(family, "linear_probe", shots=(1,) if family == "hf vit" else ())
    own = [unit for unit in opened(family).units if unit.kind != "head"]
    assert list(dict.fromkeys(found.table["unit"])) == [unit.name for unit in own]
    tokens = 3 if "class" in own[0].prefix else 2
    assert len(found.table) == len(own) * tokens * (2 if family == "hf vit" else 1)
    assert found.table["value"].between(0, 1).all()
    assert found.table["penalty"].gt(0).all()


@every
def test_erf(family: str) -> None:
    found = asked(family, "erf", positions=("centre", "upper left"))
    inner = [unit for unit in opened(family).units if unit.grid is not None]
    assert list(found.table["unit"]) == [unit.name for unit in inner for _ in range(2)]
    assert found.table["relative"].gt(0).all()
    stem, last = found.table["value"].iloc[0], found.table["value"].iloc[-2]
    assert stem < last


@every
def test_similarity_to(family: str) -> None:
    """To the same model with other weights."""
    pair = {"changed": changed(family), "model": opened(family)}
    table = vitreous.analyse(pair, data(family, "test", 2), ["similarity_to"])[
        "similarity_to"
    ].table
    assert list(table["unit"]) == [unit.name for unit in opened(family).units]
    assert table["value"].between(-1, 1).all()
    assert not np.allclose(table["value"], 1)


@every
def test_ensemble(family: str) -> None:
    """With the same model with other weights; the log of a mean is never below the mean of logs."""
    pair = {"changed": changed(family), "model": opened(family)}
    table = vitreous.analyse(pair, data(family, "test", outputs(family)), ["ensemble"])[
        "ensemble"
    ].table
    nll = table[table["single"]].set_index("model")["nll"]
    assert set(pair) < set(nll.index)
    assert nll["changed"] != nll["model"]
    assert nll["ensemble"] < (nll["changed"] + nll["model"]) / 2


@cache
def changed(family: str) -> Specimen:
    specimen = copy.deepcopy(opened(family))
    with torch.no_grad():
        for i, parameter in enumerate(specimen.parameters()):
            generator = torch.Generator().manual_seed(i)
            parameter.data = parameter + 0.3 * parameter.std() * torch.randn(
                parameter.shape, generator=generator
            )
    return specimen
