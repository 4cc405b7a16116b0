"""The manual as a site: it builds without warnings, and a browser finds nothing cut off, nothing
broken and no barrier, at the width of a desk and of a phone.

Notebooks are not executed here; `test_documents.py` runs their cells. Set VITREOUS_SCREENSHOTS to
keep screenshots.
"""

from __future__ import annotations

import functools
import os
import runpy
import sys
import threading
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path

import pytest

from report.browser import Page, browser, found

pytestmark = pytest.mark.filterwarnings("default")
"""Sphinx counts its own warnings; Python's are those of its parts."""

ROOT = Path(__file__).resolve().parent.parent
PAGES = (
    "index", "tutorials/first-report", "tutorials/own-model", "how-to/checkpoint", "how-to/install",
    "reference/probes/cka", "reference/analyses/hessian", "reference/families", "reference/speed",
    "reference/api", "reference/command-line", "reference/corruptions", "reference/recipes",
    "explanation/cka", "explanation/reproduction", "gallery/index",
)  # fmt: skip
"""Each kind of page, and those with the widest tables, formulas and code."""
SEARCHES = {
    "CKA": "reference/probes/cka",
    "CKA minibatch": "reference/probes/cka",
    "attention rollout": "reference/probes/rollout",
    "load checkpoint": "how-to/checkpoint",
    "DataLoader": "how-to/images",
    "saliency": "how-to/show",
    "NaN": "reference/training",
    "ImageNet folder": "how-to/labels",
    "effective receptive field": "reference/analyses/erf",
    "Hessian negative eigenvalues": "reference/analyses/hessian",
    "timm": "reference/families",
    "checkpoint": "how-to/checkpoint",
    "lesion": "reference/analyses/lesion",
    "Hessian": "reference/analyses/hessian",
    "attention distance": "reference/probes/attention_distance",
    "calibration": "reference/probes/calibration",
    "ConViT": "reference/models",
    "bootstrap": "reference/results",
    "verdict": "reference/claims",
    "recipe": "reference/recipes",
}
CUT_OFF = """(() => {
  const found = [];
  if (document.documentElement.scrollWidth > innerWidth) found.push('the page');
  const boxes = 'pre, .table-wrapper, div.math, .cell_output .output';
  for (const each of document.querySelectorAll(boxes))
    if (each.scrollWidth > each.clientWidth + 1)
      found.push(`${each.className}: ${each.textContent.trim().slice(0, 60)}`);
  for (const image of document.images)
    if (image.complete && image.naturalWidth === 0 && image.offsetParent) found.push(image.src);
  return found;
})()"""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The manual, built without a warning."""
    build = pytest.importorskip("sphinx.cmd.build")
    folder, before = tmp_path_factory.mktemp("site"), [*sys.path]
    how = ["-q", "-W", "--keep-going", "-d", str(folder / "trees"), "-D", "nb_execution_mode=off"]
    code = build.main([*how, str(ROOT / "docs"), str(folder / "html")])
    sys.path[:] = before  # docs/conf.py adds to it
    assert code == 0
    return folder / "html"


@pytest.fixture(scope="module")
def address(site: Path) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def tab(address: str) -> Iterator[Page]:
    program = found()
    if program is None:
        pytest.skip("Chromium is not installed")
    with browser(program) as page:
        yield page


def test_it_builds_without_warnings(site: Path) -> None:
    assert "Specimen.observe" in (site / "reference" / "api.html").read_text(encoding="utf-8")
    assert len(list(site.glob("_downloads/*/*.ipynb"))) == 7


def test_notebooks_name_a_kernel_that_every_reader_has(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The manual runs them on this Python without renaming the kernel: a download that names a
    kernel of ours would not start anywhere else."""
    kernelspec = pytest.importorskip("jupyter_client.kernelspec")
    user = tmp_path / "kernels" / "python3"
    user.mkdir(parents=True)
    (user / "kernel.json").write_text('{"argv": ["theirs"], "display_name": "Theirs"}')
    monkeypatch.setenv("JUPYTER_DATA_DIR", str(tmp_path))
    for name in ("JUPYTER_PATH", "PYTHONPATH", "PYTHONWARNINGS"):
        monkeypatch.setenv(name, os.environ.get(name, ""))  # the configuration sets them
    monkeypatch.setattr(sys, "path", [*sys.path])
    settings = runpy.run_path(str(ROOT / "docs" / "conf.py"))
    assert not settings.get("nb_kernel_rgx_aliases")
    for page in (ROOT / "docs" / "tutorials").glob("[!i]*.md"):
        assert "\n  name: python3\n" in page.read_text(encoding="utf-8"), page
    assert kernelspec.KernelSpecManager().get_kernel_spec("python3").argv[0] == sys.executable


@pytest.mark.parametrize("name", PAGES)
def test_nothing_is_cut_off_or_broken(tab: Page, address: str, name: str) -> None:
    tab.said.clear()
    for width, scheme in ((1440, "light"), (390, "dark")):
        tab.open(f"{address}/{name}.html", width, 900, scheme)
        assert tab.value(CUT_OFF) == [], width
        if shots := os.environ.get("VITREOUS_SCREENSHOTS"):
            tab.picture(Path(shots) / f"{name.replace('/', '-')}-{width}-{scheme}.png")
    assert tab.said == []


@pytest.mark.parametrize("name", ["index", "tutorials/own-model", "reference/probes/cka"])
def test_there_are_no_barriers(tab: Page, address: str, name: str) -> None:
    spec = find_spec("axe_core_python")
    if spec is None or not spec.submodule_search_locations:
        pytest.skip("axe-core is not installed")
    source = (Path(spec.submodule_search_locations[0]) / "axe.min.js").read_text(encoding="utf-8")
    for scheme in ("light", "dark"):
        tab.open(f"{address}/{name}.html", 1440, 900, scheme)
        tab.value(f"{source}; undefined")
        violations = tab.value(
            "axe.run(document, {resultTypes: ['violations']}).then((found) => found.violations.map("
            "(each) => `${each.id}: ${each.nodes.slice(0, 3).map((n) => n.html.slice(0, 160))}`))"
        )
        assert violations == [], "\n".join(violations)


@pytest.mark.parametrize("term", SEARCHES)
def test_the_search_finds(tab: Page, address: str, term: str) -> None:
    tab.open(f"{address}/search.html?q={term.replace(' ', '+')}", 1440, 900)
    wanted = f"#search-results a[href*='{SEARCHES[term]}.html']"
    tab.wait(f'document.querySelector("{wanted}")', seconds=20)
