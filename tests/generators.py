"""The scripts that write pages of the manual, as modules."""

from __future__ import annotations

import sys
from functools import cache
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parents[1] / "docs"


@cache
def generator(name: str) -> Any:
    """`docs/generate_NAME.py`."""
    spec = spec_from_file_location(f"generate_{name}", DOCS / f"generate_{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(DOCS))  # one imports another
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(DOCS))
    return module
