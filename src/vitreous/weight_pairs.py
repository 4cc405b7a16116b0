"""Which checkpoint belongs to which model, and whether there is such a file, without torch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from vitreous.checkpoint_header import checkpoint_format
from vitreous.errors import NoSuchPath, UnknownName, VitreousError
from vitreous.model_names import path_exists


@dataclass(frozen=True)
class WeightedModel:
    """One of the models of a command: its place among them, its label, and its checkpoint."""

    index: int
    label: str
    weights: str | None = None


def pair_weights(
    names: Sequence[str], weights: str | Path | Sequence[str | Path] | Mapping[str, str | Path]
) -> list[WeightedModel]:
    """Pair models with checkpoints.

    As many checkpoints as models are paired in order. One model with several checkpoints becomes
    several models, labelled by their files. A mapping, or `MODEL=FILE` for all checkpoints, names
    the models that get one.

    >>> [each.label for each in pair_weights(["vit"], ["runs/a.pth", "runs/b.pth"])]
    ['vit (a)', 'vit (b)']
    """
    several = [weights] if isinstance(weights, (str, Path)) else weights
    named = _named_weights(names, several)
    files = [] if isinstance(several, Mapping) else [str(each) for each in several]
    if named:
        for name in named:
            if name not in names:
                raise UnknownName("model to load weights into", name, names)
        pairs = [(i, file) for i, name in enumerate(names) for file in named.get(name, [None])]
    elif not files:
        pairs = [(i, None) for i in range(len(names))]
    elif len(names) == 1:
        pairs = [(0, file) for file in files]
    elif len(files) == len(names):
        pairs = list(enumerate(files))
    else:
        raise VitreousError(
            f"There {'is 1 checkpoint' if len(files) == 1 else f'are {len(files)} checkpoints'} "
            f"for {len(names)} models; give one for each, in "
            f"the order of the models, or say which they belong to: weights={names[0]}={files[0]}."
        )
    return [
        WeightedModel(index, _label(names, pairs, position), file)
        for position, (index, file) in enumerate(pairs)
    ]


def _named_weights(
    names: Sequence[str], given: Iterable[str | Path] | Mapping[str, str | Path]
) -> dict[str, list[str | None]]:
    """Files by model, from a mapping or if all are written `MODEL=FILE`; empty otherwise."""
    if isinstance(given, Mapping):
        return {name: [str(file)] for name, file in given.items()}
    files: dict[str, list[str | None]] = {}
    for each in map(str, given):
        name = next((name for name in names if name and each.startswith(f"{name}=")), None)
        if name is None:
            return {}
        files.setdefault(name, []).append(each.removeprefix(f"{name}="))
    return files


def _label(names: Sequence[str], pairs: Sequence[tuple[int, str | None]], position: int) -> str:
    """A model's label: its name, and if several share it, the shortest end of the checkpoint's path
    that is unique among them."""
    index, file = pairs[position]
    name = names[index]
    files = [f for i, f in pairs if names[i] == name and f is not None]
    if file is None or len(files) < 2 or not name:
        return name
    for length in range(1, len(Path(file).parts) + 1):
        tails = ["/".join(Path(f).with_suffix("").parts[-length:]) for f in files]
        tail = "/".join(Path(file).with_suffix("").parts[-length:])
        if tails.count(tail) == 1:
            return f"{name} ({tail})"
    return f"{name} ({file})"


def check_weights(pairs: Iterable[WeightedModel]) -> None:
    """Raise if a checkpoint does not exist, or is not a checkpoint."""
    for each in pairs:
        if each.weights is None:
            continue
        file, at, _ = each.weights.rpartition("@")
        path = file if at and not path_exists(each.weights) else each.weights
        if not path_exists(path):
            raise NoSuchPath("file or folder", path, "to load weights from")
        if Path(path).expanduser().is_file() and not path.endswith(".index.json"):
            checkpoint_format(Path(path).expanduser())  # raises, and says what the file is instead
