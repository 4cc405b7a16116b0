"""`vitreous.open`: from a model, or its name, to a `Specimen`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, fx, nn

from vitreous.errors import VitreousError
from vitreous.specimen.anatomy import Anatomy, Grid, Unit
from vitreous.specimen.attention import AttentionSite, find_attention
from vitreous.specimen.cache import recall, remember, structure
from vitreous.specimen.dissect import NORMS, Piece, dissect
from vitreous.specimen.graph import EXAMPLE_BATCH, attribute, op, read
from vitreous.specimen.joins import Flow
from vitreous.specimen.observe import Wiring
from vitreous.specimen.positions import Positions
from vitreous.specimen.specimen import Specimen


def open(
    model: nn.Module | str,
    *,
    image: int | tuple[int, int] | tuple[int, int, int] | None = None,
    pretrained: bool = False,
    units: Sequence[str] | Mapping[str, str] | None = None,
) -> Specimen:
    """Open a model: read its graph and find what it is made of.

    `model` is a module, or a name: timm's own, `hf:` (Hugging Face id, folder or config), `tv:` (torchvision), `run:`
    or a path (a checkpoint of ours). `image` is the input size where the model does not say: a side, (height, width)
    or (channels, height, width). `pretrained` loads published weights for a name. `units` names modules by hand, for
    models whose graph cannot be read.
    """
    name = model if isinstance(model, str) else type(model).__name__
    if isinstance(model, str):
        from vitreous.models.loading import load

        sides = image[-2:] if isinstance(image, tuple) else image
        model = load(model, pretrained=pretrained, image=sides)
    if not isinstance(model, nn.Module):
        raise VitreousError(f"A model is an nn.Module or a name, not {type(model).__name__}.")
    _check_weights(model, name)
    shape = image_shape(model, image)
    if units is not None:
        from vitreous.specimen.by_hand import by_hand

        specimen = by_hand(model, name, shape, example(model, shape), units)
    else:
        specimen = Specimen(*_open(model, name, shape))
    specimen.trained = _trained_with(model)
    return specimen


def _trained_with(model: nn.Module) -> dict[str, Any]:
    """How images have to look for the model, as timm, Hugging Face and our own runs say it; nothing if it does not."""
    for name in ("trained_with", "pretrained_cfg", "default_cfg"):
        says = getattr(model, name, None)
        if isinstance(says, Mapping) and says.get("mean") and says.get("std"):
            return {key: tuple(says[key]) for key in ("mean", "std", "label_names") if says.get(key)}
    return {}


def _open(
    model: nn.Module, name: str, shape: tuple[int, int, int]
) -> tuple[fx.GraphModule, Anatomy, dict[str, Wiring]]:
    images = example(model, shape)
    key = structure(model, images)
    known = recall(key, model)
    if known is not None:
        module, anatomy, wiring = known
        return module, replace(anatomy, model=name), wiring
    module = read(model, images)
    flow = Flow(Positions(module))
    pieces = dissect(flow, model)
    sites = [find_attention(flow, p.body) if p.kind == "attention" else [] for p in pieces]
    wiring = {p.name: _wiring(p, s, flow) for p, s in zip(pieces, sites, strict=True)}
    units = _units(pieces, sites, wiring, module, flow)
    total = sum(p.numel() for p in model.parameters())
    anatomy = Anatomy(name, shape, tuple(units), total)
    remember(key, model, module, anatomy, wiring)
    return module, anatomy, wiring


def example(model: nn.Module, shape: tuple[int, int, int]) -> Tensor:
    """Images of the size, type and device the model takes."""
    weight = next((p for p in model.parameters() if p.is_floating_point()), torch.empty(0))
    return torch.zeros(EXAMPLE_BATCH, *shape, dtype=weight.dtype, device=weight.device)


def _check_weights(model: nn.Module, name: str) -> None:
    learned = set(dict(model.named_parameters()))
    for path, weight in [*model.named_parameters(), *model.named_buffers()]:
        if weight.is_meta:
            raise VitreousError(f"{path!r} of {name} is on the meta device, without values; load its weights first.")
        bad = ~weight.isfinite() if path in learned else weight.isnan()  # masks among the buffers may be infinite
        if bool(bad.any()):
            count = int(bad.sum())
            raise VitreousError(
                f"{count} of {weight.numel()} values of {path!r} in {name} are NaN or infinite; nothing measured on it "
                "would mean anything: load another checkpoint."
            )


def image_shape(model: nn.Module, image: int | tuple[int, ...] | None) -> tuple[int, int, int]:
    """Channels, height and width: as given, or as the model's own configuration says."""
    if image is not None:
        sizes = tuple(image) if isinstance(image, (tuple, list)) else (image, image)
        if len(sizes) not in (2, 3) or not all(type(s) is int and s > 0 for s in sizes):
            raise VitreousError(f"image is a side, (height, width) or (channels, height, width), not {image!r}.")
        return sizes if len(sizes) == 3 else (_channels(model), *sizes)  # type: ignore[return-value]
    timm_config: Any = getattr(model, "pretrained_cfg", None) or getattr(model, "default_cfg", None)
    if timm_config and "input_size" in timm_config:
        embed = getattr(model, "patch_embed", None)
        size = getattr(embed, "img_size", None)
        if isinstance(size, tuple) and len(size) == 2:  # the size it was built with beats the size of its weights
            return (_channels(model), *size)
        return (_channels(model), *tuple(timm_config["input_size"])[1:])
    config = getattr(model, "config", None)
    size = getattr(config, "image_size", None) or getattr(model, "image_size", None)
    if size is None and (config is not None or type(model).__module__.startswith("torchvision.")):
        size = 224  # configurations without a size (ResNet, ConvNeXt) take any; 224 is what they were trained at
    if size is None:
        raise VitreousError(
            f"The image size of {type(model).__name__} cannot be known from it; say image=224, for one."
        )
    sides = (size, size) if isinstance(size, int) else tuple(size)[-2:]
    return (_channels(model), *sides)


def _channels(model: nn.Module) -> int:
    """Channels of the images: those of the first convolution, by timm's word for it or by order."""
    config: Any = getattr(model, "pretrained_cfg", None)
    if config:
        name, usual = config.get("first_conv"), int(config["input_size"][0])
        first = dict(model.named_modules()).get(name if isinstance(name, str) else "")
        if not isinstance(first, nn.Conv2d) or first.in_channels in (usual * 4, usual * 16):  # pixels made channels
            return usual
        return first.in_channels
    first = next((m for m in model.modules() if isinstance(m, nn.Conv2d)), None)
    return first.in_channels if first is not None else 3


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
        layouts={
            "before": flow.layout(piece.before),
            "skip": flow.layout(piece.skip),
            "branch": flow.layout(piece.branches[0]) or (after if piece.total is not None else None),
            "after": after,
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
    for node in reversed([n for n in piece.body if flow.role[n] in ("linear", "conv", "mix")]):
        source = next((n for n in node.all_input_nodes if n in flow.data), None)
        layout = flow.layout(source)
        if flow.role[node] == "mix" or (layout is not None and layout.grid is not None):
            return source if source in piece.body else None
    return None


def _units(
    pieces: list[Piece], sites: list[list[AttentionSite]], wiring: dict[str, Wiring], module: fx.GraphModule, flow: Flow
) -> list[Unit]:
    stages, units = _Stages(), []
    for index, (piece, found) in enumerate(zip(pieces, sites, strict=True)):
        layout = wiring[piece.name].layouts["after"]
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
                channels=layout.channels if layout is not None else _last_size(piece.after),
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
