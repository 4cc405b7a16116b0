"""The pieces of an analysis that are done, in memory or in a folder, so that an interrupted one goes on."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from vitreous import files, store
from vitreous.files import Damaged
from vitreous.measure.analysis import Numbers
from vitreous.measure.inspection import Inspection

NEED = 64 << 20
"""Bytes that the pieces of an analysis may take."""


class Interrupted(KeyboardInterrupt):
    """An analysis was stopped between two pieces. The questions answered by then are in `inspection`."""

    inspection: Inspection | None = None

    def __init__(self, name: str, done: int, pieces: int, kept: bool) -> None:
        after = "; the same command goes on from there" if kept else ""
        super().__init__(f"Stopped {name} after {done} of {pieces} pieces{after}.")


class Pieces:
    """Numbers by model and piece. A folder has a file for each, written whole or not at all."""

    def __init__(self, folder: Path | str | None, identity: Mapping[str, Any]) -> None:
        self.run = store.Run(folder) if folder is not None else None
        self.identity = identity
        self.found: dict[tuple[str, str], Numbers] = {}
        self.open = ExitStack()

    def __enter__(self) -> Pieces:
        if self.run is not None:
            self.open.enter_context(self.run.claimed(self.identity, NEED, "analysing"))
            for path in sorted(self.run.folder.glob("piece-*.safetensors")):
                try:
                    numbers, notes = self.run.load(path.name)
                except Damaged as error:
                    files.log.warning("%s is damaged (%s); it is computed again.", path, error.why)
                    path.unlink()
                else:
                    self.found[notes["model"], notes["piece"]] = numbers
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self.open.close()

    def add(self, model: str, piece: str, numbers: Numbers) -> None:
        """One more piece."""
        self.found[model, piece] = {name: value.detach().cpu() for name, value in numbers.items()}
        if self.run is not None:
            file = f"piece-{store.digest([model, piece])[:16]}.safetensors"
            self.run.save(file, self.found[model, piece], model=model, piece=piece)
