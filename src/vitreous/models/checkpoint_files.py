"""Reading a checkpoint without running it: safetensors, or what torch's `weights_only` reads.

| file | written by |
|---|---|
| `.safetensors` | safetensors, Hugging Face, timm |
| `.pth`, `.pt`, `.bin`, `.ckpt`, `.tar` | `torch.save`: plain, timm, torchvision, Lightning, … |
| a folder, or `*.index.json` | Hugging Face, also in shards; a run of `vitreous train` |

A pickle is a program: loading it can call any function. torch's `weights_only` reader calls only
functions that build tensors. Training frameworks also store objects (arguments, paths, whole
models). These are replaced by placeholders, for which nothing is imported or called. A pickle that
calls anything else is refused.
"""

from __future__ import annotations

import json
import pickle
import re
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from textwrap import shorten
from typing import Any, NoReturn

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from vitreous.checkpoint_header import checkpoint_format
from vitreous.errors import NoSuchPath, VitreousError
from vitreous.storage.run_folder import Run

ENDINGS = (".safetensors", ".pth", ".pt", ".bin", ".ckpt", ".tar")
USUAL_FILES = ("model.safetensors", "pytorch_model.bin", "pytorch_model.pt", "model.pth")
"""Names of files with weights in a folder, the preferred ones first."""
DEEPEST = 100
"""Levels of nesting in which tensors are looked for."""
EXPORT = "torch.save(model.state_dict(), 'weights.pth')"

HARMLESS_CALLS = {
    "_codecs.encode", "collections.defaultdict", "copyreg._reconstructor", "datetime.date",
    "datetime.datetime", "datetime.timedelta", "functools.partial", "numpy._core.multiarray.scalar",
    "numpy._core.multiarray._reconstruct", "numpy.core.multiarray._reconstruct",
    "numpy.core.multiarray.scalar", "numpy.dtype", "pathlib.Path", "pathlib.PosixPath",
    "pathlib.PurePosixPath", "pathlib.PureWindowsPath", "pathlib.WindowsPath",
    "pathlib._local.PosixPath", "pathlib._local.WindowsPath", "timm.layers.format.Format",
    "torch.device",
}  # fmt: skip
"""Calls with which frameworks store plain values; they are replaced too."""


def read_checkpoint(path: Path) -> dict[str, Tensor]:
    """Read all tensors of a checkpoint, by dotted names: `state_dict.module.head.weight`.

    Parameters
    ----------
    path
        A file or folder of the kinds above.

    Examples
    --------
    >>> tensors = read_checkpoint(Path("runs/last.pth"))
    """
    if not path.exists():
        raise NoSuchPath("file or folder", str(path), "to load weights from")
    if path.is_dir():
        return _read_folder(path)
    if path.name.endswith(".index.json"):
        return _read_shards(path)
    tensors = dict(named_tensors(_read_file(path)))
    if not tensors:
        raise VitreousError(f"{str(path)!r} holds no tensors; give the file with the weights.")
    return tensors


def has_weights(folder: Path) -> bool:
    """Whether there are files of weights in a folder."""
    return folder.is_dir() and any(path.suffix in ENDINGS for path in folder.iterdir())


def _read_folder(folder: Path) -> dict[str, Tensor]:
    """The weights in a folder of Hugging Face, timm or `vitreous train`."""
    if (folder / "recipe.json").is_file():
        return Run(folder).read_weights("final")[0]
    indices = sorted(folder.glob("*.index.json"), key=lambda path: "safetensors" not in path.name)
    if indices:
        return _read_shards(indices[0])
    files = sorted(path for path in folder.iterdir() if path.suffix in ENDINGS)
    named = [folder / name for name in USUAL_FILES if (folder / name).is_file()]
    if named or len(files) == 1:
        return read_checkpoint((named or files)[0])
    if not files:
        raise VitreousError(
            f"The folder {str(folder)!r} holds no weights; Vitreous looks for files that end in "
            f"{', '.join(ENDINGS)}."
        )
    some = ", ".join(path.name for path in files[:3])
    raise VitreousError(
        f"The folder {str(folder)!r} holds {len(files)} files of weights ({some}, …); name one."
    )


def _read_shards(index: Path) -> dict[str, Tensor]:
    """The tensors of all files that an index of Hugging Face names."""
    try:
        names = sorted(set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()))
        files = [index.parent / Path(name).name for name in names]
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise VitreousError(
            f"{str(index)!r} is no index of weights ({type(error).__name__}); download it again."
        ) from None
    missing = [file.name for file in files if not file.is_file()]
    if missing:
        raise VitreousError(
            f"{len(missing)} of the {len(files)} files that {str(index)!r} names are not beside it "
            f"({missing[0]}, …); download them."
        )
    tensors: dict[str, Tensor] = {}
    for file in files:
        tensors |= named_tensors(_read_file(file))
    return tensors


def _read_file(path: Path) -> Any:
    """Read a file in the format that its first bytes indicate."""
    if checkpoint_format(path) == "torch":
        return _read_torch(path)
    try:
        return load_file(path)
    except SafetensorError as error:
        _refuse(path, f"is damaged ({error})", "copy or download it again")


def _read_torch(path: Path) -> Any:
    """Read a file of `torch.save`, with placeholders for all but tensors and plain values."""
    try:
        names = torch.serialization.get_unsafe_globals_in_checkpoint(path)
    except Exception:  # an old file, TorchScript or another format: the error comes from loading
        names = []
    calls: list[str] = []
    try:
        stand_ins: list[Any] = [(placeholder(name, calls), name) for name in names]
        with (
            path.open("rb") as file,  # a path would be read by its ending
            warnings.catch_warnings(),
            torch.serialization.safe_globals(stand_ins),
        ):
            warnings.simplefilter("ignore")  # about pickle protocols
            return torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        # calls into modules such as os are refused by torch before our stand-in sees them
        blocked = re.findall(r"unsupported GLOBAL (\S+) whose module", str(error))
        if asked := calls or blocked:
            problem = f"calls {asked[0]} as it loads, which could run any code"
        else:
            problem = f"holds more than tensors ({_cause(error)})"
        _refuse(
            path,
            f"is a pickle that {problem}, so Vitreous does not open it",
            f"load it where you trust it, and save only the weights with {EXPORT}",
        )
    except Exception as error:  # a damaged or foreign file can break any part of the reader
        if "TorchScript" in str(error):
            _refuse(path, "is TorchScript", f"save its weights: {EXPORT}")
        _refuse(
            path,
            f"cannot be read as weights ({_damage(path, error)})",
            f"copy it again, or save the weights with {EXPORT}",
        )


def _damage(path: Path, error: Exception) -> str:
    """Describe what is wrong with a file, without details of torch's zip reader."""
    with path.open("rb") as file:
        if file.read(2) != b"PK":
            return f"{type(error).__name__}: {_first_line(error)}"
    if not zipfile.is_zipfile(path):
        return "its end is missing"
    with zipfile.ZipFile(path) as archive:
        pickled = any(name.endswith("data.pkl") for name in archive.namelist())
    return "it is damaged" if pickled else "it is a zip that torch.save has not written"


def _cause(error: Exception) -> str:
    """Extract what torch refused from its long error message."""
    match = re.search(r"WeightsUnpickler error:\s*(.*)", str(error))
    text = match[1] if match else _first_line(error)
    text = text.removeprefix("Unsupported global: ").split(" was not an allowed")[0]
    return shorten(text, 160, placeholder=" …").rstrip(".:;")


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return shorten(lines[0] if lines else "no message", 160, placeholder=" …").rstrip(".:;")


def _refuse(path: Path, problem: str, remedy: str) -> NoReturn:
    raise VitreousError(f"{str(path)!r} {problem}; {remedy}.")


class Placeholder:
    """Stands for an object of a class that was not imported; keeps the attributes it was given."""

    def __new__(cls, *args: Any) -> Placeholder:
        return object.__new__(cls)

    def __setstate__(self, state: Any) -> None:
        # not by setattr: attributes of a class could have setters
        for part in state if isinstance(state, tuple) else (state,):
            if isinstance(part, Mapping):
                self.__dict__.update({str(key): value for key, value in part.items()})


def placeholder(name: str, calls: list[str]) -> Any:
    """A replacement for the global `name` of a pickle; it records calls in `calls` and fails.

    A pickle creates an ordinary object with its class's `__new__` and then sets its attributes,
    which is harmless with a placeholder. It uses everything else, such as functions, by a call.
    """
    if name == "collections.defaultdict":
        return _empty_dict

    class Stand(type):
        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            if name in HARMLESS_CALLS:
                return Placeholder.__new__(cls)  # type: ignore[arg-type]
            calls.append(name)
            raise pickle.UnpicklingError(f"a call of {name}")

    return Stand(name, (Placeholder,), {})


def _empty_dict(*args: Any) -> dict[str, Any]:
    """Replaces `defaultdict`, without its factory."""
    return {}


def named_tensors(
    tree: Any, prefix: str = "", above: tuple[int, ...] = ()
) -> Iterator[tuple[str, Tensor]]:
    """Dotted names of all tensors within mappings, sequences and placeholders of modules.

    `above` has the ids of what `tree` is in. What holds itself is not entered again.
    """
    if isinstance(tree, Tensor):
        yield prefix.removesuffix("."), tree
        return
    if id(tree) in above or len(above) == DEEPEST:
        return
    above = (*above, id(tree))
    if isinstance(tree, Placeholder):
        for part in ("_parameters", "_buffers", "_modules"):  # what nn.Module consists of
            yield from named_tensors(vars(tree).get(part), prefix, above)
    elif isinstance(tree, Mapping):
        for key, value in tree.items():
            yield from named_tensors(value, f"{prefix}{key}.", above)
    elif isinstance(tree, (list, tuple)):
        for number, value in enumerate(tree):
            yield from named_tensors(value, f"{prefix}{number}.", above)
