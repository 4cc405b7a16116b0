"""Models out of run folders: what a run has to remember of its model, and the way back from there."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any

from torch import nn

from vitreous.errors import UnknownName, VitreousError
from vitreous.models import registry
from vitreous.models.weights import Weights, mark
from vitreous.storage.atomic_files import Damaged
from vitreous.storage.run_folder import Run

PICKLES = (".pt", ".pth", ".bin", ".ckpt", ".pkl", ".tar")


def describe(model: nn.Module, name: str | None, **built: Any) -> dict[str, Any]:
    """Plain values from which `rebuild` makes the model again: the call that built it, or its name for `load`.

    Of a module whose maker is not known there is only the class; its weights can still be loaded by hand.
    """
    if isinstance(model, registry.ConfiguredModel):
        return {"build": model.config}
    return {"load": {"name": name, **built}} if name else {"module": type(model).__qualname__}


def rebuild(description: dict[str, Any], where: str) -> nn.Module:
    """The model with fresh weights."""
    from vitreous.models.loading import load

    if "build" in description:
        return registry.build(**description["build"])
    if "load" in description:
        return load(**description["load"])
    raise VitreousError(
        f"The run {where!r} trained a module of your own ({description['module']}): make that module, load a file of "
        "the run's folder 'weights' into it with safetensors.torch.load_model, and give vitreous.open the module."
    )


def load(where: str) -> nn.Module:
    """The model of a run, `folder` or `folder@checkpoint`, or of one file of its weights."""
    folder, _, checkpoint = where.rpartition("@") if "@" in where else (where, "", "final")
    path = Path(folder).expanduser()
    if path.suffix == ".safetensors" and (path.parent.parent / "recipe.json").is_file():
        folder, path, checkpoint = str(path.parent.parent), path.parent.parent, path.stem
    if not (path / "recipe.json").is_file():
        raise _no_run(folder, path)
    try:
        return from_run(Run(path), checkpoint)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise VitreousError(
            f"The run {folder!r} cannot be read: its recipe.json does not describe a run ({type(error).__name__}: "
            f"{' '.join(str(error).split())}); restore that file, or train again."
        ) from error


def from_run(run: Run, checkpoint: str = "final") -> nn.Module:
    """The run's model at a checkpoint; it carries the normalisation and the class names it was trained with."""
    tensors, notes = run.read_weights(checkpoint)
    identity = run.identity
    model = rebuild(identity["model"], str(run.folder))
    try:
        model.load_state_dict(tensors)
    except RuntimeError as error:
        raise VitreousError(
            f"The weights {str(run.weights(checkpoint))!r} do not fit the model that the run's recipe.json describes: "
            f"{str(error).splitlines()[-1].strip()}"
        ) from None
    data = identity["data"]
    known = getattr(model, "pretrained_cfg", None) or {}
    model.pretrained_cfg = {  # type: ignore[assignment]
        **known, "mean": tuple(data["mean"]), "std": tuple(data["std"]), "label_names": tuple(data["classes"])
    }  # fmt: skip
    return mark(model.eval(), _begun(identity["model"]) if notes.get("step") == 0 else "trained")


def _begun(model: dict[str, Any]) -> Weights:
    """With which weights a run began: its own random ones, or some that it was given."""
    return "trained" if "from" in model else "unknown" if "weights" in model else "random"


def nanos() -> list[str]:
    """The models that come with the package."""
    return sorted(path.parent.name for path in _shelf().glob("*/recipe.json"))


def nano(name: str) -> nn.Module:
    """One of them, `vit` or `vit@warmup`."""
    try:
        return load(str(_shelf() / _known(name)))
    except Damaged as error:
        raise Damaged(error.path, error.why, "install Vitreous again") from None


def _known(name: str) -> str:
    if name.partition("@")[0] not in nanos():
        raise UnknownName("bundled model", f"nano:{name}", [f"nano:{each}" for each in nanos()])
    return name


def _shelf() -> Path:
    return Path(str(files("vitreous"))) / "nano"


def _no_run(where: str, path: Path) -> VitreousError:
    """What a path is that is not a run."""
    if not path.exists():
        return VitreousError(f"There is no file or folder {where!r}.")
    if path.suffix in PICKLES:
        return VitreousError(
            f"{where!r} is a pickle, which can run code as it loads, so Vitreous does not open it; "
            "load it yourself and give vitreous.open the module, or convert it to safetensors."
        )
    if path.is_file():
        return VitreousError(
            f"{where!r} holds weights but not the model they belong to, and there is no Vitreous run next to it; "
            "build the model, load the weights into it and give vitreous.open the module."
        )
    other = (path / "config.json").is_file()
    hint = f" With its config.json it may be 'hf:{where}' or 'local-dir:{where}'." if other else ""
    return VitreousError(f"There is no Vitreous run in the folder {where!r}.{hint}")
