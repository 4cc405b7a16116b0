"""Whether specifications of charts are valid, by Vega-Lite's own schema."""

from __future__ import annotations

from typing import Any

import altair as alt

from vitreous.results import Result
from vitreous.results.charts import chart_spec


def check_charts(result: Result) -> None:
    """Every view has a valid specification. Its rows are not looked at: that would take seconds."""
    for view in result.views:
        spec = chart_spec(result, view, "light")
        spec.pop("datasets", None)
        kind: Any = alt.LayerChart if "layer" in spec else alt.Chart
        kind = alt.ConcatChart if "concat" in spec else kind
        kind.validate(spec)
