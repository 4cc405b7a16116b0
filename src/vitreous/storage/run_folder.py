"""The folder of a training run: plain files that can be copied and compared, and that survive `kill
-9` at any time.

    recipe.json              what the result depends on: model, data, recipe, seed
    environment.json         what it should not depend on: versions, device, command
    metrics.jsonl            one line per epoch
    weights/*.safetensors    the model at checkpoints: initial, warmup, 33, 66, final; where files
                             have to be small, in parts: final-1-of-2, final-2-of-2
    state.safetensors        everything that resuming needs, including the metrics
    previous.safetensors     the state before that one, until the run is finished

Every file carries a checksum (`atomic_files`) that also covers its run and its name. So a file that
is damaged, or copied from another run or under another name, is never used. Each line of metrics
contains a checksum of itself and the line before.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vitreous.errors import UnknownName, VitreousError
from vitreous.storage.atomic_files import (
    CHECKSUM_FIELD,
    Damaged,
    explain_write_errors,
    log,
    read_json,
    read_tensors,
    remove_partial_files,
    write_bytes,
    write_json,
    write_tensors,
)
from vitreous.storage.fingerprints import checksum
from vitreous.storage.locks import hold_lock

if TYPE_CHECKING:
    from torch import Tensor

CHECKPOINTS = ("initial", "warmup", "33", "66", "final")
_PART = re.compile(r"-\d+-of-\d+$")
RECIPE, STATE, PREVIOUS = "recipe.json", "state.safetensors", "previous.safetensors"
NAMES_OF_IMAGES = ("data.name", "test.name")
"""Where the identity of a training names its images."""


class Run:
    """The folder of one training run."""

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder).expanduser()
        self.metrics = self.folder / "metrics.jsonl"
        self.state = self.folder / STATE
        self._id = ""
        self._chain = ""
        """The checksum in the last line of metrics."""

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r})"

    @property
    def identity(self) -> dict[str, Any]:
        """The content of `recipe.json`."""
        return self._recipe()[0]

    @property
    def id(self) -> str:
        """The checksum of the identity, which every file of the run contains."""
        if not self._id:
            self._id = checksum(self.identity)
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
        return read_json(path), f'"{CHECKSUM_FIELD}"' in path.read_text(encoding="utf-8")

    def records(self) -> list[dict[str, Any]]:
        """The metrics, one dict per epoch; the first is before training."""
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
        complete, _, _ = text.rpartition("\n")  # the last line may still be being written
        records, chain = [], self.id
        for number, line in enumerate(complete.splitlines(), 1):
            record, chain = self._record(number, line, chain)
            records.append(record)
        return records

    def _record(self, number: int, line: str, chain: str) -> tuple[dict[str, Any], str]:
        """One line of metrics without its checksum, and the checksum."""
        try:
            record: dict[str, Any] = json.loads(line)
            expected = record.pop(CHECKSUM_FIELD, None)
        except (ValueError, AttributeError, TypeError, RecursionError):
            raise self._damaged_metrics(f"line {number} is no JSON object") from None
        if expected is None and not self.sealed:
            return record, chain
        if expected != _chain_checksum(chain, record):
            raise self._damaged_metrics(f"the checksum of line {number} does not match")
        return record, str(expected)

    def _damaged_metrics(self, why: str) -> Damaged:
        return Damaged(self.metrics, why, "the command that made the run restores it")

    def checkpoints(self) -> list[str]:
        """The checkpoints that have weights, in the order of training."""

        def order(name: str) -> tuple[int, str]:  # epochs come between the start and the end
            return CHECKPOINTS.index(name) if name in CHECKPOINTS else 1, name

        files = (self.folder / "weights").glob("[!.]*.safetensors")
        return sorted({_PART.sub("", path.stem) for path in files}, key=order)

    def weights(self, checkpoint: str = "final") -> list[Path]:
        """The files of the model's weights at a checkpoint: one, or all its parts."""
        home = self.folder / "weights"
        if (home / f"{checkpoint}.safetensors").is_file():
            return [home / f"{checkpoint}.safetensors"]
        parts = sorted(home.glob(f"{glob.escape(checkpoint)}-*-of-*.safetensors"))
        if parts:
            count = int(parts[0].stem.rpartition("-")[2])
            if len(parts) < count:
                raise VitreousError(
                    f"The weights {checkpoint!r} of {str(self.folder)!r} have {count} parts, and "
                    f"{len(parts)} of them are there; copy the folder again."
                )
            return parts
        if not self.checkpoints():
            raise VitreousError(f"The run {str(self.folder)!r} has no weights yet.")
        hint = f"The run has {', '.join(self.checkpoints())}"
        if checkpoint == "final":
            hint += "; it is not finished, or the file was lost: "
            hint += "run its command again to resume or restore it."
        elif checkpoint in CHECKPOINTS and self.state.exists():
            hint += f"; if this one was lost, delete {str(self.folder)!r} and train again."
        else:
            hint += "."
        raise UnknownName("checkpoint", checkpoint, self.checkpoints(), hint)

    def read_weights(self, checkpoint: str = "final") -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The weights at a checkpoint and their notes; `Damaged` if they are damaged."""
        tensors: dict[str, Tensor] = {}
        notes: dict[str, Any] = {}
        try:
            for path in self.weights(checkpoint):
                part, notes = self.load(f"weights/{path.name}")
                tensors |= part
        except Damaged as error:
            again = "the command that made the run restores it"
            lost = f"no other file has these weights: delete {str(self.folder)!r} and train again"
            raise Damaged(error.path, error.why, again if checkpoint == "final" else lost) from None
        return tensors, notes

    def save_weights(
        self, tensors: Mapping[str, Tensor], checkpoint: str = "final", limit: int = 0, **notes: Any
    ) -> None:
        """Write the weights at a checkpoint, in parts of at most `limit` bytes if there is one."""
        parts: list[dict[str, Tensor]] = [{}]
        room = limit
        for name, tensor in tensors.items():
            size = tensor.numel() * tensor.element_size()
            if limit and parts[-1] and size > room:
                parts.append({})
                room = limit
            room -= size
            parts[-1][name] = tensor
        for number, part in enumerate(parts, 1):
            suffix = f"-{number}-of-{len(parts)}" if len(parts) > 1 else ""
            self.save(f"weights/{checkpoint}{suffix}.safetensors", part, **notes)

    @contextlib.contextmanager
    def hold(self, identity: Mapping[str, Any], need: int, activity: str) -> Iterator[None]:
        """Lock the folder inside the block, after checking everything that could stop a run in its
        last epoch.

        Parameters
        ----------
        identity : Mapping
            What the run depends on. A folder with another identity raises.
        need : int
            Bytes that have to be free on the disk.
        activity : str
            What this process does ("training"), for the error that other processes get.
        """
        with explain_write_errors(self.folder):
            (self.folder / "weights").mkdir(parents=True, exist_ok=True)
        with hold_lock(self.folder / ".lock", activity):
            free = shutil.disk_usage(self.folder).free
            if free < need:
                fewer = ""
                if activity == "training":
                    fewer = ", or keep fewer weights (--set keep=none)"
                raise VitreousError(
                    f"The run needs about {need >> 20} MiB in {str(self.folder)!r} and "
                    f"{free >> 20} MiB are free: make room, or choose another --out{fewer}."
                )
            for folder in (self.folder, self.folder / "weights"):
                remove_partial_files(folder)
            self._check_identity(json.loads(json.dumps(identity)))
            yield

    def forget_identity(self) -> None:
        """Remove `recipe.json`, so that the folder can hold another run. It must have no weights or
        state yet."""
        (self.folder / RECIPE).unlink(missing_ok=True)

    def _check_identity(self, identity: dict[str, Any]) -> None:
        """Write `recipe.json`, or raise if there is one of another run."""
        self._id = checksum(identity)
        path = self.folder / RECIPE
        try:
            known = self.identity if path.exists() else None
        except Damaged as error:
            log.warning("%s It is written again.", error)
            known = None
        if known is None:
            self._check_owner()
            write_json(path, identity)
            return
        self._id = checksum(known)
        different = list(_differences(known, identity))
        if different:
            raise VitreousError(
                f"{str(self.folder)!r} holds another run: {'; '.join(different[:4])}. "
                "Choose another --out, or remove that folder."
            )

    def _check_owner(self) -> None:
        """Raise if the folder has no recipe, but files of another run."""
        files = (
            *self.folder.glob("[!.]*.safetensors"),
            *self.folder.glob("weights/[!.]*.safetensors"),
        )
        for path in sorted(files):
            try:
                _, notes = read_tensors(path, strict=True)
            except VitreousError:
                continue  # damaged, so it will not be used
            if notes.get("run") != self._id:
                raise VitreousError(
                    f"{str(self.folder)!r} holds another run: {path.name} belongs to it, and its "
                    f"{RECIPE} is gone. "
                    "Choose another --out, or remove that folder."
                )

    def write(self, name: str, value: Mapping[str, Any]) -> None:
        """Write a JSON file atomically."""
        write_json(self.folder / name, value)

    def save(self, name: str, tensors: Mapping[str, Tensor], **notes: Any) -> None:
        """Write a safetensors file atomically; `notes` go into its header as JSON."""
        write_tensors(self.folder / name, tensors, {**notes, "run": self.id, "file": name})

    def load(self, name: str, saved_as: str = "") -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors and notes of a file that `save` wrote under this name (or `saved_as`).

        Raises `Damaged` if the file was written by another run or under another name.
        """
        path, sealed = self.folder / name, self.sealed
        tensors, notes = read_tensors(path, strict=sealed)
        if not sealed and "run" not in notes:
            return tensors, notes
        for key, expected, what in (("run", self.id, "run"), ("file", saved_as or name, "file")):
            if notes.get(key) != expected:
                raise Damaged(path, f"it belongs to another {what}")
        return tensors, notes

    def save_state(self, tensors: Mapping[str, Tensor], last: bool, **notes: Any) -> None:
        """Write the state, and keep the previous one in case this one gets damaged.

        With the `last` state of a run, the previous one is removed.
        """
        with explain_write_errors(self.state):
            if self.state.exists():
                os.replace(self.state, self.folder / PREVIOUS)
        self.save(STATE, tensors, **notes)
        if last:
            (self.folder / PREVIOUS).unlink(missing_ok=True)

    def read_state(self, name: str = STATE) -> tuple[dict[str, Tensor], dict[str, Any]] | None:
        """A saved state; None if there is none, or, with a warning, if it is damaged."""
        if not (self.folder / name).exists():
            return None
        try:
            return self.load(name, STATE)
        except Damaged as error:
            log.warning("%s is damaged (%s) and will not be used.", error.path, error.why)
            return None

    def records_up_to(self, length: int) -> list[dict[str, Any]]:
        """The metrics in the first `length` bytes: a state of Vitreous 0.1 has only their
        length."""
        content = self.metrics.read_bytes()[:length] if self.metrics.is_file() else b""
        remedy = f"delete {str(self.folder)!r} and train again"
        if len(content) < length:
            raise Damaged(self.metrics, "it is shorter than the state says", remedy)
        try:
            return [json.loads(line) for line in content.decode("utf-8").splitlines()]
        except ValueError as error:
            raise Damaged(self.metrics, str(error), remedy) from None

    def append(self, record: Mapping[str, Any]) -> None:
        """Append a line of metrics; it is on the disk when this returns."""
        line, chain = _line(self._chain or self.id, record)
        with explain_write_errors(self.metrics), self.metrics.open("a", encoding="utf-8") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
        self._chain = chain

    def rewrite(self, records: Sequence[Mapping[str, Any]]) -> None:
        """Replace all metrics by these records, when a training resumes from an earlier state."""
        lines, self._chain = [], self.id
        for record in records:
            line, self._chain = _line(self._chain, record)
            lines.append(line.encode())
        content = b"".join(lines)
        if not self.metrics.is_file() or self.metrics.read_bytes() != content:
            write_bytes(self.metrics, content)


def _line(chain: str, record: Mapping[str, Any]) -> tuple[str, str]:
    """A line of metrics and its checksum; `chain` is that of the line before."""
    chain = _chain_checksum(chain, record)
    return json.dumps({**record, CHECKSUM_FIELD: chain}) + "\n", chain


def _chain_checksum(chain: str, record: Mapping[str, Any]) -> str:
    return checksum([chain, record])


def _differences(old: Any, new: Any, path: str = "") -> Iterator[str]:
    """The leaves in which two JSON values differ, as `recipe.lr 0.1 there, 0.2 here`.

    Names of images do not count: the same folder has several, and fingerprints say what is in it.
    """
    if path in NAMES_OF_IMAGES:
        return
    if isinstance(old, dict) and isinstance(new, dict):
        for key in {**old, **new}:
            yield from _differences(old.get(key), new.get(key), f"{path}.{key}" if path else key)
    elif old != new:
        yield f"{path} is {_short(old)} there and {_short(new)} here"


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "..."
