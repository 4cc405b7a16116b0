"""Partial runs are equal to complete ones to the last bit, and compute only what they must."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import cache, partial

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import vitreous
from specimen.toys import Block, Choosy, Transformer, open_toy, pictures
from specimen.zoo import first_tensor, images, opened
from vitreous.errors import VitreousError
from vitreous.specimen.observe import AttentionMap
from vitreous.specimen.rerun import Recording, Runner, Stopped
from vitreous.specimen.specimen import Specimen

Edit = Callable[[Specimen], Specimen]
MODELS = ("nano:vit", "nano:resnet", "nano:convit", "vit", "swin", "convnext", "resnet18", "cait")
SEVERAL = ("nano:alternet", "deit", "convit", "hf vit")


@cache
def specimen_of(name: str) -> Specimen:
    return vitreous.open(name) if name.startswith("nano:") else opened(name)[1]


@cache
def whole(name: str) -> Recording:
    specimen = specimen_of(name)
    return Runner(specimen).record(images(specimen))


def edits_of(specimen: Specimen) -> Iterator[tuple[str, Edit]]:
    """Every kind of edit at the first, the middle and the last unit that it suits."""

    def some(names: list[str]) -> list[str]:
        return list(dict.fromkeys(names[place] for place in (0, len(names) // 2, -1) if names))

    units = specimen.units
    for name in some([unit.name for unit in units]):
        yield f"off {name}", lambda each, name=name: each.without(name)  # type: ignore[misc]
    for name in some([unit.name for unit in units if unit.skip]):
        yield f"skip {name}", lambda each, name=name: each.without_skip(name)  # type: ignore[misc]
    for what, name in itertools.product(
        ("uniform", "uniform 3x3", "given"), some([unit.name for unit in units if unit.weights])
    ):
        if what == "uniform 3x3" and specimen.anatomy[name].reach in ("class", "reduced"):
            continue
        seen = specimen.observe(images(specimen, 1), ("attention",), [name])[name].attention
        assert seen is not None
        drawn = torch.rand(seen.values.shape[1:], generator=torch.Generator().manual_seed(3))
        fixed = drawn / drawn.sum(-1, keepdim=True) if what == "given" else what
        yield f"{what} {name}", partial(Specimen.with_attention, units=name, attention=fixed)


@torch.no_grad()
def check(recording: Recording, specimen: Specimen) -> None:
    """Output and attention are those of the specimen itself."""
    batch = recording.images
    assert torch.equal(first_tensor(recording.output), first_tensor(specimen(batch)))
    seen = specimen.observe(batch, ("attention", "out"))
    attention: dict[str, AttentionMap] = {}
    for name, sites in seen.items():
        if sites.attention is not None:
            attention[name] = sites.attention
        out = recording.feature(name)
        assert (out is None) == (sites.out is None)
        if out is not None and sites.out is not None:
            assert torch.equal(out.raw, sites.out.raw)
            assert out.layout is sites.out.layout
    assert recording.attention.keys() == attention.keys()
    for name, expected in attention.items():
        assert torch.equal(recording.attention[name].values, expected.values), name
        assert recording.attention[name].places is expected.places


@pytest.mark.parametrize("name", MODELS)
def test_single_edits_are_equal_to_the_full_run(name: str) -> None:
    specimen = specimen_of(name)
    check(whole(name), specimen)
    assert whole(name).complete == ""
    for what, edit in edits_of(specimen):
        edited = edit(specimen)
        recording = Runner(edited).rerun(whole(name))
        check(recording, edited)
        assert recording.complete == "", what
        first = specimen.anatomy[what.split()[-1]].index == 0
        assert recording.computed < whole(name).computed + first, what


@pytest.mark.parametrize("name", [*MODELS, *SEVERAL])
def test_edits_upon_edits_are_equal_to_the_full_run(name: str) -> None:
    specimen = specimen_of(name)
    chosen = [edit for _, edit in edits_of(specimen)][1::2]
    recording = whole(name)
    base, specimens = recording, [specimen]
    for edit in chosen:
        try:
            specimens.append(edit(specimens[-1]))
        except VitreousError:  # an earlier edit has removed what this one changes
            continue
        upon, afresh = Runner(specimens[-1]).rerun(recording), Runner(specimens[-1]).rerun(base)
        assert upon.computed <= afresh.computed
        assert torch.equal(first_tensor(upon.output), first_tensor(afresh.output))
        recording = upon
    check(recording, specimens[-1])
    assert len(specimens) > 2
    check(Runner(specimen).rerun(recording), specimen)  # and back again


def test_only_operations_that_depend_on_the_edit_are_computed() -> None:
    specimen = specimen_of("nano:vit")
    recording = whole("nano:vit")
    names = [unit.name for unit in specimen.units if unit.kind == "attention"]
    counts = [Runner(specimen.without(name)).rerun(recording).computed for name in names]
    assert counts == sorted(counts, reverse=True)
    assert len(set(counts)) == len(counts)
    # Without the last MLP: the sum that it leaves behind, and the head.
    last = [unit for unit in specimen.units if unit.kind == "mlp"][-1]
    head = [unit for unit in specimen.units if unit.kind == "head"][-1]
    ends = specimen.wiring(last.name)
    nodes = list(specimen.without(last.name).module.graph.nodes)
    assert ends is not None
    after = [node.name for node in nodes].index(ends.after)
    behind = [node for node in nodes[after:] if node.op == "call_function"]
    found = Runner(specimen.without(last.name)).rerun(recording).computed
    assert found == len(behind) < recording.computed / 4, head
    assert Runner(specimen).rerun(recording).computed == 0


def test_the_operations_are_counted_as_they_are_called() -> None:
    class Linears(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()  # type: ignore[no-untyped-call]
            self.count = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            self.count += func in (torch.ops.aten.addmm.default, torch.ops.aten.mm.default)
            return func(*args, **(kwargs or {}))

    specimen = specimen_of("vit")
    runner = Runner(specimen.without("blocks.1.attn"))
    recording = whole("vit")
    with Linears() as full:
        specimen(recording.images)
    with Linears() as partial_run:
        runner.rerun(recording)
    assert full.count == 9  # qkv, projection and two of the MLP in each block, and the head
    assert partial_run.count == 3  # the MLP of the last block, and the head


def test_a_plan_serves_other_images() -> None:
    specimen = specimen_of("nano:vit")
    edited = Runner(specimen.without("blocks.1.mlp"))
    edited.rerun(whole("nano:vit"))
    other = Runner(specimen).record(images(specimen, 3) + 1)
    check(edited.rerun(whole("nano:vit").runner.record(other.images)), edited.specimen)


def test_another_model_or_other_weights_share_nothing() -> None:
    torch.manual_seed(0)
    one, two = (open_toy(Transformer(Block(), Block())) for _ in range(2))
    recording = Runner(one).record(pictures())
    found = Runner(two.without("blocks.1.attn")).rerun(recording)
    check(found, two.without("blocks.1.attn"))
    assert found.computed == found.runner.operations


def test_a_run_stops_between_two_operations() -> None:
    asked = 0

    def cancelled() -> bool:
        nonlocal asked
        asked += 1
        return asked > 5

    runner = Runner(specimen_of("nano:vit"))
    with pytest.raises(Stopped):
        runner.record(whole("nano:vit").images, cancelled)
    assert asked == 6
    check(runner.record(whole("nano:vit").images, lambda: False), runner.specimen)


def test_models_that_draw_random_numbers_run_completely() -> None:
    class Noisy(nn.Module):
        def forward(self, tokens: Tensor) -> Tensor:
            return tokens + nn.functional.dropout(tokens, 0.5, training=True)

    with pytest.warns(UserWarning, match="random numbers"):
        specimen = open_toy(Transformer(Block(), Noisy(), Block()))
    edited = Runner(specimen.without("blocks.2.mlp"))
    torch.manual_seed(1)
    recording = Runner(specimen).record(pictures())
    torch.manual_seed(2)
    found = edited.rerun(recording)
    torch.manual_seed(2)
    assert torch.equal(first_tensor(found.output), edited.specimen(pictures()))
    assert "random numbers" in found.complete
    assert found.computed == edited.operations


def test_functions_of_yours_run_completely() -> None:
    specimen = open_toy(Transformer(Block(), Block()))
    recording = Runner(specimen).record(pictures())
    edited = specimen.with_branch("blocks.0.attn", lambda before, branch: branch.mul_(2))
    found = Runner(edited.without("blocks.1.mlp")).rerun(recording)
    assert "function of yours" in found.complete
    check(found, edited.without("blocks.1.mlp"))
    check(recording, specimen)


def test_units_named_by_hand_run_completely() -> None:
    torch.manual_seed(0)
    specimen = vitreous.open(Choosy(), image=16, units=["stem", "body"])
    recording = Runner(specimen).record(pictures())
    found = Runner(specimen.without("body")).rerun(recording)
    assert torch.equal(found.output, specimen.without("body")(pictures()))
    assert "named by hand" in found.complete
    assert found.attention == {}
    assert found.feature("body") is None


class Masked(nn.Module):
    """Fills a mask in place, before its use or, if it is late, between two uses."""

    def __init__(self, late: bool) -> None:
        super().__init__()
        self.late, self.mix = late, nn.Linear(8, 8)

    def forward(self, tokens: Tensor) -> Tensor:
        mask = torch.eye(16)
        if self.late:
            tokens = tokens + self.mix(mask @ tokens)
        mask[2:5, 3].fill_(0.5)
        return tokens + self.mix(mask @ tokens)


@pytest.mark.parametrize("late", [False, True])
def test_constants_that_are_filled_in_place(late: bool) -> None:
    model = Transformer(Masked(late), Block(), Masked(late), Block())
    specimen = open_toy(model)
    same = specimen.with_attention("blocks.3.attn", "uniform").without("blocks.3.attn")
    same = same.without("blocks.3.mlp")
    recording = Runner(specimen).record(pictures())
    check(recording, specimen)
    check(Runner(same).rerun(recording), same)
    assert (recording.complete != "") == late
    model.blocks[3] = nn.Identity()
    assert torch.equal(same(pictures()), model.eval()(pictures()))


def test_the_size_in_memory() -> None:
    recording = whole("vit")
    tokens, attention = 2 * 17 * 192 * 4, 2 * 3 * 17 * 17 * 4
    least = 2 * attention + 4 * tokens + recording.images.nbytes
    assert least <= recording.nbytes < 3 * least
