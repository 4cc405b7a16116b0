"""Progress of a training on the terminal: a line for every epoch, below it a progress bar."""

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

REFRESH_EVERY = 0.25
"""Seconds between two updates of the bar; reading the loss makes a GPU wait."""

COLUMNS = {
    "epoch": ("epoch", "{:5d}"),
    "train_nll": ("train NLL", "{:9.4f}"),
    "test_nll": ("test NLL", "{:8.4f}"),
    "test_error": ("test error", "{:10.2%}"),
    "lr": ("lr", "{:8.2e}"),
    "gradient_norm": ("gradient", "{:8.3f}"),
    "images_per_second": ("images/s", "{:8.0f}"),
}


class TrainingDisplay:
    """Shows a training on the terminal, and in TensorBoard if that is installed.

    Parameters
    ----------
    show
        Without it nothing is shown.
    title, steps, per_epoch
        Of the run: its name, its steps in total and per epoch.
    """

    def __init__(self, show: bool, title: str, steps: int, per_epoch: int) -> None:
        self.show, self.title, self.steps, self.per_epoch = show, title, steps, per_epoch
        self.console = Console(stderr=True, quiet=not show)
        self.bar = Progress(
            TextColumn("{task.description}"), BarColumn(None), TextColumn("{task.fields[loss]}"),
            TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn(),
            console=self.console, transient=True, expand=True,
            disable=not (show and self.console.is_terminal),
        )  # fmt: skip
        self.task: TaskID | None = None
        self.refreshed = 0.0
        self.board: Any = None

    def __enter__(self) -> TrainingDisplay:
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()
        if self.board is not None:
            self.board.close()

    def begin(self, folder: Path, done: int) -> None:
        """Print the head of the table and start the bar after `done` steps."""
        self.console.print(f"[bold]{self.title}[/]", highlight=False)
        if done:
            resuming = f"resuming after step {done} of {self.steps}"
            self.console.print(resuming, style="dim", highlight=False)
        heads = "  ".join(title.rjust(_width(form)) for title, form in COLUMNS.values())
        self.console.print(heads, style="dim", highlight=False)
        self.bar.start()
        self.task = self.bar.add_task("", total=self.steps, completed=done, loss="")
        self.board = _tensorboard(folder, done // self.per_epoch + 1) if self.show else None

    def step(self, done: int, sums: Any) -> None:
        """Move the bar; `sums` are those of `Step`."""
        if self.task is None or self.bar.disable:
            return
        if time.monotonic() - self.refreshed < REFRESH_EVERY:
            return
        self.refreshed = time.monotonic()
        loss, _, steps = sums.tolist()
        epoch = f"epoch {-(-done // self.per_epoch)} of {-(-self.steps // self.per_epoch)}"
        self.bar.update(
            self.task, completed=done, description=epoch, loss=f"NLL {loss / max(1, steps):.3f}"
        )

    def epoch(self, record: dict[str, Any]) -> None:
        """Print the line of an epoch."""
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
    """A TensorBoard writer, if installed, that drops what was written from `epoch` on."""
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(folder / "tensorboard"), purge_step=epoch)
