"""`vitreous.open`: open a model, or the model of a name, as a `Specimen`."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, fx, nn

from vitreous.devices import ordinary_torch
from vitreous.errors import NotExportable, VitreousError, VitreousWarning
from vitreous.image_size import ImageSize
from vitreous.models.declared import declared_training, declared_undecayed
from vitreous.models.matching import copy_with_weights, loaded_weights
from vitreous.models.registry import ConfiguredModel
from vitreous.models.weights import weights_of
from vitreous.specimen.anatomy import Anatomy, Grid, Unit
from vitreous.specimen.attention import AttentionSite, combine_sites, find_attention, reach_of
from vitreous.specimen.cache import Parts, recall, remember, structure
from vitreous.specimen.dissect import Piece, dissect
from vitreous.specimen.export import ADVICE, read_graph
from vitreous.specimen.flow import Flow
from vitreous.specimen.graph import attribute, depends_on_input, op
from vitreous.specimen.hooks import open_by_hand
from vitreous.specimen.inputs import Shape, example, first_line, image_shape
from vitreous.specimen.joins import NORMS
from vitreous.specimen.observe import Wiring
from vitreous.specimen.positions import Positions
from vitreous.specimen.proof import Findings, Mismatch, find_mismatch, refusal, with_finding
from vitreous.specimen.specimen import Specimen
from vitreous.specimen.state import no_garbage_collection, no_logging


@ordinary_torch(dtype=None)
def open(
    model: nn.Module | str,
    *,
    image: ImageSize | None = None,
    pretrained: bool = False,
    weights: Path | str | None = None,
    units: Sequence[str] | Mapping[str, str] | Literal["blocks"] | None = None,
) -> Specimen:
    """Open a model: read its graph and find its units.

    Parameters
    ----------
    model
        A module, or a name: timm's own, `hf:` (Hugging Face id, folder or config), `tv:`
        (torchvision), `run:` or a path (a checkpoint of ours).
    image
        The input size if the model does not declare it: a side, (height, width) or
        (channels, height, width).
    pretrained
        Whether to load published weights for a name.
    weights
        A checkpoint to load into the model: safetensors, or a file that `torch.save` wrote (timm,
        torchvision, Hugging Face, Lightning, plain), or a folder of Hugging Face. Pickled code is
        never run. A module that you give is copied first.
    units
        Paths of modules to use as units, for models whose graph cannot be read; a mapping
        gives their kinds, "blocks" uses the blocks that the model repeats.

    Returns
    -------
    Specimen
        Shares the model's weights; its outputs were checked to equal the model's.

    Examples
    --------
    >>> specimen = vitreous.open("nano:vit")
    >>> specimen.anatomy.counts()
    {'stem': 1, 'attention': 6, 'mlp': 6, 'head': 1}

    Any name of timm works, and a checkpoint of yours:

    >>> model = vitreous.build("cnn_ti")
    >>> torch.save({"state_dict": model.state_dict()}, "last.pth")
    >>> specimen = vitreous.open("cnn_ti", image=32, weights="last.pth")
    >>> specimen.checkpoint.describe()
    "32 of 32 tensors (72,954 parameters) from last.pth, under 'state_dict'"
    """
    name = model if isinstance(model, str) else ""
    if isinstance(model, str):
        # imported here because it imports timm and torchvision, which a module does not need
        from vitreous.models.loading import load_model

        model = load_model(model, pretrained=pretrained, image=image, weights=weights)
    elif weights is not None and isinstance(model, nn.Module):
        model = copy_with_weights(unwrapped(model), weights, image)
    if not isinstance(model, nn.Module):
        raise VitreousError(f"A model is an nn.Module or a name, not {type(model).__name__}.")
    model = unwrapped(model)
    name = name or type(model).__name__
    _check_kind(model, name)
    _check_weights(model, name)
    with no_logging():  # entered once here instead of once per size that is tried
        shape = image_shape(model, image)
    if units is not None:
        specimen = open_by_hand(model, name, shape, example(model, shape), units)
    else:
        with no_garbage_collection():
            specimen = _open(model, name, shape)
        if specimen.random:
            places = ", ".join(specimen.random[:3]) + (", …" if len(specimen.random) > 3 else "")
            message = (
                f"{name} draws random numbers in evaluation mode, at {places}; every pass differs, "
                "and so does what is measured. Set torch.manual_seed before each pass to repeat "
                "one."
            )
            warnings.warn(message, VitreousWarning, stacklevel=2)
    specimen.trained = declared_training(model)
    specimen.undecayed = frozenset(declared_undecayed(model))
    specimen.weights = weights_of(model)
    specimen.checkpoint = loaded_weights(model)
    specimen.build = model.config if isinstance(model, ConfiguredModel) else None
    return specimen


def _open(model: nn.Module, name: str, shape: Shape) -> Specimen:
    """A specimen checked against the model, with a graph from the cache or newly read."""
    images = example(model, shape)
    key = structure(model, images)
    cached = recall(key, model)
    findings: Findings = {}
    if cached is not None:
        module, anatomy, wiring = cached
        parts = module, replace(anatomy, model=name), wiring
        if _mismatch(Specimen(*parts), model, images, findings) is None:
            return Specimen(*_with_findings(*parts, findings))
    for attempt in range(2):  # the second time with another prime for the batch size
        parts = _dissected(model, name, shape, read_graph(model, images, attempt))
        specimen = Specimen(*parts)
        findings = {}
        mismatch = _mismatch(specimen, model, images, findings)
        draws_in_another_order = (
            mismatch is not None and specimen.random and mismatch.difference < float("inf")
        )
        if mismatch is None or draws_in_another_order:
            remember(key, model, parts)
            return Specimen(*_with_findings(*parts, findings))
    assert mismatch is not None
    raise refusal(specimen, model, images, mismatch)


def _mismatch(
    specimen: Specimen, model: nn.Module, images: Tensor, findings: Findings
) -> Mismatch | None:
    try:
        return find_mismatch(specimen, model, images, findings)
    except Exception as error:  # the graph fails although the model runs
        return Mismatch(float("inf"), error=f"{type(error).__name__}: {first_line(error)}")


def _dissected(model: nn.Module, name: str, shape: Shape, module: fx.GraphModule) -> Parts:
    """Divide a graph into units; return it with the anatomy and the wiring of the units."""
    if not any(n.op == "call_function" for n in depends_on_input(module.graph)):
        raise VitreousError(
            f"{name} computes nothing from its images: what it returns is the images themselves or "
            "does not depend on them. Open a model whose forward pass returns features or class "
            "scores."
        )
    try:
        flow = Flow(Positions(module))
        pieces = dissect(flow, model)
        sites = [find_attention(flow, p.body) if _attends(p, flow) else [] for p in pieces]
        wiring = {p.name: _wiring(p, s, flow) for p, s in zip(pieces, sites, strict=True)}
        units = _units(pieces, wiring, flow)
    except Exception as cause:
        raise NotExportable(
            f"The units of {name} cannot be told from its graph ({type(cause).__name__}: "
            f"{first_line(cause)}); {ADVICE}."
        ) from cause
    total = sum(p.numel() for p in model.parameters())
    return module, Anatomy(name, shape, tuple(units), total), wiring


def _attends(piece: Piece, flow: Flow) -> bool:
    """Whether a unit is attention, or downsamples by attention (LeViT, Hiera)."""
    kind = flow.kind(piece.body) if piece.kind == "downsample" else piece.kind
    return kind == "attention"


def _with_findings(
    module: fx.GraphModule, anatomy: Anatomy, wiring: dict[str, Wiring], findings: Findings
) -> Parts:
    """The parts, updated with the findings of the check; attention that failed it is hidden."""
    wiring = {
        name: replace(
            unit, attention=tuple(with_finding(site, findings) for site in unit.attention)
        )
        for name, unit in wiring.items()
    }
    units = tuple(
        replace(unit, **_attention_facts(wiring[unit.name].attention)) for unit in anatomy.units
    )
    return module, replace(anatomy, units=units), wiring


def _attention_facts(sites: Sequence[AttentionSite]) -> dict[str, Any]:
    """The fields of a `Unit` that depend on its attention sites."""
    if not sites:
        return {}
    hidden = next((site for site in sites if not site.visible), None)
    main = hidden or sites[0]
    reason = next((site.reason for site in (main, *sites) if site.reason), "")
    if hidden is not None:
        return {"reach": hidden.reach, "reason": reason}
    kinds = {site.kind for site in sites}
    order = ("signed", "positive", "mixed", "probabilities")
    clusters, places = combine_sites(sites)
    return {
        "reach": main.reach if len(clusters) == 1 else reach_of(places),
        "reason": reason,
        "weights": next(kind for kind in order if kind in kinds),
        "heads": sum(sites[number].heads or 1 for number in clusters[0]),
    }


def unwrapped(model: nn.Module) -> nn.Module:
    """The model inside `torch.compile`, (Distributed)DataParallel or `AveragedModel`."""
    parallel = (nn.DataParallel, nn.parallel.DistributedDataParallel)
    inner = getattr(model, "_orig_mod", None)  # set by torch.compile
    if isinstance(model, (*parallel, torch.optim.swa_utils.AveragedModel)):
        inner = model.module
    return unwrapped(inner) if isinstance(inner, nn.Module) else model


def _check_kind(model: nn.Module, name: str) -> None:
    """Raise for models without Python code or ordinary weights; say what to open instead."""
    quantised = ("torch.ao.nn.quantized", "torch.ao.nn.intrinsic.quantized")
    for path, module in model.named_modules():
        where = f"Its module {path!r}" if path else name
        if isinstance(module, torch.jit.ScriptModule):
            raise VitreousError(
                f"{where} is TorchScript, whose graph cannot be read; open the nn.Module it came "
                "from."
            )
        if type(module).__module__.startswith(quantised):
            raise VitreousError(
                f"{where} is quantised and has no plain weights; open the model before conversion."
            )
        if type(module).__name__ == "FullyShardedDataParallel":
            raise VitreousError(
                f"{where} holds only a part of the weights in this process; open it without FSDP."
            )


@torch.no_grad()  # weights made in inference mode have no gradients
def _check_weights(model: nn.Module, name: str) -> None:
    """Raise for weights that have no shape or values, or are not finite."""
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
        # buffers may be infinite: masks are
        bad = ~weight.isfinite() if path in learned else weight.isnan()
        if bool(bad.any()):
            raise VitreousError(
                f"{int(bad.sum())} of {weight.numel()} values of {path!r} in {name} are NaN or "
                "infinite; nothing measured on it would mean anything: load another checkpoint."
            )


def _wiring(piece: Piece, sites: list[AttentionSite], flow: Flow) -> Wiring:
    """The names and layouts of the nodes at which a unit can be observed."""
    nodes = {
        "before": piece.before,
        "skip": piece.skip,
        "after": piece.after,
        "out": piece.out,
        "norm": next((n for n in piece.body if op(n) in NORMS and n in flow.data), None),
        "hidden": _hidden(piece, flow),
    }
    names = {site: node.name if node is not None else None for site, node in nodes.items()}
    layouts = {site: flow.layout(node) for site, node in nodes.items()}
    layouts["branch"] = flow.layout(piece.branches[0])
    if layouts["branch"] is None and piece.total is not None:
        layouts["branch"] = layouts["after"]
    return Wiring(
        **names,  # type: ignore[arg-type]
        branches=tuple(b.name for b in piece.branches),
        total=piece.total.name if piece.total is not None else None,
        layouts=layouts,
        attention=tuple(sites),
    )


def _hidden(piece: Piece, flow: Flow) -> fx.Node | None:
    """The input of the last layer of a unit, if it is computed inside the unit.

    Layers of a gate, whose input has no positions, are skipped.
    """
    for node in reversed(piece.body):
        role = flow.role[node]
        if role not in ("linear", "conv", "mix", "mixer"):
            continue
        source = next(iter(flow.positions.data_inputs(node)), None)
        if role in ("mix", "mixer") or flow.grid(source) is not None:
            return source if source in piece.body else None
    return None


def _units(pieces: list[Piece], wiring: dict[str, Wiring], flow: Flow) -> list[Unit]:
    """The units as plain data."""
    stages, units = _Stages(), []
    for index, piece in enumerate(pieces):
        layout, sites = wiring[piece.name].layouts["out"], wiring[piece.name].attention
        grid = layout.grid if layout is not None else None
        heads = [site.heads for site in sites]
        unit = Unit(
            name=piece.name,
            kind=piece.kind,
            index=index,
            stage=stages.enter(piece.kind, grid),
            depth=index / max(1, len(pieces) - 1),
            grid=grid,
            channels=layout.channels if layout is not None else _last_size(piece.out),
            prefix=layout.prefix if layout is not None and grid is not None else (),
            heads=sum(h for h in heads if h) if heads and all(heads) else None,
            reach=sites[0].reach if sites else None,
            skip=piece.skip is not None,
            parameters=_parameters(piece.body + piece.projection, flow),
        )
        units.append(unit)
    return units


class _Stages:
    """Counts stages: the stem is stage 0, and every new smallest grid begins a stage."""

    def __init__(self) -> None:
        self.by_grid: dict[Grid, int] = {}
        self.current = 0

    def enter(self, kind: str, grid: Grid | None) -> int:
        """The stage of the next unit; a grid that occurred before returns to its stage."""
        if kind == "stem":
            return 0
        if grid is not None:
            smaller = all(grid[0] * grid[1] < h * w for h, w in self.by_grid)
            if grid not in self.by_grid and smaller:
                self.by_grid[grid] = len(self.by_grid) + 1
            self.current = self.by_grid.get(grid, self.current)
        return max(1, self.current)


def _last_size(node: fx.Node) -> int | None:
    """The number of features of a node of shape (b, features); None for other shapes."""
    value = node.meta.get("val")
    size = value.shape[-1] if isinstance(value, Tensor) and value.ndim == 2 else None
    return int(size) if isinstance(size, int) else None


def _parameters(body: list[fx.Node], flow: Flow) -> int:
    """The number of parameters that enter the computation of these nodes."""
    targets: set[str] = set()
    queue = [p for n in body for p in n.all_input_nodes if p not in flow.data]
    visited = set(queue)
    while queue:
        node = queue.pop()
        if node.op == "get_attr":
            targets.add(str(node.target))
        unvisited = set(node.all_input_nodes) - visited - flow.data
        visited |= unvisited
        queue.extend(unvisited)
    values = (attribute(flow.positions.module, target) for target in targets)
    return sum(v.numel() for v in values if isinstance(v, nn.Parameter))
