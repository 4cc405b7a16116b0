"""Every example in the README and the manual is run, and what it says it prints is what it prints.

Within a document the ```python blocks, and the cells of a tutorial, share one namespace, in order.
A line `expression  # → text` is checked against the expression's value. A block that begins with
the name of a file (`%%writefile` in a tutorial) is that file, in the folder where the examples run;
one with a path is left to `test_contributing.py`. In a ```console block every `$ vitreous …` is
run, and the lines shown beneath it have to be in its output, `…` standing for anything left out. A
backslash at the end of a line continues the command.

README, home page and how-to pages show commands on files that every reader has: `photos`,
`photo.jpg`, `first.pth`, `last.pth`, `last.ckpt` and `model.safetensors`. They are there when the
examples run.
"""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import nn
from torch.nn import functional

from other_books import forgotten_books
from vitreous.cli import app, main
from vitreous.data import load
from vitreous.plugins import is_reference

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(path for path in sorted((ROOT / "docs").rglob("*.md")) if "_build" not in path.parts),
]
WITH_FILES = (ROOT / "README.md", ROOT / "docs" / "index.md", ROOT / "docs" / "how-to")
BLOCK = re.compile(
    r"^```(python|console|toml|\{code-cell\} ipython3)\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
HOME = ROOT / "docs" / "index.md"
FILE = re.compile(r"(?:# |%%writefile )(\S+\.(?:py|toml))\n")
SHOWN = re.compile(r"^(?P<expression>\S.*?)  # → (?P<text>.+)$", re.MULTILINE)


def blocks(path: Path) -> list[tuple[int, str, str]]:
    """Line, language and text of every block that can be run, or is a file of its own.

    Those that begin with the path of a file are pieces of it, which test_contributing.py runs.
    """
    text = path.read_text(encoding="utf-8")
    named = [(hit, FILE.match(hit[2])) for hit in BLOCK.finditer(text)]
    hits = [hit for hit, file in named if file is None or "/" not in file[1]]
    return [(text.count("\n", 0, hit.start(2)) + 1, hit[1], hit[2]) for hit in hits]


RUN_BY_README = {text for _, _, text in blocks(ROOT / "README.md")}
"""The home page begins as the README does."""


def run_python(code: str, line: int, path: Path, namespace: dict[str, Any]) -> None:
    checked = SHOWN.sub(lambda hit: f"__shown__(({hit['expression']}), {hit['text']!r})", code)
    exec(compile("\n" * (line - 1) + checked, str(path), "exec"), namespace)


def shown(value: object, text: str) -> None:
    assert str(value) == text


def run_console(block: str, capsys: pytest.CaptureFixture[str]) -> None:
    printed = ""
    for line in re.sub(r"\\\n\s*", "", block).splitlines():
        if line.startswith("$ "):
            printed = ""
            if line.startswith("$ vitreous "):
                with pytest.raises(SystemExit) as end:
                    main(shlex.split(line)[2:])
                said = capsys.readouterr()
                printed = squeeze(said.out + said.err)
                assert end.value.code in (0, 2), line
        elif printed:
            for part in line.split("…"):
                assert squeeze(part) in printed, line


def squeeze(text: str) -> str:
    return " ".join(text.split())


@contextmanager
def forgotten_modules(folder: Path) -> Iterator[None]:
    """Forget what was imported from a folder, because another document may use the same names."""
    try:
        yield
    finally:
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", None)).startswith(str(folder)):
                del sys.modules[name]


@pytest.fixture(scope="session")
def readers_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of photos in three classes, one photo, and two checkpoints of a ResNet-18."""
    folder = tmp_path_factory.mktemp("reader")
    data = load("world:shapes", split="test", size=40)
    few = data.take((data.labels < 3).nonzero()[:12, 0])
    for number, (image, label) in enumerate(zip(few.images, few.labels, strict=True)):
        path = folder / "photos" / data.classes[label] / f"{number:02}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image.permute(1, 2, 0).numpy()).resize((80, 64)).save(path)
    shutil.copy(folder / "photos" / "disc" / "00.jpg", folder / "photo.jpg")
    train_checkpoints(folder)
    return folder


def train_checkpoints(folder: Path) -> None:
    """Train for four steps: weights as initialised would be reported as untrained."""
    data = load(str(folder / "photos"), image=64)
    torch.manual_seed(0)
    model = timm.create_model("resnet18", num_classes=3)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.momentum = 0.5  # its statistics have to follow within four steps
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    for step in range(4):
        optimiser.zero_grad()
        functional.cross_entropy(model(data.normalise(data.images)), data.labels).backward()
        optimiser.step()
        name = "first" if step == 0 else "last"
        torch.save({"epoch": step, "state_dict": model.state_dict()}, folder / f"{name}.pth")
    save_file(model.state_dict(), folder / "model.safetensors")
    nested = {f"model.{name}": value for name, value in model.state_dict().items()}
    torch.save({"state_dict": nested, "hyper_parameters": {"lr": 1e-3}}, folder / "last.ckpt")


def copy_files(source: Path, folder: Path) -> None:
    """Copy photos, which an example may change, and link checkpoints, which are large."""
    for each in source.iterdir():
        if each.suffix in (".pth", ".ckpt", ".safetensors"):
            (folder / each.name).symlink_to(each)
        elif each.is_dir():
            shutil.copytree(each, folder / each.name)
        else:
            shutil.copy(each, folder)


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda p: str(p.relative_to(ROOT)))
def test_examples_run(
    path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    if path in WITH_FILES or path.parent in WITH_FILES:
        copy_files(request.getfixturevalue("readers_files"), tmp_path)
    namespace: dict[str, Any] = {"__name__": "document", "__shown__": shown}
    with (
        forgotten_books(),
        forgotten_modules(tmp_path),
    ):  # and plugins, which other tests have under the same names
        for line, language, text in blocks(path):
            if path == HOME and text in RUN_BY_README:
                continue
            if file := FILE.match(text):
                content = text[file.end() :] if text.startswith("%%") else text
                (tmp_path / file[1]).write_text(content, encoding="utf-8")
            elif language in ("python", "{code-cell} ipython3"):
                run_python(text, line, path, namespace)
            elif language == "console":
                run_console(text, capsys)


LINK = re.compile(r"\]\(([^)\s]+)\)|(?:src|href|srcset)=\"([^\"]+)\"")


def anchors(path: Path) -> set[str]:
    """The headings of a page, as links name them."""
    heads = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).strip().replace(" ", "-") for each in heads}


def test_links_lead_somewhere() -> None:
    """Files of the repository, and headings in them; Sphinx checks the pages of the manual, too."""
    broken = []
    others = [ROOT / "CHANGELOG.md", ROOT / "SECURITY.md", *(ROOT / "results").glob("*.md")]
    for path in [*DOCUMENTS, *others]:
        text = re.sub(r"^```.*?^```$", "", path.read_text(encoding="utf-8"), flags=re.M | re.S)
        for link in ("".join(pair) for pair in LINK.findall(text)):
            file, _, heading = link.partition("#")
            target = path.parent / file if file else path
            if re.match(r"\w+:", link):
                continue
            if not target.exists() or (heading and heading not in anchors(target)):
                broken.append(f"{path.name}: {link}")
    assert not broken


OTHER = re.compile(r"^```(?:text)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^\s*\$ (?:\w+=\S+ )*(?:torchrun .*-m )?vitreous (.+)$", re.MULTILINE)


def test_commands_that_are_not_run_can_be_parsed() -> None:
    """Those that need a network, a GPU or hours: their names and options exist."""
    count = 0
    for path in DOCUMENTS:
        for block in OTHER.findall(path.read_text(encoding="utf-8")):
            for line in COMMAND.findall(re.sub(r"\\\n\s*", " ", block)):
                words = shlex.split(line, comments=True)
                if not is_reference(words[0]):
                    app.parse_args(words, exit_on_error=False, print_error=False)
                    count += 1
    assert count > 50


def test_a_wrong_example_is_noticed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = tmp_path / "wrong.md"
    document.write_text("Text\n\n```python\nx = 1\nx + 1  # → 3\n```\n")
    [(line, language, text)] = blocks(document)
    assert (line, language) == (4, "python")
    with pytest.raises(AssertionError):
        run_python(text, line, document, {"__shown__": shown})
    run_python(text.replace("3", "2"), line, document, {"__shown__": shown})
    with pytest.raises(AssertionError, match=r"9\.9\.9"):
        run_console("$ vitreous \\\n  --version\n9.9.9\n", capsys)
