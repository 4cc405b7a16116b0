"""Where runs live: a plain folder that can be copied, compared and mailed, and that survives `kill -9` at any moment.

    recipe.json              what the result depends on: model, data, recipe, seed
    environment.json         what it should not depend on: versions, device, command
    metrics.jsonl            one line per epoch
    weights/*.safetensors    the model at checkpoints: initial, warmup, 33, 66, final
    state.safetensors        everything that resuming needs, the records included
    previous.safetensors     the state before that one, until the run is finished

Every file carries a checksum (`vitreous.files`) that also covers the run it belongs to and its own name, so a file
that was damaged, or that comes from another run or another place in this one, is noticed and never used. Each line of
metrics is chained to the one before.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitreous import files
from vitreous.errors import UnknownName, VitreousError
from vitreous.files import Damaged, explained

if TYPE_CHECKING:
    from torch import Tensor

MOMENTS = ("initial", "warmup", "33", "66", "final")
RECIPE, STATE, PREVIOUS = "recipe.json", "state.safetensors", "previous.safetensors"


class Run:
    """One run's folder."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder).expanduser()
        self.metrics = self.folder / "metrics.jsonl"
        self.state = self.folder / STATE
        self._id = ""
        self._chain = ""
        """The checksum of the last line of metrics."""

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r})"

    @property
    def identity(self) -> dict[str, Any]:
        """What `recipe.json` says."""
        return self._recipe()[0]

    @property
    def id(self) -> str:
        """The checksum of the identity, which every file of the run contains."""
        if not self._id:
            self._id = files.checksum(self.identity)
        return self._id

    @property
    def sealed(self) -> bool:
        """Whether the run's files carry checksums: those of Vitreous 0.1 do not."""
        try:
            return self._recipe()[1]
        except Damaged:
            return True

    def _recipe(self) -> tuple[dict[str, Any], bool]:
        path = self.folder / RECIPE
        if not path.is_file():
            raise VitreousError(
                f"There is no Vitreous run in the folder {str(self.folder)!r}: it has no {RECIPE}."
            )
        return files.read_json(path), f'"{files.FIELD}"' in path.read_text(encoding="utf-8")

    def records(self) -> list[dict[str, Any]]:
        """What was measured, one dict per epoch; the first is before training."""
        if not self.metrics.is_file():
            return []
        try:
            text = self.metrics.read_text(encoding="utf-8")
        except ValueError as error:
            raise self._damaged_metrics(str(error)) from None
        except OSError as error:
            raise VitreousError(
                f"Cannot read {str(self.metrics)!r}: {error.strerror or error}."
            ) from None
        complete, _, _ = text.rpartition("\n")  # a line being written is no line yet
        found, chain = [], self.id
        for number, line in enumerate(complete.splitlines(), 1):
            record, chain = self._record(number, line, chain)
            found.append(record)
        return found

    def _record(self, number: int, line: str, chain: str) -> tuple[dict[str, Any], str]:
        """One line of metrics without its checksum, and the checksum."""
        try:
            record: dict[str, Any] = json.loads(line)
            expected = record.pop(files.FIELD, None)
        except (ValueError, AttributeError, TypeError, RecursionError):
            raise self._damaged_metrics(f"line {number} is no JSON object") from None
        if expected is None and not self.sealed:
            return record, chain
        if expected != _chained(chain, record):
            raise self._damaged_metrics(f"the checksum of line {number} does not match")
        return record, str(expected)

    def _damaged_metrics(self, why: str) -> Damaged:
        return Damaged(self.metrics, why, "the command that made the run restores it")

    def moments(self) -> list[str]:
        """The moments of which there are weights, in the order of training."""
        found = [path.stem for path in (self.folder / "weights").glob("[!.]*.safetensors")]
        return sorted(found, key=lambda name: (MOMENTS.index(name) if name in MOMENTS else 1, name))

    def weights(self, moment: str = "final") -> Path:
        """The file of the model's weights at a checkpoint."""
        path = self.folder / "weights" / f"{moment}.safetensors"
        if path.is_file():
            return path
        if not self.moments():
            raise VitreousError(f"The run {str(self.folder)!r} has no weights yet.")
        hint = f"The run has {', '.join(self.moments())}"
        if moment == "final":
            hint += "; it is not finished, or the file was lost: run its command again to resume or restore it."
        elif moment in MOMENTS and self.state.exists():
            hint += f"; if this one was lost, delete {str(self.folder)!r} and train again."
        else:
            hint += "."
        raise UnknownName("moment", moment, self.moments(), hint)

    def read_weights(self, moment: str = "final") -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The weights at a checkpoint, and what was noted with them; an error if they are damaged."""
        try:
            return self.load(f"weights/{self.weights(moment).name}")
        except Damaged as error:
            again = "the command that made the run restores it"
            lost = f"no other file has these weights: delete {str(self.folder)!r} and train again"
            raise Damaged(error.path, error.why, again if moment == "final" else lost) from None

    @contextlib.contextmanager
    def claimed(self, identity: Mapping[str, Any], need: int, doing: str) -> Iterator[None]:
        """Hold the folder for this process: make it, or check that it holds this very run; check room for `need` bytes.

        Everything that would stop a run in its last epoch is looked for here, before the first. `doing` is what others
        are told meanwhile, such as "training".
        """
        with explained(self.folder):
            (self.folder / "weights").mkdir(parents=True, exist_ok=True)
        with files.locked(self.folder / ".lock", doing):
            free = shutil.disk_usage(self.folder).free
            if free < need:
                raise VitreousError(
                    f"The run needs about {need >> 20} MiB in {str(self.folder)!r} and {free >> 20} MiB are free: "
                    "make room, choose another --out, or keep fewer weights (--set keep=none)."
                )
            for folder in (self.folder, self.folder / "weights"):
                files.sweep(folder)
            self._agree(json.loads(json.dumps(identity)))
            yield

    def _agree(self, identity: dict[str, Any]) -> None:
        self._id = files.checksum(identity)
        path = self.folder / RECIPE
        try:
            known = self.identity if path.exists() else None
        except Damaged as error:
            files.log.warning("%s It is written again.", error)
            known = None
        if known is None:
            self._check_owner()
            files.write_json(path, identity)
            return
        different = list(_differences(known, identity))
        if different:
            raise VitreousError(
                f"{str(self.folder)!r} holds another run: {'; '.join(different[:4])}. "
                "Choose another --out, or remove that folder."
            )

    def _check_owner(self) -> None:
        """Without a recipe, what else is in the folder has to say that it belongs to this run."""
        for path in sorted(
            (*self.folder.glob("[!.]*.safetensors"), *self.folder.glob("weights/[!.]*.safetensors"))
        ):
            try:
                _, notes = files.read_tensors(path, strict=True)
            except VitreousError:
                continue  # nobody will use it
            if notes.get("run") != self._id:
                raise VitreousError(
                    f"{str(self.folder)!r} holds another run: {path.name} belongs to it, and its {RECIPE} is gone. "
                    "Choose another --out, or remove that folder."
                )

    def write(self, name: str, value: Mapping[str, Any]) -> None:
        """A JSON file, complete or not at all."""
        files.write_json(self.folder / name, value)

    def save(self, name: str, tensors: Mapping[str, Tensor], **notes: Any) -> None:
        """A safetensors file, complete or not at all; `notes` go into its header as JSON."""
        files.write_tensors(self.folder / name, tensors, {**notes, "run": self.id, "file": name})

    def load(self, name: str, saved_as: str = "") -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and notes of a file that `save` wrote, perhaps under another name; `Damaged` if it is not that."""
        path, sealed = self.folder / name, self.sealed
        tensors, notes = files.read_tensors(path, strict=sealed)
        if not sealed and "run" not in notes:
            return tensors, notes
        for key, expected, what in (("run", self.id, "run"), ("file", saved_as or name, "file")):
            if notes.get(key) != expected:
                raise Damaged(path, f"it belongs to another {what}")
        return tensors, notes

    def save_state(self, tensors: Mapping[str, Tensor], last: bool, **notes: Any) -> None:
        """The state; the one before stays as a second way back until the `last`, after which nothing is left to do."""
        with explained(self.state):
            if self.state.exists():
                os.replace(self.state, self.folder / PREVIOUS)
        self.save(STATE, tensors, **notes)
        if last:
            (self.folder / PREVIOUS).unlink(missing_ok=True)

    def read_state(self, name: str = STATE) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """A saved state; None, with a notice, if it is damaged."""
        if not (self.folder / name).exists():
            return None
        try:
            return self.load(name, STATE)
        except Damaged as error:
            files.log.warning("%s is damaged (%s) and will not be used.", error.path, error.why)
            return None

    def first_records(self, length: int) -> list[dict[str, Any]]:
        """The first bytes of the metrics: all that a state of Vitreous 0.1 knows of them is how long they were."""
        content = self.metrics.read_bytes()[:length] if self.metrics.is_file() else b""
        remedy = f"delete {str(self.folder)!r} and train again"
        if len(content) < length:
            raise Damaged(self.metrics, "it is shorter than the state says", remedy)
        try:
            return [json.loads(line) for line in content.decode("utf-8").splitlines()]
        except ValueError as error:
            raise Damaged(self.metrics, str(error), remedy) from None

    def append(self, record: Mapping[str, Any]) -> None:
        """One more line of metrics, on the disk when this returns."""
        line, chain = _line(self._chain or self.id, record)
        with explained(self.metrics), self.metrics.open("a", encoding="utf-8") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        self._chain = chain

    def rewrite(self, records: Sequence[Mapping[str, Any]]) -> None:
        """All lines of metrics: those of the state from which a training resumes."""
        lines, self._chain = [], self.id
        for record in records:
            line, self._chain = _line(self._chain, record)
            lines.append(line.encode())
        content = b"".join(lines)
        if not self.metrics.is_file() or self.metrics.read_bytes() != content:
            files.write(self.metrics, content)


def _line(chain: str, record: Mapping[str, Any]) -> tuple[str, str]:
    chain = _chained(chain, record)
    return json.dumps({**record, files.FIELD: chain}) + "\n", chain


def _chained(chain: str, record: Mapping[str, Any]) -> str:
    return files.checksum([chain, record])


def digest(value: Any) -> str:
    """A short name for a value that JSON can hold."""
    return files.checksum(value)[:8]


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
