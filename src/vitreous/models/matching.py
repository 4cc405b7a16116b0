"""Load a checkpoint into a model: find which of its tensors are the model's.

A checkpoint may nest the weights (`state_dict`, `model`, `model_ema`, `teacher`, …) and prefix
their names (`module.`, `backbone.`, `_orig_mod.`, …). Both are treated alike: the prefix is used
after which most names match the model's. So any nesting and any prefix works, without a list of
known ones. For timm's models, timm's own function converts other formats and resizes position
embeddings.
"""

from __future__ import annotations

import copy
import re
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from logging import getLogger
from math import isqrt
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from torch import Tensor, nn

from vitreous.errors import VitreousError, nearest_names
from vitreous.image_size import ImageSize, image_size
from vitreous.models.checkpoint_files import read_checkpoint
from vitreous.models.transformers_names import converted_names
from vitreous.models.weights import mark_loaded

MIN_SHARE = 0.9
"""Minimum share of a model's tensors that a checkpoint must contain."""
WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "module")
"""Name components that `torch.compile`, FSDP, checkpointing and DataParallel insert anywhere."""
AVERAGED = ("ema", "teacher", "averaged", "swa")
"""Words in names of averaged weights, which are preferred among equal matches, as in timm."""
MOST_HEADS = 8
"""Maximum number of tensors that may differ in the number of classes: a few heads."""
UNUSUAL = ("student", "optimizer")
"""Words in names that are used last among equal matches."""
POSITIONS = re.compile(r"(pos_embed|pos_embedding|position_embeddings?)(\.weight)?$")
"""Names of learned position embeddings."""

State = dict[str, Tensor]

log = getLogger("vitreous")


_LOADED: WeakKeyDictionary[nn.Module, LoadedWeights] = WeakKeyDictionary()


def loaded_weights(model: nn.Module) -> LoadedWeights | None:
    """The record of `load_weights` about a model; None if it was not called."""
    return _LOADED.get(model)


class OtherClasses(VitreousError):
    """A checkpoint fits except for the number of classes."""

    def __init__(self, message: str, classes: int) -> None:
        super().__init__(message)
        self.classes = classes


@dataclass(frozen=True)
class LoadedWeights:
    """Which tensors of a model came from a checkpoint."""

    file: str
    matched: int
    """Number of the model's tensors that came from the file."""
    total: int
    parameters: int
    """Number of scalar parameters that came from the file."""
    prefix: str = ""
    """Prefix of their names in the file: `state_dict.module.`"""
    missing: tuple[str, ...] = ()
    """Tensors of the model that are not in the file, and keep their random values."""
    unused: tuple[str, ...] = ()
    """Further tensors of the file with this prefix, which the model does not have."""
    resized: tuple[str, ...] = ()
    """Position embeddings that were interpolated to the model's size."""
    others: tuple[str, ...] = ()
    """Other prefixes in the file that would have matched as well."""
    random_head: bool = False
    """Whether the classifier is among the missing tensors."""
    classes: int | None = None
    """Classes of a classifier in the file for which the model was built without any."""

    def describe(self) -> str:
        """Describe in one sentence what was loaded and what was not."""
        text = f"{self.matched} of {self.total} tensors ({self.parameters:,} parameters)"
        text += f" from {self.file}"
        if self.prefix:
            text += f", under {self.prefix.removesuffix('.')!r}"
        if self.others:
            text += f" (it also holds {enumerate_names(self.others)})"
        if self.missing:
            text += f"; not in the file, so random: {enumerate_names(self.missing)}"
        if self.unused:
            text += f"; not used: {enumerate_names(self.unused)}"
        if self.resized:
            text += f"; resized: {enumerate_names(self.resized)}"
        return text


def enumerate_names(names: Sequence[str], most: int = 4) -> str:
    """List the first names, and the number of others."""
    rest = len(names) - most
    return ", ".join(names[:most]) + (f" and {rest} more" if rest > 0 else "")


def load_weights(
    model: nn.Module, weights: Path | str, name: str = "", image: ImageSize | None = None
) -> LoadedWeights:
    """Load a checkpoint into a model, in place.

    Parameters
    ----------
    model
        A module.
    weights
        A file or folder; `FILE@KEY` uses the tensors nested under KEY (`last.pth@student`).
    name
        Name of the model in errors.
    image
        Size of its images, which gives the shape of position embeddings that are not square.

    Returns
    -------
    LoadedWeights
        How many of the model's tensors came from the file, and which did not.

    Examples
    --------
    >>> load_weights(timm.create_model("vit_tiny_patch16_224"), "runs/last.pth").matched
    152
    """
    name = name or type(model).__name__
    path, key = _split_key(str(weights))
    tensors = read_checkpoint(path)
    if key:
        tensors = _nested(tensors, key, path)
    wanted = {k: v for k, v in model.state_dict().items() if isinstance(v, Tensor)}
    match = _find_state(tensors, wanted)
    state, resized = _converted(model, match.state, wanted)
    resized += _resize_positions(state, wanted, image_size(image or 1)[-2:])
    fit = _Fit(name, str(weights), wanted, state)
    fit.check_shapes()
    fit.check_share(list(tensors))
    fit.check_depth()
    model.load_state_dict(fit.fitting, strict=False)
    parameters = dict(model.named_parameters())
    matrices = [k for k, v in parameters.items() if v.ndim >= 2]
    loaded = LoadedWeights(
        file=str(weights),
        matched=len(fit.matched),
        total=len(fit.learned),
        parameters=sum(parameters[k].numel() for k in fit.matched if k in parameters),
        prefix=match.prefix,
        missing=tuple(fit.missing),
        unused=tuple(fit.unused),
        resized=tuple(resized),
        others=match.others,
        random_head=bool(matrices) and matrices[-1] in fit.missing,
        classes=_classes_left_over(model, fit),
    )
    if fit.missing:
        log.warning("%s: %s.", name, loaded.describe())
    _LOADED[model] = loaded
    return loaded


def _classes_left_over(model: nn.Module, fit: _Fit) -> int | None:
    """Classes of timm's classifier in the file if the model, as many of timm's, has none."""
    if getattr(model, "num_classes", None) != 0:
        return None
    names = (getattr(model, "pretrained_cfg", None) or {}).get("classifier") or ()
    for name in (names,) if isinstance(names, str) else names:
        if f"{name}.weight" in fit.unused:
            return len(fit.state[f"{name}.weight"])
    return None


def copy_with_weights(
    model: nn.Module, weights: Path | str, image: ImageSize | None = None
) -> nn.Module:
    """A copy of a module with the weights of a checkpoint."""
    loaded = copy.deepcopy(model)
    load_weights(loaded, weights, image=image)
    return mark_loaded(loaded)


def _split_key(weights: str) -> tuple[Path, str]:
    """The path, and the key after the last `@` unless a file has that name."""
    path = Path(weights).expanduser()
    if path.exists() or "@" not in weights:
        return path, ""
    file, _, key = weights.rpartition("@")
    return Path(file).expanduser(), key


def _nested(tensors: State, key: str, path: Path) -> State:
    """The tensors under a key; raises an error that lists the keys if there are none."""
    nested = {k: v for k, v in tensors.items() if k.startswith(f"{key}.")}
    if not nested:
        known = sorted({k.split(".")[0] for k in tensors})
        raise VitreousError(
            f"{str(path)!r} holds nothing under {key!r}; it has {enumerate_names(known, 8)}."
        )
    return nested


@dataclass(frozen=True)
class _Match:
    """Tensors of a checkpoint, without their common prefix."""

    prefix: str
    others: tuple[str, ...]
    state: State
    score: int
    """Number of matching names plus number of matching shapes."""


def _find_state(tensors: State, wanted: Mapping[str, Tensor]) -> _Match:
    """Find the tensors whose names match the model's best."""
    best = _after_prefix(tensors, wanted)
    if best.score >= 2 * MIN_SHARE * len(wanted):
        return best
    for part in _backbones(wanted):  # the checkpoint may be of the model's backbone alone
        inner = {k.removeprefix(part): v for k, v in wanted.items() if k.startswith(part)}
        match = _after_prefix(tensors, inner)
        if match.score > best.score:
            best = replace(match, state={part + k: v for k, v in match.state.items()})
    return best


def _backbones(wanted: Mapping[str, Tensor]) -> list[str]:
    """Submodules, up to two levels deep, with the first matrix and half of the tensors."""
    first = next((key for key, value in wanted.items() if value.ndim >= 2), "")
    parents = [prefix for prefix, _ in _splits(first)][1:3]
    return [p for p in parents if 2 * sum(key.startswith(p) for key in wanted) >= len(wanted)]


def _after_prefix(tensors: State, wanted: Mapping[str, Tensor]) -> _Match:
    """The tensors whose names start with the prefix that matches best, without it."""
    components = frozenset(part for key in wanted for part in key.split("."))
    scores: Counter[str] = Counter({"": 0})
    for key, tensor in tensors.items():
        for prefix, rest in _splits(key):
            name = _unwrapped_name(rest, components)
            if name in wanted:
                scores[prefix] += 1 + int(tensor.shape == wanted[name].shape)
    best = max(scores.values())
    equal = sorted((prefix for prefix, score in scores.items() if score == best), key=_preference)
    chosen = equal[0]
    state = {
        _unwrapped_name(key.removeprefix(chosen), components): tensor
        for key, tensor in tensors.items()
        if key.startswith(chosen)
    }
    # missing tensors may have a shorter prefix: a head next to the backbone
    for outer, _ in reversed(list(_splits(chosen.removesuffix(".")))):
        for key in wanted.keys() - state.keys():
            if outer + key in tensors and tensors[outer + key].shape == wanted[key].shape:
                state[key] = tensors[outer + key]
    unrelated = [p for p in equal if not (p.startswith(chosen) or chosen.startswith(p))]
    return _Match(chosen, tuple(prefix.removesuffix(".") for prefix in unrelated), state, best)


def _splits(key: str) -> Iterator[tuple[str, str]]:
    """All ways to divide a name into a prefix and the rest."""
    yield "", key
    for place, letter in enumerate(key):
        if letter == ".":
            yield key[: place + 1], key[place + 1 :]


def _unwrapped_name(key: str, components: frozenset[str]) -> str:
    """A name without components of wrappers, unless the model itself has such a component."""
    return ".".join(part for part in key.split(".") if part not in WRAPPERS or part in components)


def _preference(prefix: str) -> tuple[bool, bool, int]:
    """Sort key of prefixes that match equally: averaged weights first, students last, long first.

    Longer prefixes are preferred: names match both with and without the component of a wrapper.
    """
    words = re.split(r"[._]", prefix.lower())
    averaged = any(word in AVERAGED for word in words)
    return any(word in UNUSUAL for word in words), not averaged, -len(prefix)


def _converted(
    model: nn.Module, state: State, wanted: Mapping[str, Tensor]
) -> tuple[State, list[str]]:
    """The state converted by the model's own library, and the names that were resized by that."""
    convert = _converter(model)
    if convert is None:
        return state, []
    try:
        with warnings.catch_warnings(action="ignore"):
            converted = convert(dict(state), model)
    except Exception:  # the converter does not know this format
        return state, []
    if _matches(converted, wanted) < _matches(state, wanted):
        return state, []
    both = converted.keys() & state.keys()
    resized = {k for k in both if converted[k].shape != state[k].shape}
    # timm also resamples the kernel of patches of another size, which makes another model
    kernels = {k for k in resized if state[k].ndim == converted[k].ndim == 4}
    return {**converted, **{k: state[k] for k in kernels}}, sorted(resized - kernels)


def _converter(model: nn.Module) -> Callable[[State, Any], State] | None:
    """The function of timm or transformers that converts names of older or foreign formats."""
    home = type(model).__module__
    if home.startswith("timm."):
        return getattr(sys.modules[home], "checkpoint_filter_fn", None)
    return converted_names if home.startswith("transformers.") else None


def _matches(state: State, wanted: Mapping[str, Tensor]) -> int:
    return sum(k in wanted and v.shape == wanted[k].shape for k, v in state.items())


def _resize_positions(
    state: State, wanted: Mapping[str, Tensor], image: tuple[int, ...]
) -> list[str]:
    """Resize learned position embeddings in `state` to the model's grid, by timm's function."""
    from timm.layers import resample_abs_pos_embed

    resized = []
    for key, tensor in state.items():
        if key not in wanted or not POSITIONS.search(key) or tensor.shape == wanted[key].shape:
            continue
        old, new = tensor.shape[-2:], wanted[key].shape[-2:]
        grid = _new_grid(old[0], new[0], image)
        if grid is None or old[1] != new[1] or tensor.ndim != wanted[key].ndim:
            continue
        prefix, size = grid
        table = tensor.float().reshape(1, *old)
        table = resample_abs_pos_embed(table, list(size), num_prefix_tokens=prefix)
        state[key] = table.reshape(wanted[key].shape).to(tensor.dtype)
        resized.append(key)
    return resized


def _new_grid(old: int, new: int, image: tuple[int, ...]) -> tuple[int, tuple[int, int]] | None:
    """Number of prefix tokens, and rows and columns of the grid, of `new` positions."""
    for prefix in (1, 0, 2, 5):
        cells = new - prefix
        if cells < 1 or isqrt(old - prefix) ** 2 != old - prefix:
            continue
        height, width = image
        for rows in range(1, cells + 1):
            columns = cells // rows
            if rows * columns == cells and rows * width == columns * height:
                return prefix, (rows, columns)
    return None


@dataclass(frozen=True)
class _Fit:
    """Compares the tensors of a checkpoint with those of a model."""

    model: str
    file: str
    wanted: Mapping[str, Tensor]
    state: State

    @cached_property
    def learned(self) -> list[str]:
        """The model's tensors without counters and index tables, which are not learned."""
        return [k for k, v in self.wanted.items() if v.is_floating_point() or v.is_complex()]

    @cached_property
    def fitting(self) -> State:
        """Tensors with equal name and shape."""
        return {
            k: v
            for k, v in self.state.items()
            if k in self.wanted and v.shape == self.wanted[k].shape
        }

    @cached_property
    def matched(self) -> list[str]:
        return [k for k in self.learned if k in self.fitting]

    @cached_property
    def missing(self) -> list[str]:
        return [k for k in self.learned if k not in self.state]

    @cached_property
    def unused(self) -> list[str]:
        return [k for k in self.state if k not in self.wanted]

    def check_shapes(self) -> None:
        """Raise unless tensors of equal names have equal shapes."""
        wrong = [k for k in self.learned if k in self.state and k not in self.fitting]
        if not wrong:
            return
        counts = {(self.wanted[k].shape[:1], self.state[k].shape[:1]) for k in wrong}
        rests = all(self.wanted[k].shape[1:] == self.state[k].shape[1:] for k in wrong)
        [(has, holds), *several] = counts
        if rests and not several and has and holds and len(wrong) <= MOST_HEADS:
            raise OtherClasses(
                f"The weights in {self.file!r} are for {holds[0]} classes, and {self.model} has "
                f"{has[0]} ({wrong[0]!r}); make the model with {holds[0]} classes, or give a "
                f"checkpoint for {has[0]}.",
                holds[0],
            )
        first = wrong[0]
        shapes = (tuple(self.state[first].shape), tuple(self.wanted[first].shape))
        more = f", and {len(wrong) - 1} more differ" if len(wrong) > 1 else ""
        raise VitreousError(
            f"The weights in {self.file!r} are of another architecture than {self.model}: "
            f"{first!r} is {shapes[0]} in the file and {shapes[1]} in the model{more}; name the "
            "model that they were trained as."
        )

    def check_share(self, names: Sequence[str]) -> None:
        """Raise unless the file has at least `MIN_SHARE` of the model's tensors."""
        matched, total = len(self.matched), len(self.learned)
        if matched >= MIN_SHARE * total:
            return
        nearest = nearest_names(self.missing[0], names)
        like = f"; the nearest to it in the file are {', '.join(nearest)}" if nearest else ""
        how_many = f"Only {matched}" if matched else "None"
        raise VitreousError(
            f"{how_many} of the {total} tensors of {self.model} are in {self.file!r}, which is "
            f"less than {MIN_SHARE:.0%}: it lacks {enumerate_names(self.missing, 2)}{like}; name "
            "the model that they were trained as, or give a complete checkpoint."
        )

    def check_depth(self) -> None:
        """Raise if the file has more layers of a stack than the model."""
        stacks = {re.sub(r"\d+", "#", k) for k in self.matched if re.search(r"\d", k)}
        further = [k for k in self.unused if re.sub(r"\d+", "#", k) in stacks]
        if further:
            raise VitreousError(
                f"The weights in {self.file!r} are of a deeper model than {self.model}, which has "
                f"no {enumerate_names(further, 2)}; name the model that they were trained as."
            )
