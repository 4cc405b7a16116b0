"""The rules of the house, checked on the source itself, so that no file can escape them."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

import vitreous

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "vitreous"
MODULES = sorted(SOURCE.rglob("*.py"))
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in MODULES}
SCRIPTS = [
    p
    for folder in ("tests", "benchmarks", "examples")
    for p in sorted((ROOT / folder).rglob("*.py"))
]

TIERS = (
    ("errors", "hub", "interrupts", "plugin_source", "progress", "random_numbers", "unit_kinds"),
    ("checkpoint_header", "plugins"),
    ("image_size", "model_names", "palette", "storage", "validation"),
    ("results", "config", "devices", "distributed", "model_listing", "weight_pairs"),
    ("models", "data", "specimen"),
    ("training",),
    ("measure", "claims"),
    ("report", "studies"),
    ("explorer",),
    ("commands",),
    ("cli",),
    ("__main__",),
)
"""Rooms from the ground up. A room imports from lower floors; within a floor only what SIDEWAYS
lists."""

SIDEWAYS = {("specimen", "models")}
"""A specimen opens a model by name."""

ONLY = {"claims": {"errors", "plugins", "random_numbers", "results", "storage"}}
"""Stored results can be judged without torch."""

FLOOR = {room: floor for floor, rooms in enumerate(TIERS) for room in rooms}


def room(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Line and room of every import of ours, at the top of a file or within a function; '' is the
    package itself."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module == "vitreous":
            names = [
                f"vitreous.{alias.name}" for alias in node.names if alias.name != "__version__"
            ]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        else:
            continue
        for name in names:
            package, *inside = name.split(".")
            if package == "vitreous":
                yield node.lineno, inside[0] if inside else ""


def allowed(importer: str, imported: str) -> bool:
    if importer == "__init__" or importer == imported:
        return True
    if imported == "":
        return importer == "cli"
    if importer in ONLY:
        return imported in ONLY[importer]
    return FLOOR[imported] < FLOOR[importer] or (importer, imported) in SIDEWAYS


def test_the_rule_itself() -> None:
    """Tried on sentences whose answer is known, because a rule that allows everything would pass
    every file."""
    text = (
        "import vitreous.measure.x\n"
        "def f():\n    from vitreous.specimen import anatomy\n"
        "from vitreous import claims"
    )
    assert list(imports(ast.parse(text))) == [(1, "measure"), (4, "claims"), (3, "specimen")]
    assert allowed("measure", "specimen")
    assert not allowed("specimen", "measure")
    assert not allowed("models", "specimen")
    assert not allowed("claims", "measure")
    assert not allowed("specimen", "")


def test_imports_point_down() -> None:
    wrong = []
    for path in MODULES:
        importer = room(path)
        assert importer == "__init__" or importer in FLOOR, (
            f"{importer} is a new room; give it a floor in TIERS."
        )
        found = imports(TREES[path])
        wrong += [
            f"{path.name}:{line}: {other}" for line, other in found if not allowed(importer, other)
        ]
    assert not wrong


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(SOURCE.parent).with_suffix("").parts).removesuffix(".__init__")


NAMES = {module_name(path): path for path in MODULES}


def imported_modules(tree: ast.AST) -> Iterator[str]:
    """Modules of ours whose import runs, at the top of a file or when a function is called.

    What stands below `if TYPE_CHECKING` never runs.
    """
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if not isinstance(node, (ast.Import, ast.ImportFrom)):
            yield from imported_modules(node)
            continue
        start = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
        for alias in node.names:
            name = start + alias.name
            if name not in NAMES:
                name = name.rpartition(".")[0]  # a function or class of a module
            if name in NAMES:
                yield name


def find_cycle(graph: dict[str, set[str]]) -> list[str]:
    """One cycle of the graph, as names in a row; empty if there is none."""
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_module_imports_itself_through_others() -> None:
    """Imports within functions count: they may put off torch or pandas, but never hide a cycle."""
    hidden = ast.parse("def f():\n    from vitreous.results.result import Result")
    typed = ast.parse("if TYPE_CHECKING:\n    import vitreous.cli")
    assert list(imported_modules(hidden)) == ["vitreous.results.result"]
    assert list(imported_modules(typed)) == []
    assert find_cycle({"a": {"b"}, "b": {"c"}, "c": {"a"}})
    graph = {name: {*imported_modules(TREES[path])} - {name} for name, path in NAMES.items()}
    assert sum(map(len, graph.values())) > len(graph)
    cycle = find_cycle(graph)
    assert not cycle, f"Move what both need into a file below them: {' <- '.join(cycle)}"


def unexplained_imports(text: str) -> Iterator[int]:
    """Lines of imports of ours within functions without a comment, beside or above them."""
    lines = text.split("\n")
    found = {
        node.lineno: node
        for function in ast.walk(ast.parse(text))
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
        if isinstance(node, (ast.Import, ast.ImportFrom))
    }
    next_of_block = 0  # the line after imports whose reason is given
    for start, node in sorted(found.items()):
        end = node.end_lineno or start
        own = "\n".join(lines[start - 1 : end])
        above = lines[start - 2].strip()
        if "#" in own or above.startswith("#") or start == next_of_block:
            next_of_block = end + 1
        elif "vitreous" in own:
            yield start


def test_imports_within_functions_say_why() -> None:
    """Start-up without torch, timm or pandas is a reason; a cycle is none."""
    text = "def f():\n    # torch\n    import vitreous.a\n    import vitreous.b\n    x = 1\n"
    assert [*unexplained_imports(text + "    import vitreous.c")] == [6]
    wrong = [
        f"{path.relative_to(SOURCE)}:{line}"
        for path in MODULES
        for line in unexplained_imports(path.read_text(encoding="utf-8"))
    ]
    assert not wrong, "Import at the top of the file, or say in a comment what is put off."


def test_a_public_name_is_defined_once() -> None:
    homes = defaultdict(set)
    for path in MODULES:
        for node in TREES[path].body:
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and not node.name.startswith("_"):
                homes[node.name].add(str(path.relative_to(SOURCE)))
    assert homes["Result"] == {"results/result.py"}
    twice = {name: sorted(files) for name, files in homes.items() if len(files) > 1}
    assert not twice, "One name, one meaning: rename all but one."


BRANCHES = (
    *(ast.If, ast.For, ast.While, ast.With, ast.ExceptHandler, ast.Assert),
    *(ast.IfExp, ast.comprehension, ast.match_case),
)


def branches(function: ast.AST) -> int:
    """Cyclomatic complexity, which counts the branches within expressions as well."""
    count = 1
    for node in ast.walk(function):
        count += isinstance(node, BRANCHES)
        count += len(node.values) - 1 if isinstance(node, ast.BoolOp) else 0
        count += len(node.ifs) if isinstance(node, ast.comprehension) else 0
    return count


def test_functions_stay_simple() -> None:
    assert branches(ast.parse("if a and b:\n    c = [d for d in e if d]")) == 5
    counts = {
        f"{path.relative_to(SOURCE)}:{node.lineno} {node.name}": branches(node)
        for path in MODULES
        for node in ast.walk(TREES[path])
        if isinstance(node, ast.FunctionDef)
    }
    assert not {name: count for name, count in counts.items() if count > 20}


def test_files_stay_readable() -> None:
    wrong = []
    for path in [*MODULES, *SCRIPTS]:
        text, name = path.read_text(), path.relative_to(ROOT)
        if text.count("\n") >= (600 if path.parent == SOURCE / "models" else 400):
            wrong.append(f"{name} is too long.")
        if path.stem in ("utils", "helpers", "misc", "common"):
            wrong.append(f"{name}: name it after what it does.")
        if text.strip() and not ast.get_docstring(TREES.get(path) or ast.parse(text)):
            wrong.append(f"{name}: a file says first what it is for.")
    assert not wrong


def test_functions_stay_short() -> None:
    """Without the docstring: whatever explains a public function may take its room."""
    long = []
    for path in MODULES:
        for node in ast.walk(TREES[path]):
            if isinstance(node, ast.FunctionDef):
                says = len((ast.get_docstring(node, clean=False) or "").splitlines())
                if (node.end_lineno or 0) - node.lineno + 1 - says >= 50:
                    long.append(f"{path.name}:{node.name}")
    assert not long


def test_public_names_are_few_and_exist() -> None:
    assert len(vitreous.__all__) <= 20
    assert dir(vitreous) == sorted(vitreous.__all__)
    for name in vitreous.__all__:
        assert getattr(vitreous, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        vitreous.nonsense  # noqa: B018


def test_plain_data_needs_no_torch() -> None:
    """Anatomies can be read, drawn and judged, and the command line answers, on a machine that
    never wakes torch."""
    light = [
        "vitreous",
        "vitreous.cli",
        "vitreous.errors",
        "vitreous.commands.doctor",
        "vitreous.specimen.drawing",
    ]
    light += [f"vitreous.{name}" for name in ("results", "claims") if (SOURCE / name).exists()]
    heavy = "{'torch', 'timm', 'pandas'}"
    script = f"import sys, {', '.join(light)}; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT / "src"
    )
    assert done.stdout.strip() == "[]"


LOCAL = re.compile(
    "|".join(
        [
            r"/(?:work|root|home)/\w",
            r"\.\./" + "shared",
            r"py" + r"pi\.org",
            "python" + "hosted",
            r"download\." + "pytorch",
            r"hugging" + r"face\.co\b",
        ]
    )
)
"""What belongs to one machine or to a package host. In pieces, so that this file does not find
itself."""


def test_no_machine_and_no_host_in_the_repository() -> None:
    assert LOCAL.search("see /wor" + "k/main")
    assert not LOCAL.search("a framework/model")
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode != 0:
        pytest.skip("not a git repository")
    found = []
    for name in filter(None, listed.stdout.split("\0")):
        try:
            text = (ROOT / name).read_text(encoding="utf-8")
        except (UnicodeDecodeError, FileNotFoundError, IsADirectoryError):
            continue
        found += [f"{name}: {hit.group()}" for hit in LOCAL.finditer(text)]
    assert not found
