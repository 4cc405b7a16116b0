"""A training as one sees it: a line for every epoch, and below a bar that moves with the steps."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

BLINK = 0.25
"""Seconds between two looks at the loss; on a GPU a look makes it wait."""

COLUMNS = {
    "epoch": ("epoch", "{:5d}"),
    "train_nll": ("train NLL", "{:9.4f}"),
    "test_nll": ("test NLL", "{:8.4f}"),
    "test_error": ("test error", "{:10.2%}"),
    "lr": ("lr", "{:8.2e}"),
    "gradient_norm": ("gradient", "{:8.3f}"),
    "images_per_second": ("images/s", "{:8.0f}"),
}


class View:
    """Shows it on the terminal, and to TensorBoard where that is installed; shows nothing if told so."""

    def __init__(self, show: bool, title: str, steps: int, per_epoch: int) -> None:
        self.show, self.title, self.steps, self.per_epoch = show, title, steps, per_epoch
        self.console = Console(stderr=True, quiet=not show)
        self.bar = Progress(
            TextColumn("{task.description}"), BarColumn(None), TextColumn("{task.fields[loss]}"),
            TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(),
            console=self.console, transient=True, expand=True, disable=not (show and self.console.is_terminal),
        )  # fmt: skip
        self.task: TaskID | None = None
        self.looked = 0.0
        self.board: Any = None

    def __enter__(self) -> View:
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()
        if self.board is not None:
            self.board.close()

    def begin(self, folder: Path, done: int) -> None:
        """The head of the table."""
        self.console.print(f"[bold]{self.title}[/]", highlight=False)
        if done:
            self.console.print(
                f"going on after step {done} of {self.steps}", style="dim", highlight=False
            )
        heads = "  ".join(title.rjust(_width(form)) for title, form in COLUMNS.values())
        self.console.print(heads, style="dim", highlight=False)
        self.bar.start()
        self.task = self.bar.add_task("", total=self.steps, completed=done, loss="")
        self.board = _tensorboard(folder, done // self.per_epoch + 1) if self.show else None

    def step(self, done: int, sums: Any) -> None:
        """Move the bar."""
        if self.task is None or self.bar.disable or time.monotonic() - self.looked < BLINK:
            return
        self.looked = time.monotonic()
        loss, _, steps = sums.tolist()
        epoch = f"epoch {-(-done // self.per_epoch)} of {-(-self.steps // self.per_epoch)}"
        self.bar.update(
            self.task, completed=done, description=epoch, loss=f"NLL {loss / max(1, steps):.3f}"
        )

    def epoch(self, record: dict[str, Any]) -> None:
        """Write a line."""
        cells = [
            form.format(record[key]) if key in record else "–".rjust(_width(form))
            for key, (_, form) in COLUMNS.items()
        ]  # fmt: skip
        self.console.print("  ".join(cells), highlight=False)
        if self.board is not None:
            for key, value in record.items():
                if isinstance(value, float):
                    self.board.add_scalar(key, value, record["epoch"])
            self.board.flush()


def _width(form: str) -> int:
    return len(form.format(0))


def _tensorboard(folder: Path, epoch: int) -> Any:
    """A writer, if there is TensorBoard; what an earlier process has told of this epoch and later is forgotten."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(folder / "tensorboard"), purge_step=epoch)
