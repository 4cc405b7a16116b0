"""Anatomies written by hand, as a reading of the real models gives them, for tests that need no
model."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest

from vitreous.palette import KIND_COLOURS, REACH_GLYPHS
from vitreous.specimen.anatomy import Anatomy, Unit
from vitreous.unit_kinds import Reach

Block = Callable[[int, str, Unit], list[Unit]]


def numbered(model: str, units: Iterable[Unit]) -> Anatomy:
    listed = list(units)
    last = max(len(listed) - 1, 1)
    placed = tuple(replace(unit, index=i, depth=i / last) for i, unit in enumerate(listed))
    return Anatomy(model, (3, 224, 224), placed, sum(unit.parameters for unit in placed))


def at(stage: int, side: int, channels: int, prefix: tuple[str, ...] = ()) -> Unit:
    """A place in a model, to be filled by `replace`."""
    return Unit("", "conv", 0, stage, 0.0, (side, side), channels, prefix)


def head(stage: int, width: int = 768, name: str = "head") -> Unit:
    return Unit(name, "head", 0, stage, 0.0, None, 1000, skip=False, parameters=1000 * width + 1000)


def transformer(heads: int, reach: Reach, path: str, place: Unit) -> list[Unit]:
    width = place.channels or 0
    msa = replace(place, name=f"{path}.attn", kind="attention", heads=heads, reach=reach)
    mlp = replace(place, name=f"{path}.mlp", kind="mlp", parameters=8 * width * width + 5 * width)
    return [replace(msa, parameters=4 * width * width + 4 * width), mlp]


def vit(
    name: str, blocks: int, width: int, heads: int, prefix: tuple[str, ...], late: int = 0
) -> Anatomy:
    """`late` blocks of class attention follow, as in CaiT, and bring the class token with them."""
    place = at(1, 14, width, prefix)
    units = [
        replace(place, name="patch_embed", kind="stem", stage=0, skip=False, parameters=769 * width)
    ]
    for i in range(blocks):
        units += transformer(heads, "global", f"blocks.{i}", place)
    for i in range(late):
        units += transformer(
            heads, "class", f"blocks_token_only.{i}", replace(place, prefix=("class",))
        )
    return numbered(name, [*units, head(1, width)])


def pyramid(name: str, blocks: tuple[int, ...], block: Block) -> Anatomy:
    """Stages as Swin and ConvNeXt have them."""
    units = [replace(at(0, 56, 96), name="stem", kind="stem", skip=False, parameters=4_896)]
    for stage, number in enumerate(blocks):
        width, path = 96 * 2**stage, f"stages.{stage}"
        place = at(stage + 1, 56 // 2**stage, width)
        down = replace(
            place,
            name=f"{path}.downsample",
            kind="downsample",
            skip=False,
            parameters=2 * width * width,
        )
        units += [down] if stage else []
        for i in range(number):
            units += block(stage, f"{path}.blocks.{i}", place)
    return numbered(name, [*units, head(len(blocks))])


def swin() -> Anatomy:
    def block(stage: int, path: str, place: Unit) -> list[Unit]:
        return transformer(3 * 2**stage, "windowed", path, place)

    return pyramid("swin_tiny_patch4_window7_224", (2, 2, 6, 2), block)


def convnext() -> Anatomy:
    def block(stage: int, path: str, place: Unit) -> list[Unit]:
        return [replace(place, name=path, parameters=8 * (place.channels or 0) ** 2)]

    return pyramid("convnext_tiny", (3, 3, 9, 3), block)


def resnet(name: str, blocks: tuple[int, ...]) -> Anatomy:
    units = [
        replace(at(0, 112, 64), name="conv1", kind="stem", skip=False, parameters=9_536),
        replace(at(1, 56, 64), name="maxpool", kind="downsample", skip=False),
    ]
    for stage, number in enumerate(blocks):
        inner, path = 64 * 2**stage, f"layer{stage + 1}"
        place = replace(at(stage + 1, 56 // 2**stage, 4 * inner), parameters=17 * inner * inner)
        units.append(replace(place, name=f"{path}.0", parameters=23 * inner * inner))
        units += [replace(place, name=f"{path}.{i}") for i in range(1, number)]
    return numbered(name, [*units, head(4, 2048, "fc")])


def ragged() -> Anatomy:
    """Stages that come back and no two units alike, so that neither shrinking nor folding helps;
    every reach."""
    kinds, reaches = (
        [kind for kind in KIND_COLOURS if kind not in ("conv", "head")],
        list(REACH_GLYPHS),
    )
    units = []
    for i in range(230):
        place = replace(
            at(1 + i // 9 % 4, 40 - i // 9, 16 + 8 * i), name=f"unit.{i}", parameters=1000 * i
        )
        attends = replace(place, kind="attention", heads=1 + i % 30, reach=reaches[i // 7 % 7])
        units.append(attends if i % 7 == 1 else replace(place, kind=kinds[i % 7]))
    return numbered("ragged", units)


def bare() -> Anatomy:
    """What a reader of graphs may fail to find out is missing everywhere."""
    return numbered("bare", [Unit(f"m{i}", "attention", 0, 1, 0.0, None, None) for i in range(3)])


VIT = vit("vit_tiny_patch16_224", 12, 192, 3, ("class",))
DEEP = vit("vit_deep", 74, 1408, 16, ("class", *["register"] * 4))
RESNET = resnet("resnet50", (3, 4, 6, 3))
DRAWINGS: dict[str, list[Anatomy]] = {
    "vit": [VIT],
    "swin": [swin()],
    "resnet": [RESNET],
    "convnext": [convnext()],
    "cait": [vit("cait_xxs24_224", 24, 192, 4, (), late=2)],
    "resnet152": [resnet("resnet152", (3, 8, 36, 3))],
    "deep": [DEEP],
    "ragged": [ragged()],
    "bare": [bare()],
    "empty": [numbered("empty", [])],
    "four": [VIT, swin(), RESNET, convnext()],
    "mixed": [RESNET, DEEP, ragged()],
}


@pytest.fixture(params=list(DRAWINGS))
def anatomies(request: pytest.FixtureRequest) -> list[Anatomy]:
    """Every drawing in turn."""
    return DRAWINGS[request.param]


@pytest.fixture(
    params=[name for name, drawn in DRAWINGS.items() if len(drawn) == 1 and len(drawn[0])]
)
def anatomy(request: pytest.FixtureRequest) -> Anatomy:
    """Every single model in turn."""
    return DRAWINGS[request.param][0]


@pytest.fixture(scope="session")
def drawings() -> dict[str, list[Anatomy]]:
    """All of them by name."""
    return DRAWINGS
