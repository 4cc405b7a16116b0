"""Specimens of models whose graph cannot be read. The units are modules that the user names.

They are observed by hooks on a copy of the module tree that shares the weights, so that the model
itself never has a hook.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn

from vitreous.errors import UnknownName, VitreousError
from vitreous.specimen.anatomy import Anatomy, Unit
from vitreous.specimen.intervene import takes_two
from vitreous.specimen.layout import BatchAxis, Layout
from vitreous.specimen.observe import Consumer, Feature, Observation, Site, Sites, check_sites
from vitreous.specimen.specimen import Specimen, renew_parameters
from vitreous.specimen.state import undisturbed
from vitreous.unit_kinds import KINDS, Kind


class HandSpecimen(Specimen):
    """A specimen whose units are modules: `before` is their input, all other sites their output."""

    def __init__(self, model: nn.Module, anatomy: Anatomy, edits: tuple[str, ...] = ()) -> None:
        nn.Module.__init__(self)
        self.module = model  # type: ignore[assignment]
        self.anatomy = anatomy
        self.edits = edits
        for module in model.modules():
            module.training = False
        self.training = False

    def wiring(self, unit: str) -> None:
        """None: units named by hand have no nodes in a graph."""

    def observe(
        self,
        images: Tensor,
        want: Iterable[Site] = ("before", "branch", "after"),
        units: str | Sequence[str] = "*",
        each: Consumer | None = None,
        grad: bool = False,
    ) -> Observation:
        """As `Specimen.observe`, with hooks on the copied modules that are removed afterwards."""
        self._check(images)
        wanted = check_sites(want)
        kept: dict[str, Sites] = {}
        consumer = each or (lambda unit, sites: kept.__setitem__(unit.name, sites))
        inputs: dict[str, Any] = {}

        def enter(unit: Unit) -> Callable[..., None]:
            def hook(module: nn.Module, args: tuple[Any, ...]) -> None:
                value: Any = args[0] if args else None
                observed = "before" in wanted and isinstance(value, Tensor)
                # a copy, since the module may change its input in place
                inputs[unit.name] = value.clone() if observed else None

            return hook

        def leave(unit: Unit) -> Callable[..., None]:
            def hook(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
                value = output.clone() if each is None and isinstance(output, Tensor) else output
                values = dict.fromkeys(("branch", "after", "out"), value)
                values["before"] = inputs.pop(unit.name)
                features: dict[str, Any] = {}
                for site in wanted:
                    if isinstance(values.get(site), Tensor):
                        features[site] = Feature(values[site], _layout(values[site]))
                consumer(unit, Sites(**features))

            return hook

        modules = dict(cast(nn.Module, self.module).named_modules())
        chosen = self._find(units)
        handles = [modules[u.name].register_forward_pre_hook(enter(u)) for u in chosen]
        handles += [modules[u.name].register_forward_hook(leave(u)) for u in chosen]
        try:
            with torch.set_grad_enabled(grad and torch.is_grad_enabled()):
                output = self.module(images)
        finally:
            for handle in handles:
                handle.remove()
        return Observation(kept, output)

    def without(self, *units: str) -> Specimen:
        return self._swapped(units, _Bypass, f"without {', '.join(units)}")

    def with_branch(self, units: str, fn: Callable[..., Tensor]) -> Specimen:
        return self._swapped([units], lambda part: _Replaced(part, fn), f"with branch {units}")

    def without_skip(self, *units: str) -> Specimen:
        raise VitreousError(
            "Units named by hand have no known skip; without_skip needs the model's graph."
        )

    def with_attention(
        self, units: str, attention: str | Tensor | Mapping[str, Tensor]
    ) -> Specimen:
        raise VitreousError(
            "Units named by hand have no known attention; with_attention needs the model's graph."
        )

    def twin(self) -> Specimen:
        """A copy with its own modules, because observing registers hooks on them."""
        return copy.deepcopy(self)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Specimen:
        self.module = _shared_copy(self.module)  # type: ignore[assignment]
        renew_parameters(self.module)
        return nn.Module._apply(self, fn, recurse)

    def __deepcopy__(self, memo: dict[int, Any]) -> Specimen:
        model = copy.deepcopy(self.module, memo)
        return self._with_origin(HandSpecimen(model, self.anatomy, self.edits))

    def _swapped(
        self, patterns: Sequence[str], swap: Callable[[nn.Module], nn.Module], description: str
    ) -> Specimen:
        """A new specimen in which `swap` has replaced the module of each unit."""
        model = _shared_copy(self.module)
        for unit in self._find(patterns):
            parent, _, child = unit.name.rpartition(".")
            setattr(model.get_submodule(parent), child, swap(model.get_submodule(unit.name)))
        return self._with_origin(HandSpecimen(model, self.anatomy, (*self.edits, description)))


class _Bypass(nn.Module):
    """Returns its input; zeros if the output has another shape than the input."""

    def __init__(self, part: nn.Module) -> None:
        super().__init__()
        self.part = part

    def forward(self, value: Tensor, *args: Any, **kwargs: Any) -> Any:
        output = self.part(value.clone(), *args, **kwargs)
        main = output[0] if isinstance(output, tuple) else output
        passed = value if main.shape == value.shape else torch.zeros_like(main)
        return (passed, *output[1:]) if isinstance(output, tuple) else passed


class _Replaced(nn.Module):
    """Returns `fn(before)`, or `fn(before, branch)` if `fn` takes two arguments."""

    def __init__(self, part: nn.Module, fn: Callable[..., Tensor]) -> None:
        super().__init__()
        self.part = part if takes_two(fn) else None
        self.fn = fn

    def forward(self, value: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if self.part is None:
            return self.fn(value)
        return self.fn(value, self.part(value.clone(), *args, **kwargs))


def open_by_hand(
    model: nn.Module,
    name: str,
    shape: tuple[int, int, int],
    images: Tensor,
    units: Sequence[str] | Mapping[str, str] | Literal["blocks"],
) -> Specimen:
    """Open `model` with modules as units, in the order in which they run.

    `units` are module paths, a mapping of paths to kinds, or "blocks" for the blocks that the model
    repeats.
    """
    paths, kinds = _chosen_modules(model, name, images, units)
    copied = _shared_copy(model)
    layouts = _layouts_in_order(copied, paths, images)
    if missing := [path for path in paths if path not in layouts]:
        raise VitreousError(
            f"Module {missing[0]!r} did not run when {name} was given images; name modules that do."
        )
    grids = dict.fromkeys(layout.grid for layout in layouts.values() if layout is not None)
    stages = {grid: i + 1 for i, grid in enumerate(grids)}
    unit_list = []
    for index, (path, layout) in enumerate(layouts.items()):
        grid = layout.grid if layout is not None else None
        unit = Unit(
            name=path,
            kind=cast(Kind, kinds[path]),
            index=index,
            stage=stages.get(grid, 1),
            depth=index / max(1, len(layouts) - 1),
            grid=grid,
            channels=layout.channels if layout is not None else None,
            skip=False,
            parameters=sum(p.numel() for p in model.get_submodule(path).parameters()),
        )
        unit_list.append(unit)
    total = sum(p.numel() for p in model.parameters())
    return HandSpecimen(copied, Anatomy(name, shape, tuple(unit_list), total))


def _chosen_modules(
    model: nn.Module, name: str, images: Tensor, units: Sequence[str] | Mapping[str, str]
) -> tuple[list[str], Mapping[str, str]]:
    """The paths and kinds of the units; raises for unknown paths or kinds."""
    if isinstance(units, str):
        if units != "blocks":
            raise VitreousError(
                f"units takes paths of modules or 'blocks', not {units!r}; for one module, "
                f"[{units!r}]."
            )
        units = list(_layouts_in_order(_shared_copy(model), _repeated_blocks(model), images))
        if not units:
            raise VitreousError(
                f"{name} repeats no block that runs on images; name the modules: units=['path', …]."
            )
    named = dict(model.named_modules())
    for path in units:
        if path not in named or not path:
            raise UnknownName("module", path, named)
    kinds = units if isinstance(units, Mapping) else {path: _kind(named[path]) for path in units}
    for kind in kinds.values():
        if kind not in KINDS:
            raise UnknownName("kind", kind, KINDS, f"Kinds are {', '.join(KINDS)}.")
    return list(units), kinds


def _repeated_blocks(model: nn.Module) -> list[str]:
    """Paths of the blocks that a model repeats: children of one class in a list or `Sequential`.

    Of nested blocks only the outer ones are returned; of a list of lists, [[attention, mlp], …],
    the modules in the inner lists.
    """
    blocks: list[str] = []
    for path, module in model.named_modules():
        inside = any(path.startswith(f"{block}.") for block in blocks)
        if inside or not isinstance(module, (nn.ModuleList, nn.Sequential)):
            continue
        classes = Counter(type(child) for child in module if len(list(child.children())))
        for i, child in enumerate(module):
            if classes[type(child)] < 2:
                continue
            block = f"{path}.{i}".lstrip(".")
            if isinstance(child, nn.ModuleList):
                blocks += [f"{block}.{j}" for j in range(len(child))]
            else:
                blocks.append(block)
    return blocks


def _shared_copy(model: nn.Module) -> nn.Module:
    """A copy of the module tree that shares parameters and buffers."""
    tensors = [*model.parameters(), *model.buffers()]
    return copy.deepcopy(model, {id(t): t for t in tensors})


def _layouts_in_order(
    model: nn.Module, paths: list[str], images: Tensor
) -> dict[str, Layout | None]:
    """The layouts of the outputs of these modules, in the order in which they run."""
    layouts: dict[str, Layout | None] = {}

    def note(path: str) -> Callable[..., None]:
        def hook(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            layouts.setdefault(path, _layout(output) if isinstance(output, Tensor) else None)

        return hook

    with undisturbed(model) as saving, torch.no_grad():
        for path in paths:  # `undisturbed` removes the hooks
            model.get_submodule(path).register_forward_hook(note(path))
        saving.run(model, images)
    return layouts


def _kind(module: nn.Module) -> Kind:
    kernels = [m.kernel_size for m in module.modules() if isinstance(m, nn.Conv2d)]
    return "conv" if any(max(k) > 1 for k in kernels) else "mlp"


def _layout(value: Tensor) -> Layout | None:
    """The layout of a tensor (b, c, h, w); None for other ranks, such as tokens without a grid."""
    if value.ndim != 4:
        return None
    grid = (value.shape[2], value.shape[3])
    return Layout(BatchAxis(0, 1, True), (3, 4), None, (), grid, value.shape[1])
