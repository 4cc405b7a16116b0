"""Names of models, parsed and checked without importing torch: a wrong name is reported within a
second.

Names are read from source files, because importing torch takes seconds: ours from the decorators
`family` in `models/`, those of timm and torchvision from theirs. Names that cannot be checked so (a
hub id, a folder of weights, a function of yours) pass, and are checked when they are loaded.
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from vitreous.errors import NoSuchPath, UnknownName, VitreousError, nearest_paths
from vitreous.plugins import MODEL, find_clashes, installed_objects, split_reference

BUNDLED = Path(__file__).with_name("nano")
"""The folder of the small trained models within the package."""

NAMES = (
    "a timm name, hf:ID-OR-FOLDER, tv:NAME, run:FOLDER, nano:NAME, zoo:NAME, or MODULE:FUNCTION or "
    "FILE.py:FUNCTION of your own"
)
"""The forms of a model's name."""

_TIMM = re.compile(r"^@register_model\n(?:@.*\n)*def (\w+)\(", re.MULTILINE)
_TORCHVISION = re.compile(
    r"^@register_model\((?:name=\"(\w+)\")?\)\n(?:@.*\n)*def (\w+)\(", re.MULTILINE
)
_PICTURES = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif", ".tif", ".tiff")
_WEIGHT_FILES = (".safetensors", ".pt", ".pth", ".bin", ".ckpt", ".pkl", ".tar")


def check_models(names: Iterable[str]) -> None:
    """Raise for the first name that cannot be a model."""
    for name in names:
        check_model(name)


def check_model(name: str) -> None:
    """Raise, with the nearest names, if there is no such model; nothing is imported or loaded."""
    source, colon, rest = name.partition(":")
    if not name.strip():
        raise VitreousError(f"A model needs a name, and {name!r} is none: {NAMES}.")
    if name.lower().endswith(_PICTURES) and path_exists(name):
        raise VitreousError(
            f"{name!r} is a picture and not a model; if your shell has put it there for a pattern, "
            "write the pattern in quotes: --data 'photos/*.jpg'."
        )
    if colon and source in _SOURCES:
        _SOURCES[source](rest)
    elif colon:
        _check_function(name)
    elif name.startswith((".", "/", "~")) or Path(name).suffix in _WEIGHT_FILES:
        _check_path(name)
    elif name.endswith(".py"):
        split_reference(name, MODEL)  # which says what is missing
    elif not (_is_ours(name) or _is_timm(name) or _is_plugin(name) or path_exists(name)):
        known = [*ours(), *timm_names(), *torchvision_names(), *plugin_models()]
        raise UnknownName("model", name, known, hint(name))


def hint(name: str) -> str:
    """A sentence about the form of names, for the error about an unknown one."""
    if ":" in name:
        return (
            "A prefix is one of hf:, tv:, run:, nano:, zoo:, hf-hub:, local-dir:, or a module of "
            "yours and its function."
        )
    if "/" in name:
        return f"A Hugging Face model is written 'hf:{name}', a file or folder './{name}'."
    return "`vitreous list models --filter '*vit*'` shows what there is."


@cache
def _family_calls() -> dict[str, tuple[list[str], ast.Call]]:
    """Sizes and decorator call of every family in `models/`, read from `@family("vit", SIZES, …)`.

    The files are parsed and not imported.
    """
    calls = {}
    for path in sorted(Path(__file__).with_name("models").glob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "\n@family(" not in text:
            continue
        body = ast.parse(text).body
        constants = {
            ast.unparse(node.targets[0]): node.value
            for node in body
            if isinstance(node, ast.Assign)
        }
        for call in (each for node in body for each in getattr(node, "decorator_list", ())):
            if isinstance(call, ast.Call) and ast.unparse(call.func) == "family":
                name, sizes = call.args[:2]
                table = constants[ast.unparse(sizes)]
                assert isinstance(table, ast.Dict), f"{path}: write the sizes as one dict"
                keys = [ast.literal_eval(key) for key in table.keys if key]
                calls[ast.literal_eval(name)] = keys, call
    return calls


def families() -> dict[str, list[str]]:
    """The sizes of every family."""
    return {family: sizes for family, (sizes, _) in _family_calls().items()}


def ours() -> list[str]:
    """Our models, as family and size; a patch size may follow."""
    return [f"{family}_{size}" for family, sizes in families().items() for size in sizes]


def ours_with_patches() -> list[str]:
    """Our models with every patch size that their family lists, unless the size fixes it."""
    names = []
    for family, (sizes, call) in _family_calls().items():
        given = {keyword.arg: keyword.value for keyword in call.keywords}
        patches = ast.literal_eval(given["patches"]) if "patches" in given else ()
        by_size = ast.literal_eval(given["by_size"]) if patches and "by_size" in given else {}
        for size in sizes:
            listed = patches and "patch" not in by_size.get(size, {})
            endings = [f"/{patch}" for patch in patches] if listed else [""]
            names += [f"{family}_{size}{ending}" for ending in endings]
    return names


def bundled() -> list[str]:
    """The small trained models within the package."""
    return sorted(path.parent.name for path in BUNDLED.glob("*/recipe.json"))


def zoo_folder() -> Path:
    """The folder of the networks that were trained on CIFAR-10.

    It is `zoo/` in a clone of the repository, or what the environment variable VITREOUS_ZOO says.
    """
    return Path(os.environ.get("VITREOUS_ZOO") or Path(__file__).parents[2] / "zoo").expanduser()


def zoo() -> list[str]:
    """The networks in `zoo_folder()`; none where Vitreous was installed from a wheel."""
    return sorted(path.parent.name for path in zoo_folder().glob("*/recipe.json"))


@cache
def timm_names() -> frozenset[str]:
    """The models that timm registers."""
    return frozenset(name for text in _source("timm") for name in _TIMM.findall(text))


@cache
def torchvision_names() -> frozenset[str]:
    """The classifiers that torchvision registers."""
    pairs = (pair for text in _source("torchvision") for pair in _TORCHVISION.findall(text))
    return frozenset(f"tv:{name or function}" for name, function in pairs)


@cache
def _source(package: str) -> list[str]:
    """The texts of the files in a package's folder `models`; none if it cannot be read."""
    spec = find_spec(package)
    homes = spec.submodule_search_locations if spec is not None else None
    files = sorted(Path(homes[0], "models").glob("*.py")) if homes else []
    return [file.read_text(encoding="utf-8", errors="replace") for file in files]


def plugin_models() -> dict[str, str]:
    """Models of installed packages, by the names of their entry points, as `module:function`.

    Ours and timm's names mean what they always do, and are left out.
    """
    clashes = plugin_clashes()
    installed = installed_objects(MODEL.group)
    return {each.key: each.text for each in installed if each.key not in clashes}


def plugin_clashes() -> dict[str, str]:
    """Installed models whose name cannot be used, and why."""
    keys = [each.key for each in installed_objects(MODEL.group)]
    return find_clashes(MODEL, [key for key in keys if _is_ours(key) or key in timm_names()])


def _is_plugin(name: str) -> bool:
    if name not in plugin_models() and (clash := plugin_clashes().get(name)):
        raise VitreousError(clash)
    return name in plugin_models()


def _is_ours(name: str) -> bool:
    stem, slash, patch = name.partition("/")
    return stem in ours() and patch.isdigit() == bool(slash)


def _is_timm(name: str) -> bool:
    """Whether timm registers a name, or mentions it as a string, as it does deprecated names.

    Also true if timm's source cannot be read.
    """
    stem = name.partition(".")[0]
    if not timm_names() or stem in timm_names():
        return True
    return any(f"'{stem}'" in text or f'"{stem}"' in text for text in _source("timm"))


def _check_torchvision(rest: str) -> None:
    known = torchvision_names()
    if known and f"tv:{rest}" not in known:
        raise UnknownName("torchvision model", f"tv:{rest}", known)


def _check_bundled(rest: str) -> None:
    if rest.partition("@")[0] not in bundled():
        raise UnknownName("bundled model", f"nano:{rest}", [f"nano:{each}" for each in bundled()])


def _check_zoo(rest: str) -> None:
    if not zoo():
        raise VitreousError(
            f"The network 'zoo:{rest}' is in the repository of Vitreous and not in the wheel: "
            "clone the repository and set VITREOUS_ZOO to the path of its folder zoo."
        )
    if rest.partition("@")[0] not in zoo():
        raise UnknownName("network of the zoo", f"zoo:{rest}", [f"zoo:{each}" for each in zoo()])


def before_training(models: Iterable[str]) -> list[str]:
    """`NAME@initial` for every run among the models that saved its initial weights.

    Bundled models are runs, too.
    """
    homes = {"nano:": BUNDLED, "run:": Path()}
    names = []
    for name in models:
        prefix = next((each for each in homes if name.startswith(each)), "")
        folder = homes[prefix] / Path(name.removeprefix(prefix)).expanduser() if prefix else None
        if folder is not None and "@" not in name:
            files = (folder / "weights").glob("initial*.safetensors")
            names += [f"{name}@initial"] if any(files) else []
    return names


def _check_path(rest: str, prefix: str = "") -> None:
    path, at, checkpoint = rest.rpartition("@")
    path = path if at else rest
    if not path_exists(path):
        raise NoSuchPath("file or folder", path, prefix=prefix, suffix=f"@{checkpoint}" * bool(at))


def _check_run(rest: str) -> None:
    _check_path(rest, "run:")


def _check_folder(rest: str) -> None:
    if rest and not path_exists(rest):
        raise NoSuchPath("folder", rest, prefix="local-dir:")
    if not (rest and path_exists(f"{rest}/config.json")):
        raise VitreousError(
            f"There is no config.json in {rest!r}; 'local-dir:' takes a folder that timm has saved."
        )


def _check_hub(rest: str) -> None:
    if not rest.strip():
        raise VitreousError(
            "'hf:' takes a model id, a folder with a config.json or such a file, and not nothing."
        )
    if path_exists(rest):
        return
    # Every vision model of the hub has an owner, so a name without a slash means a folder.
    near = [] if "/" in rest else nearest_paths(rest)
    if rest.startswith((".", "/", "~")) or any(Path(each).is_dir() for each in near):
        raise NoSuchPath("folder", rest, prefix="hf:")


def _check_function(name: str) -> None:
    module, _, function = name.rpartition(":")
    if module.endswith(".py"):
        if not function.isidentifier():
            raise VitreousError(f"{name!r} names no function; write it as '{module}:make'.")
        if not path_exists(module):
            raise NoSuchPath("file", module, suffix=f":{function}")
        return
    words = [*module.split("."), function]
    try:
        exists = all(word.isidentifier() for word in words) and _is_module(words[0])
    except (ImportError, ValueError):
        exists = False
    if not exists:
        raise UnknownName(
            "model",
            name,
            [*torchvision_names(), *(f"nano:{each}" for each in bundled())],
            hint(name),
        )


def _is_module(name: str) -> bool:
    """Whether there is a module, installed or in the current folder, which is not on the path."""
    return find_spec(name) is not None or path_exists(f"{name}.py") or path_exists(name)


def path_exists(path: str) -> bool:
    """Whether there is a file or folder; false for names no file can have (too long, a NUL, …)."""
    try:
        return bool(path) and Path(path).expanduser().exists()
    except (OSError, ValueError, RuntimeError):
        return False


_SOURCES = {
    "hf": _check_hub, "hf-hub": _check_hub, "hf_hub": _check_hub, "tv": _check_torchvision,
    "run": _check_run, "nano": _check_bundled, "zoo": _check_zoo,
    "local-dir": _check_folder,
}  # fmt: skip
