"""Where runs live: a plain folder that can be copied, compared and mailed, and that survives `kill -9` at any moment.

    recipe.json         what the result depends on: model, data, recipe, seed
    environment.json    what it should not depend on: versions, device, command
    metrics.jsonl       one line per epoch
    weights/*.safetensors   the model at chosen moments: initial, warmup, 33, 66, final
    state.safetensors   all that is needed to go on

Every file but `metrics.jsonl` is written beside its place and renamed, so it is whole or absent. The state knows how
long `metrics.jsonl` was when it was written; going on from it cuts the rest, so no line is lost or doubled.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitreous.errors import UnknownName, VitreousError

if TYPE_CHECKING:
    from torch import Tensor

MOMENTS = ("initial", "warmup", "33", "66", "final")


class Run:
    """One run's folder."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder).expanduser()
        self.metrics = self.folder / "metrics.jsonl"
        self.state = self.folder / "state.safetensors"

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r})"

    @property
    def identity(self) -> dict[str, Any]:
        """What `recipe.json` says."""
        path = self.folder / "recipe.json"
        if not path.is_file():
            raise VitreousError(f"There is no Vitreous run in the folder {str(self.folder)!r}: it has no recipe.json.")
        return json.loads(path.read_text(encoding="utf-8"))

    def records(self) -> list[dict[str, Any]]:
        """What was measured, one dict per epoch; the first is before training."""
        if not self.metrics.is_file():
            return []
        whole, _, _ = self.metrics.read_text(encoding="utf-8").rpartition("\n")  # a line being written is no line yet
        return [json.loads(line) for line in whole.splitlines()]

    def moments(self) -> list[str]:
        """The moments of which there are weights, in the order of training."""
        found = [path.stem for path in (self.folder / "weights").glob("*.safetensors")]
        return sorted(found, key=lambda name: (MOMENTS.index(name) if name in MOMENTS else 1, name))

    def weights(self, moment: str = "final") -> Path:
        """The file of the model's weights at a moment."""
        path = self.folder / "weights" / f"{moment}.safetensors"
        if path.is_file():
            return path
        if not self.moments():
            raise VitreousError(f"The run {str(self.folder)!r} has no weights yet.")
        hint = f"The run has {', '.join(self.moments())}" + (
            "; it is not finished, and the command that began it goes on with it." if moment == "final" else "."
        )
        raise UnknownName("moment", moment, self.moments(), hint)

    @contextlib.contextmanager
    def claimed(self, identity: Mapping[str, Any], need: int) -> Iterator[None]:
        """Hold the folder for this process: make it, or check that it holds this very run; check room for `need` bytes.

        Everything that would stop a run in its last epoch is looked for here, before the first.
        """
        with explained(self.folder):
            (self.folder / "weights").mkdir(parents=True, exist_ok=True)
            lock = os.open(self.folder / ".lock", os.O_CREAT | os.O_RDWR)
        try:
            with explained(self.folder):
                self._lock(lock)
            free = shutil.disk_usage(self.folder).free
            if free < need:
                raise VitreousError(
                    f"The run needs about {need >> 20} MiB in {str(self.folder)!r} and {free >> 20} MiB are free: "
                    "make room, choose another --out, or keep fewer weights (--set keep=none)."
                )
            self._agree(json.loads(json.dumps(identity)))
            yield
        finally:
            os.close(lock)

    def _lock(self, lock: int) -> None:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EACCES):
                return  # a file system without locks
            raise VitreousError(
                f"Another process is training in {str(self.folder)!r}; wait for it, or stop it."
            ) from None

    def _agree(self, identity: dict[str, Any]) -> None:
        if not (self.folder / "recipe.json").is_file():
            self.write("recipe.json", identity)
            return
        different = list(_differences(self.identity, identity))
        if different:
            raise VitreousError(
                f"{str(self.folder)!r} holds another run: {'; '.join(different[:4])}. "
                "Choose another --out, or remove that folder."
            )

    def write(self, name: str, value: Any) -> None:
        """A JSON file, whole or not at all."""
        with self._replacing(name) as temporary:
            temporary.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")

    def save(self, name: str, tensors: Mapping[str, Tensor], **notes: Any) -> None:
        """A safetensors file, whole or not at all; `notes` go into its header as JSON."""
        from safetensors.torch import save  # save_file would leave its own temporary file behind when killed

        plain = {key: tensor.detach().to("cpu", copy=True).contiguous() for key, tensor in tensors.items()}
        with self._replacing(name) as temporary:
            temporary.write_bytes(save(plain, metadata={"vitreous": json.dumps(notes)}))

    def append(self, record: Mapping[str, Any]) -> None:
        """One more line of metrics, on the disk when this returns."""
        with explained(self.metrics), self.metrics.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def cut(self, length: int) -> None:
        """Forget what was written to the metrics after the state."""
        with explained(self.metrics), self.metrics.open("ab") as file:
            file.truncate(length)

    @contextlib.contextmanager
    def _replacing(self, name: str) -> Iterator[Path]:
        path = self.folder / name
        temporary = path.with_name(f".{path.name}.part")
        with explained(path):
            try:
                yield temporary
                with temporary.open("rb+") as file:
                    os.fsync(file.fileno())
                temporary.replace(path)
            finally:
                temporary.unlink(missing_ok=True)


def load(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and notes of a file that `Run.save` wrote."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 - not a mapping
            return tensors, json.loads((file.metadata() or {}).get("vitreous", "{}"))
    except SafetensorError as error:
        raise VitreousError(f"{str(path)!r} is not a safetensors file, or is damaged: {error}.") from None


def digest(value: Any) -> str:
    """A short name for a value that JSON can hold."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:8]


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """What the disk refuses, as one sentence."""
    try:
        yield
    except OSError as error:
        reason = "the disk is full" if error.errno in (errno.ENOSPC, errno.EDQUOT) else error.strerror or str(error)
        raise VitreousError(f"Cannot write {str(path)!r}: {reason}. What was saved before is untouched.") from error


def _differences(old: Any, new: Any, path: str = "") -> Iterator[str]:
    """The leaves in which two JSON values differ, as `recipe.lr 0.1 there, 0.2 here`."""
    if isinstance(old, dict) and isinstance(new, dict):
        for key in {**old, **new}:
            yield from _differences(old.get(key), new.get(key), f"{path}.{key}" if path else key)
    elif old != new:
        yield f"{path} is {_short(old)} there and {_short(new)} here"


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "..."
