"""`vitreous.open`: from a model, or its name, to a `Specimen`."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, fx, nn

from vitreous.errors import NotExportable, VitreousError, VitreousWarning
from vitreous.image_size import ImageSize
from vitreous.models.weights import weights_of
from vitreous.specimen.anatomy import Anatomy, Grid, Unit
from vitreous.specimen.attention import AttentionSite, find_attention, merged, reach_of
from vitreous.specimen.block_outputs import NORMS
from vitreous.specimen.cache import recall, remember, structure
from vitreous.specimen.dissect import Piece, dissect
from vitreous.specimen.graph import attribute, depends_on_input, first_line, op, read
from vitreous.specimen.inputs import example, image_shape
from vitreous.specimen.joins import Flow
from vitreous.specimen.observe import Wiring
from vitreous.specimen.positions import Positions
from vitreous.specimen.proof import WAY_OUT, Mismatch, mismatch, refuse
from vitreous.specimen.specimen import Specimen
from vitreous.specimen.verify import Findings, proved


def open(
    model: nn.Module | str,
    *,
    image: ImageSize | None = None,
    pretrained: bool = False,
    units: Sequence[str] | Mapping[str, str] | Literal["blocks"] | None = None,
) -> Specimen:
    """Open a model: read its graph and find what it is made of.

    `model` is a module, or a name: timm's own, `hf:` (Hugging Face id, folder or config), `tv:` (torchvision), `run:`
    or a path (a checkpoint of ours). `image` is the input size where the model does not say: a side, (height, width)
    or (channels, height, width). `pretrained` loads published weights for a name. `units` names modules by hand, for
    models whose graph cannot be read; "blocks" takes the blocks that the model repeats.
    """
    name = model if isinstance(model, str) else type(model).__name__
    if isinstance(model, str):
        from vitreous.models.loading import load

        model = load(model, pretrained=pretrained, image=image)
    if not isinstance(model, nn.Module):
        raise VitreousError(f"A model is an nn.Module or a name, not {type(model).__name__}.")
    inner = unwrapped(model)
    name = type(inner).__name__ if name == type(model).__name__ else name
    model = inner
    _check_kind(model, name)
    _check_weights(model, name)
    shape = image_shape(model, image)
    if units is not None:
        from vitreous.specimen.by_hand import by_hand

        specimen = by_hand(model, name, shape, example(model, shape), units)
    else:
        with _no_collections():
            specimen = _open(model, name, shape)
        if specimen.random:
            warnings.warn(_chance(specimen), VitreousWarning, stacklevel=2)
    specimen.trained = _trained_with(model)
    specimen.weights = weights_of(model)
    return specimen


@contextmanager
def _no_collections() -> Iterator[None]:
    """Leave the garbage collector out: a graph is many small objects, and every collection walks those of torch, too:
    a quarter of a second each time."""
    running = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if running:
            gc.enable()


def _trained_with(model: nn.Module) -> dict[str, Any]:
    """How images have to look for the model, as timm, Hugging Face and our own runs say it; nothing if it does not."""
    for name in ("trained_with", "pretrained_cfg", "default_cfg"):
        says = getattr(model, name, None)
        if isinstance(says, Mapping) and says.get("mean") and says.get("std"):
            return {
                key: tuple(says[key]) for key in ("mean", "std", "label_names") if says.get(key)
            }
    return {}


def _open(model: nn.Module, name: str, shape: tuple[int, int, int]) -> Specimen:
    """A specimen that has computed what the model computes, from the cache or read anew."""
    images = example(model, shape)
    key = structure(model, images)
    known = recall(key, model)
    if known is not None:
        module, anatomy, wiring = known
        parts = module, replace(anatomy, model=name), wiring
        findings: Findings = {}
        if _mismatch(Specimen(*parts), model, images, findings) is None:
            return Specimen(*_proved(*parts, findings))
    for attempt in range(
        2
    ):  # with another stand-in for the batch size, which may have been the trouble
        parts = _dissected(model, name, shape, read(model, images, attempt))
        specimen, findings = Specimen(*parts), {}
        found = _mismatch(specimen, model, images, findings)
        if found is None or (
            specimen.random and found.difference < float("inf")
        ):  # draws in another order
            remember(key, model, *parts)
            return Specimen(*_proved(*parts, findings))
    assert found is not None
    raise refuse(specimen, model, images, found)


def _chance(specimen: Specimen) -> str:
    places = ", ".join(specimen.random[:3]) + (", …" if len(specimen.random) > 3 else "")
    return (
        f"{specimen.anatomy.model} draws random numbers in evaluation mode, at {places}; every pass differs, and "
        "so does what is measured. Set torch.manual_seed before each pass to repeat one."
    )


def _mismatch(
    specimen: Specimen, model: nn.Module, images: Tensor, findings: Findings
) -> Mismatch | None:
    try:
        return mismatch(specimen, model, images, findings)
    except Exception as error:  # the graph fails where the model runs: as good as another answer
        return Mismatch(float("inf"), error=f"{type(error).__name__}: {first_line(error)}")


def _dissected(
    model: nn.Module, name: str, shape: tuple[int, int, int], module: fx.GraphModule
) -> tuple[fx.GraphModule, Anatomy, dict[str, Wiring]]:
    if not any(n.op == "call_function" for n in depends_on_input(module.graph)):
        raise VitreousError(
            f"{name} computes nothing from its images: what it returns is the images themselves or does not depend on "
            "them. Open a model whose forward pass returns features or class scores."
        )
    try:
        flow = Flow(Positions(module))
        pieces = dissect(flow, model)
        sites = [find_attention(flow, p.body) if _attends(p, flow) else [] for p in pieces]
        wiring = {p.name: _wiring(p, s, flow) for p, s in zip(pieces, sites, strict=True)}
        units = _units(pieces, sites, wiring, module, flow)
    except Exception as cause:
        raise NotExportable(
            f"The units of {name} cannot be told from its graph ({type(cause).__name__}: {first_line(cause)}); "
            f"{WAY_OUT}."
        ) from cause
    total = sum(p.numel() for p in model.parameters())
    return module, Anatomy(name, shape, tuple(units), total), wiring


def _attends(piece: Piece, flow: Flow) -> bool:
    """Whether a unit is attention, or makes the grid smaller by attention (LeViT, Hiera)."""
    return piece.kind == "attention" or (
        piece.kind == "downsample" and flow.kind(piece.body) == "attention"
    )


def _proved(
    module: fx.GraphModule, anatomy: Anatomy, wiring: dict[str, Wiring], findings: Findings
) -> tuple[fx.GraphModule, Anatomy, dict[str, Wiring]]:
    """Attention that does not reproduce the model's own product is not shown; the rest says what its weights are."""
    wiring = {
        name: replace(unit, attention=tuple(proved(site, findings) for site in unit.attention))
        for name, unit in wiring.items()
    }
    units = tuple(replace(unit, **_seen(wiring[unit.name].attention)) for unit in anatomy.units)
    return module, replace(anatomy, units=units), wiring


def _seen(sites: Sequence[AttentionSite]) -> dict[str, Any]:
    """What the sites of a unit say about it."""
    if not sites:
        return {}
    hidden = next((site for site in sites if not site.visible), None)
    shown = hidden or sites[0]
    reason = next((site.reason for site in (shown, *sites) if site.reason), "")
    kinds = [site.kind for site in sites]
    weights = next(
        (kind for kind in ("signed", "positive", "mixed") if kind in kinds), "probabilities"
    )
    if hidden is not None:
        return {"reach": hidden.reach, "reason": reason}
    clusters, places = merged(sites)
    heads = sum(sites[number].heads or 1 for number in clusters[0])
    reach = shown.reach if len(clusters) == 1 else reach_of(places)
    return {"reach": reach, "reason": reason, "weights": weights, "heads": heads}


def unwrapped(model: nn.Module) -> nn.Module:
    """The model inside `torch.compile`, `DataParallel`, `DistributedDataParallel` or `AveragedModel`."""
    wrappers = (
        nn.DataParallel,
        nn.parallel.DistributedDataParallel,
        torch.optim.swa_utils.AveragedModel,
    )
    inner = getattr(model, "_orig_mod", None)  # torch.compile's
    inner = model.module if isinstance(model, wrappers) else inner
    return unwrapped(inner) if isinstance(inner, nn.Module) else model


def _check_kind(model: nn.Module, name: str) -> None:
    """Models without Python code or ordinary weights cannot be opened; say what to open instead."""
    for path, module in model.named_modules():
        where = f"Its module {path!r}" if path else name
        if isinstance(module, torch.jit.ScriptModule):
            raise VitreousError(
                f"{where} is TorchScript, whose graph cannot be read; open the nn.Module it came from."
            )
        if type(module).__module__.startswith(
            ("torch.ao.nn.quantized", "torch.ao.nn.intrinsic.quantized")
        ):
            raise VitreousError(
                f"{where} is quantised and has no plain weights; open the model before conversion."
            )
        if type(module).__name__ == "FullyShardedDataParallel":
            raise VitreousError(
                f"{where} holds only a part of the weights in this process; open it without FSDP."
            )


def _check_weights(model: nn.Module, name: str) -> None:
    learned = set(dict(model.named_parameters()))
    for path, weight in [*model.named_parameters(), *model.named_buffers()]:
        if nn.parameter.is_lazy(weight):
            raise VitreousError(
                f"{path!r} of {name} has no shape yet; run the model once on images, then open it."
            )
        if weight.is_meta:
            raise VitreousError(
                f"{path!r} of {name} is on the meta device, without values; load its weights first."
            )
        bad = (
            ~weight.isfinite() if path in learned else weight.isnan()
        )  # masks among the buffers may be infinite
        if bool(bad.any()):
            count = int(bad.sum())
            raise VitreousError(
                f"{count} of {weight.numel()} values of {path!r} in {name} are NaN or infinite; nothing measured on it "
                "would mean anything: load another checkpoint."
            )


def _wiring(piece: Piece, sites: list[AttentionSite], flow: Flow) -> Wiring:
    after = flow.layout(piece.after)
    norm = next((n for n in piece.body if op(n) in NORMS and n in flow.data), None)
    hidden = _hidden(piece, flow)
    return Wiring(
        before=piece.before.name if piece.before is not None else None,
        skip=piece.skip.name if piece.skip is not None else None,
        branches=tuple(b.name for b in piece.branches),
        total=piece.total.name if piece.total is not None else None,
        after=piece.after.name,
        out=piece.out.name,
        layouts={
            "before": flow.layout(piece.before),
            "skip": flow.layout(piece.skip),
            "branch": flow.layout(piece.branches[0])
            or (after if piece.total is not None else None),
            "after": after,
            "out": flow.layout(piece.out),
            "norm": flow.layout(norm),
            "hidden": flow.layout(hidden),
        },
        attention=tuple(sites),
        norm=norm.name if norm is not None else None,
        hidden=hidden.name if hidden is not None else None,
    )


def _hidden(piece: Piece, flow: Flow) -> fx.Node | None:
    """What the last weights of a unit read, if the unit has computed it itself; weights of a gate, which sees no
    positions, do not count."""
    for node in reversed(
        [n for n in piece.body if flow.role[n] in ("linear", "conv", "mix", "mixer")]
    ):
        source = next((n for n in node.all_input_nodes if n in flow.data), None)
        layout = flow.layout(source)
        if flow.role[node] in ("mix", "mixer") or (layout is not None and layout.grid is not None):
            return source if source in piece.body else None
    return None


def _units(
    pieces: list[Piece],
    sites: list[list[AttentionSite]],
    wiring: dict[str, Wiring],
    module: fx.GraphModule,
    flow: Flow,
) -> list[Unit]:
    stages, units = _Stages(), []
    for index, (piece, found) in enumerate(zip(pieces, sites, strict=True)):
        layout = wiring[piece.name].layouts["out"]
        grid = layout.grid if layout is not None else None
        heads = [site.heads for site in found]
        units.append(
            Unit(
                name=piece.name,
                kind=piece.kind,
                index=index,
                stage=stages.enter(piece.kind, grid),
                depth=index / max(1, len(pieces) - 1),
                grid=grid,
                channels=layout.channels if layout is not None else _last_size(piece.out),
                prefix=layout.prefix if layout is not None and grid is not None else (),
                heads=sum(h for h in heads if h) if heads and all(heads) else None,
                reach=found[0].reach if found else None,
                skip=piece.skip is not None,
                parameters=_parameters(piece.body + piece.projection, module, flow),
            )
        )
    return units


class _Stages:
    """The stem is stage 0; a grid smaller than all before begins a stage; a grid seen before belongs to its stage."""

    def __init__(self) -> None:
        self.by_grid: dict[Grid, int] = {}
        self.current = 0

    def enter(self, kind: str, grid: Grid | None) -> int:
        if kind == "stem":
            return 0
        if grid is not None and grid not in self.by_grid:
            smallest = min((h * w for h, w in self.by_grid), default=None)
            if smallest is None or grid[0] * grid[1] < smallest:
                self.by_grid[grid] = len(self.by_grid) + 1
        self.current = self.by_grid.get(grid, self.current) if grid is not None else self.current
        return max(1, self.current)


def _last_size(node: fx.Node) -> int | None:
    value = node.meta.get("val")
    size = value.shape[-1] if isinstance(value, Tensor) and value.ndim == 2 else None
    return int(size) if isinstance(size, int) else None


def _parameters(body: list[fx.Node], module: fx.GraphModule, flow: Flow) -> int:
    """Parameters that enter the computation of these nodes."""
    found: set[str] = set()
    queue = [p for n in body for p in n.all_input_nodes if p not in flow.data]
    seen = set(queue)
    while queue:
        node = queue.pop()
        if node.op == "get_attr":
            found.add(str(node.target))
        fresh = set(node.all_input_nodes) - seen - flow.data
        seen |= fresh
        queue.extend(fresh)
    values = (attribute(module, target) for target in found)
    return sum(v.numel() for v in values if isinstance(v, nn.Parameter))
