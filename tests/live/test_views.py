"""What the explorer shows is what the API computes, for models of every kind."""

from __future__ import annotations

import base64
import gc
import itertools
import json
import tracemalloc
from functools import cache
from typing import Any

import numpy as np
import pytest
import timm
import torch
from torch import Tensor

import vitreous
from live.browsing import SMALL
from live.test_server import unpacked
from specimen.zoo import opened
from vitreous.errors import VitreousError
from vitreous.explorer.edits import BOX, possible_edits
from vitreous.explorer.opening import open_explorer
from vitreous.explorer.panels import Basis
from vitreous.explorer.state import WHATS, parse_state
from vitreous.explorer.views import Explorer
from vitreous.measure.photo_map import MapChoice, photo_map
from vitreous.measure.subject import logits
from vitreous.specimen.layout import BatchAxis, Layout
from vitreous.specimen.observe import Feature
from vitreous.specimen.rerun import Stopped
from vitreous.specimen.specimen import Specimen

MODELS = ("nano:vit", "nano:resnet", "vit", "swin", "convnext", "resnet18")


@cache
def explorer_of(*names: str) -> Explorer:
    models = {name: name if ":" in name else opened(name)[1] for name in names}
    return open_explorer(models, limit=24, device="cpu")


def state(image: str = "d1", **more: Any) -> Any:
    return parse_state({"image": image, **more})


def edit(unit: str, what: str = "off", model: int = 0) -> dict[str, Any]:
    return {"model": model, "unit": unit, "what": what}


def pixels(explorer: Explorer, model: int = 0, row: int = 1) -> Tensor:
    subject = explorer.models[model].subject
    return subject.prepare(explorer.models[model].data.images[row][None])


def shares(specimen: Specimen, images: Tensor) -> Tensor:
    with torch.no_grad():
        scores = logits(specimen(images))
    assert scores is not None
    return scores[0].double().softmax(0)


def chosen_edits(specimen: Specimen) -> list[tuple[str, str]]:
    """Every kind of edit at the first and the last unit that can take it."""
    found: list[tuple[str, str]] = []
    possible = possible_edits(specimen)
    for what in WHATS:
        units = [name for name, whys in possible.items() if not whys[what]]
        found += [(name, what) for name in dict.fromkeys(units[:1] + units[-1:])]
    return found


def by_hand(specimen: Specimen, unit: str, what: str, images: Tensor) -> Specimen:
    """The edit as a user would write it."""
    if what == "off":
        return specimen.without(unit)
    if what == "skip":
        return specimen.without_skip(unit)
    if what == "mean":
        return specimen.with_attention(unit, specimen.mean_attention([images]))
    return specimen.with_attention(unit, "uniform" if what == "uniform" else "uniform 3x3")


@pytest.mark.parametrize("name", MODELS)
def test_predictions_and_attention_after_each_edit(name: str) -> None:
    explorer = explorer_of(name)
    model = explorer.models[0]
    specimen, images = model.subject.specimen, pixels(explorer)
    everything = model.subject.prepare(model.data.images)
    before = shares(specimen, images)
    for unit, what in chosen_edits(specimen):
        asked = state(edits=[edit(unit, what)], query=[0.4, 0.6])
        found = explorer.view(asked)["models"][0]
        edited = by_hand(specimen, unit, what, everything)
        after = shares(edited, images)
        assert found["refused"] == []
        # the mean over images is summed in other batches than here
        close = {"atol": 1e-6, "rtol": 1e-4} if what == "mean" else {"atol": 0, "rtol": 0}
        for row in found["classes"]:
            torch.testing.assert_close(row["after"], float(after[row["index"]]), **close)
            assert row["before"] == row["clean"] == before[row["index"]]
        assert [row["index"] for row in found["before"]] == before.topk(5).indices.tolist()
        header, maps = unpacked(explorer.attention(asked))
        seen = edited.observe(images, ("attention",))
        for entry, values in zip(header["models"][0], maps, strict=True):
            attention = seen[entry["unit"]].attention
            assert attention is not None
            rows, columns = attention.query_grid
            row, column = int(0.4 * rows), int(0.6 * columns)
            assert entry["query"] == [row, column]
            token = attention.prefix + row * columns + column
            expected = attention.dense()[0, :, token]
            np.testing.assert_allclose(values, expected.detach(), atol=1e-5)


def test_windows_and_coarse_keys_are_where_they_belong() -> None:
    explorer = explorer_of("swin")
    _, maps = unpacked(explorer.attention(state(query=[0.0, 0.99])))
    first = maps[0][0].reshape(14, 14)
    assert first[:7, 7:].sum() == pytest.approx(1, abs=1e-5)  # the window at the upper right


def test_several_edits_and_their_order() -> None:
    explorer = explorer_of("nano:vit")
    specimen, images = explorer.models[0].subject.specimen, pixels(explorer)
    names = ["blocks.4.mlp", "blocks.0.attn", "blocks.2.attn"]
    whats = ["off", "skip", "box"]
    found = explorer.view(state(edits=[edit(*each) for each in zip(names, whats, strict=True)]))
    edited = specimen.without(names[0]).without_skip(names[1]).with_attention(names[2], BOX)
    top = found["models"][0]["after"]
    after = shares(edited, images)
    assert [row["share"] for row in top] == after.topk(5).values.tolist()
    assert [each["unit"] for each in found["models"][0]["edits"]] == names


def test_only_what_lies_behind_the_edit_is_computed_and_nothing_twice() -> None:
    explorer = open_explorer("nano:vit", limit=8, device="cpu")
    asked = [state(edits=[edit(f"blocks.{i}.attn")]) for i in (5, 1)]
    computed = [explorer.view(each)["models"][0]["computed"] for each in asked]
    assert 0 < computed[0] < 0.25 < computed[1] < 1
    assert explorer.view(asked[0])["models"][0]["computed"] == 0
    two = state(edits=[edit("blocks.1.attn"), edit("blocks.5.attn")])
    assert explorer.view(two)["models"][0]["computed"] == pytest.approx(computed[0])


def test_a_click_needs_no_forward_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    explorer = explorer_of("nano:vit")
    asked = state(edits=[edit("blocks.3.mlp")])
    explorer.view(asked)
    monkeypatch.setattr("vitreous.specimen.rerun.Runner._execute", None)
    for query in ("class", [0.1, 0.9], [1, 1]):
        clicked = state(edits=[edit("blocks.3.mlp")], query=query)
        header, _ = unpacked(explorer.attention(clicked))
        assert len(header["models"][0]) == 6
        unpacked(explorer.rollout(clicked))


def test_memory_is_bounded() -> None:
    opened_explorer = explorer_of("nano:vit")
    subjects = [each.subject for each in opened_explorer.models]
    explorer = Explorer(subjects, opened_explorer.data, memory=2 << 20)
    wanted = {}
    for row in range(12):
        wanted[row] = explorer.view(state(f"d{row}"))["models"][0]["after"]
    assert explorer.kept_bytes <= 2 << 20
    assert {row: explorer.view(state(f"d{row}"))["models"][0]["after"] for row in wanted} == wanted


def test_memory_of_edited_graphs_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A recording keeps its edited model, which takes more than the numbers of a small one."""
    monkeypatch.setattr("vitreous.explorer.models.SPECIMENS", 1)
    opened_explorer = explorer_of("nano:vit")
    subjects = [each.subject for each in opened_explorer.models]
    explorer = Explorer(subjects, opened_explorer.data, memory=4 << 20)
    units = [unit.name for unit in subjects[0].specimen.units if unit.skip]
    pairs = [[edit(one), edit(other)] for one, other in itertools.permutations(units, 2)]
    explorer.view(state(edits=pairs[0]))
    gc.collect()
    tracemalloc.start()  # counts what is Python's, so not the numbers
    try:
        for edits in pairs[1:8]:
            explorer.view(state(edits=edits))
        gc.collect()
        graphs, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    numbers = sum(each.nbytes for each in explorer._recordings._values.values())
    assert graphs + numbers < 4 << 20


def test_an_edit_that_is_impossible_is_refused_with_a_reason() -> None:
    explorer = explorer_of("nano:vit")
    edits = [
        edit("patch_embed"), edit("blocks.0.mlp", "uniform"), edit("blocks.1.attn"),
        edit("blocks.1.attn", "uniform"), edit("blocks.2.mlp"),
    ]  # fmt: skip
    found = explorer.view(state(edits=edits))["models"][0]
    assert [each["unit"] for each in found["edits"]] == ["blocks.1.attn", "blocks.2.mlp"]
    whys = {(each["edit"]["unit"], each["edit"]["what"]): each["why"] for each in found["refused"]}
    assert "nothing of the image would pass" in whys["patch_embed", "off"]
    assert whys["blocks.0.mlp", "uniform"] == "It has no attention."
    assert "earlier edit removed" in whys["blocks.1.attn", "uniform"]


@pytest.mark.parametrize("name", ["nano:alternet", "cait", "mixer"])
def test_edits_are_offered_exactly_where_they_work(name: str) -> None:
    specimen = vitreous.open(name) if ":" in name else opened(name)[1]
    images = torch.randn(1, *specimen.anatomy.image)
    units = specimen.units
    attends = any(unit.kind == "attention" for unit in units)
    means = specimen.mean_attention([images]) if attends else {}
    possible = possible_edits(specimen)
    for unit in (*units[:4], *units[len(units) // 2 :][:2], *units[-3:]):
        for what, why in possible[unit.name].items():
            if what == "off" and why:
                continue  # it can be made, and leaves nothing of the image
            try:
                if what == "mean":
                    specimen.with_attention(unit.name, means)
                else:
                    by_hand(specimen, unit.name, what, images)
            except VitreousError:
                assert why, (unit.name, what)
            else:
                assert not why, (unit.name, what, why)


def test_edits_are_mirrored_at_the_same_depth() -> None:
    explorer = explorer_of("vit", "nano:vit")
    edits = [edit("blocks.1.attn"), edit("blocks.3.mlp", "skip", model=1)]
    plain = explorer.view(state(edits=edits))["models"]
    assert [[each["unit"] for each in model["edits"]] for model in plain] == [
        ["blocks.1.attn"], ["blocks.3.mlp"],
    ]  # fmt: skip
    mirrored = explorer.view(state(edits=edits, mirror=True))["models"]
    # depths: blocks.1.attn of 2 blocks is at 0.6, blocks.3.mlp of 6 at 0.62
    assert [(each["unit"], each["what"], each["mirrored"]) for each in mirrored[0]["edits"]] == [
        ("blocks.1.attn", "off", False), ("blocks.1.mlp", "skip", True),
    ]  # fmt: skip
    assert [(each["unit"], each["mirrored"]) for each in mirrored[1]["edits"]] == [
        ("blocks.3.attn", True), ("blocks.3.mlp", False),
    ]  # fmt: skip


def test_edits_are_mirrored_to_other_kinds_where_there_is_none_of_the_same() -> None:
    explorer = explorer_of("nano:vit", "nano:resnet")
    edits = [edit("blocks.2.attn"), edit("blocks.2.attn", "uniform"), edit("blocks.2.mlp")]
    found = explorer.view(state(edits=edits[:1] + edits[2:], mirror=True))["models"][1]
    assert all(each["mirrored"] and each["what"] == "off" for each in found["edits"])
    units = explorer.models[1].subject.specimen.anatomy
    depth = explorer.models[0].subject.specimen.anatomy["blocks.2.attn"].depth
    there = units[found["edits"][0]["unit"]]
    assert there.kind == "conv"
    convolutions = [unit for unit in units if unit.kind == "conv"]
    assert abs(there.depth - depth) == min(abs(unit.depth - depth) for unit in convolutions)
    refused = explorer.view(state(edits=edits[1:2], mirror=True))["models"][1]
    assert refused["edits"] == []
    assert "nano:resnet has no unit like 'blocks.2.attn'" in refused["refused"][0]["why"]


def test_the_mean_is_averaged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    explorer = open_explorer("nano:vit", limit=24, device="cpu")
    model = explorer.models[0]
    calls: list[int] = []
    plain = Specimen.mean_attention

    def counted(*given: Any) -> dict[str, Tensor]:
        calls.append(1)
        return plain(*given)

    monkeypatch.setattr(Specimen, "mean_attention", counted)
    for unit in ("blocks.0.attn", "blocks.3.attn"):
        explorer.view(state(edits=[edit(unit, "mean")]))
    assert calls == [1]
    expected = plain(model.subject.specimen, [model.subject.prepare(model.data.images)])
    torch.testing.assert_close(model.mean_attention("blocks.3.attn"), expected["blocks.3.attn"])


def test_cancelled_views_stop_and_leave_nothing_half() -> None:
    explorer = open_explorer("nano:vit", limit=24, device="cpu")
    asked = 0

    def cancelled() -> bool:
        nonlocal asked
        asked += 1
        return asked > 30

    changed = state(changes={"low_pass": 0.5}, edits=[edit("blocks.1.attn", "mean")])
    with pytest.raises(Stopped):
        explorer.view(changed, cancelled)
    after = explorer.view(changed)["models"][0]["after"]
    assert (
        after
        == open_explorer("nano:vit", limit=24, device="cpu").view(changed)["models"][0]["after"]
    )


def test_rollout_is_that_of_show() -> None:
    explorer = explorer_of("nano:vit")
    header, maps = unpacked(explorer.rollout(state()))
    assert header["why"] == [""]
    subject = explorer.models[0].subject
    for entry, values in zip(header["models"][0], maps, strict=True):
        shown, _ = photo_map(subject, pixels(explorer), MapChoice(entry["unit"], rollout=True))
        assert shown is not None
        placed = values[0, entry["prefix"] :].reshape(entry["keys"])
        np.testing.assert_allclose(placed, shown.values, atol=1e-6)
    assert "no attention" in unpacked(explorer_of("nano:resnet").rollout(state()))[0]["why"][0]
    assert "grid changes" in unpacked(explorer_of("swin").rollout(state()))[0]["why"][0]


def test_weights_that_are_no_shares_are_left_out() -> None:
    """Heads that CaiT mixes behind its softmax have a mean with negative weights."""
    explorer = explorer_of("cait")
    whole, _ = unpacked(explorer.attention(state()))
    [first, *others] = [each["unit"] for each in whole["models"][0]]
    asked = state(edits=[edit(first, "mean")])
    assert explorer.view(asked)["models"][0]["refused"] == []
    header, _ = unpacked(explorer.attention(asked))
    assert [each["unit"] for each in header["models"][0]] == others
    assert "no shares" in unpacked(explorer.rollout(asked))[0]["why"][0]


def test_what_is_not_finite_is_left_out() -> None:
    """A model whose numbers overflow halfway; the layers before that are shown."""
    model = timm.create_model(**SMALL["vit"], num_classes=10)
    model.blocks[1].mlp.fc1.weight.data *= 1e30
    explorer = open_explorer({"huge": model}, limit=2, image=64, device="cpu")
    assert "not finite" in explorer.view(state())["models"][0]["why"]
    header, _ = unpacked(explorer.attention(state()))
    assert [each["unit"] for each in header["models"][0]] == ["blocks.0.attn", "blocks.1.attn"]
    header, _ = unpacked(explorer.rollout(state()))
    assert "blocks.2.attn is not finite" in header["why"][0]
    for unit, finite in (("blocks.0.mlp", True), ("blocks.3.mlp", False)):
        [found] = explorer.stream(state(unit={"model": 0, "name": unit}))["models"]
        json.dumps(found, allow_nan=False)
        assert ("why" in found) != finite


def test_the_stream_of_a_unit() -> None:
    explorer = explorer_of("nano:vit", "nano:resnet")
    asked = state(unit={"model": 0, "name": "blocks.2.mlp"}, edits=[edit("blocks.1.attn")])
    vit, resnet = explorer.stream(asked)["models"]
    specimen, images = explorer.models[0].subject.specimen, pixels(explorer)
    for panel, each in ((vit, specimen.without("blocks.1.attn")), (vit["before"], specimen)):
        out = each.observe(images, ("out",))["blocks.2.mlp"].out
        assert out is not None
        np.testing.assert_allclose(
            panel["norm"]["values"], out.map[0].norm(dim=0).detach().flatten(), rtol=1e-5
        )
        spectrum = np.fft.fft2(out.map[0].detach().double().numpy())
        diagonal = np.log(np.abs(spectrum[:, range(5), range(5)]) + 1e-6).mean(0)
        np.testing.assert_allclose(
            panel["spectrum"]["amplitude"], diagonal - diagonal[0], atol=1e-4
        )
        assert panel["spectrum"]["frequency"] == [0, 0.25, 0.5, 0.75, 1]
        assert len(base64.b64decode(panel["colours"]["rgb"])) == 8 * 8 * 3
    assert resnet["unit"].startswith("stages")
    head = explorer.stream(state(unit={"model": 0, "name": "head"}))["models"][0]
    assert head["why"] == "It hands on no feature map."


def test_colours_do_not_flip() -> None:
    """Principal components have no sign of their own; the same map has the same colours, and so
    has one whose components were computed from its mirror image."""
    drawn = torch.randn(1, 6, 8, 8, generator=torch.Generator().manual_seed(1))
    layout = Layout(BatchAxis(0, 1, True), (3, 4), None, (), (8, 8), 6)
    one, other = Feature(drawn, layout), Feature(drawn.flip(-1), layout)
    colours = [Basis.of(each).colours(one) for each in (one, other)]
    assert np.abs(colours[0].astype(int) - colours[1]).max() <= 1
    explorer = explorer_of("nano:vit")
    unit = {"model": 0, "name": "blocks.4.mlp"}
    panels = [
        explorer.stream(state(unit=unit, changes={"low_pass": cut}))["models"][0]
        for cut in (1, 0.97, 0.94)
    ]
    rgb = [np.frombuffer(base64.b64decode(each["colours"]["rgb"]), np.uint8) for each in panels]
    assert np.corrcoef(rgb[0], rgb[1])[0, 1] > 0.95
    assert np.corrcoef(rgb[0], rgb[2])[0, 1] > 0.9
