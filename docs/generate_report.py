"""Draw the first screen of the demo's report, light and dark: report.webp and report-dark.webp.

    make demo && python docs/generate_report.py demo/report.html

Needs Chromium. The table of contents is cut off, so that the picture is legible at 720 pixels.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from PIL import Image

HOME = Path(__file__).resolve().parent
sys.path.insert(0, str(HOME.parent / "tests"))  # the driver of the browser, which tests need, too

from report.browser import browser, found  # noqa: E402

WIDTH, HEIGHT, CONTENTS, SCALE = 1340, 900, 250, 2
"""Of the window, of the table of contents with its margin, and device pixels for each of these."""
COMPLETE = (
    "document.querySelectorAll('.key .drawn svg, .key .drawn canvas').length === "
    "document.querySelectorAll('.key .chart').length && document.querySelector('#explorer canvas')"
)
"""Whether the three charts and the attention explorer are drawn."""


def main() -> None:
    report = Path(sys.argv[1] if len(sys.argv) > 1 else "demo/report.html").resolve()
    program = found()
    if program is None or not report.is_file():
        sys.exit(f"This needs Chromium and a report at {report}: make demo writes one.")
    with browser(program) as page, tempfile.TemporaryDirectory() as folder:
        for theme, name in (("light", "report.webp"), ("dark", "report-dark.webp")):
            page.open(report, WIDTH, HEIGHT, scheme=theme)
            page.call(
                "Emulation.setDeviceMetricsOverride", width=WIDTH, height=HEIGHT,
                deviceScaleFactor=SCALE, mobile=False,
            )  # fmt: skip
            page.wait(COMPLETE)
            page.value("new Promise(done => setTimeout(done, 1000))")  # until nothing fades in
            with Image.open(page.picture(Path(folder) / "shot.png")) as picture:
                cut = picture.convert("RGB").crop((SCALE * CONTENTS, 0, *picture.size))
            cut = cut.resize((cut.width * 3 // 4, cut.height * 3 // 4), Image.Resampling.LANCZOS)
            cut.save(HOME / name, quality=86, method=6)
            print(f"{name}: {cut.width}×{cut.height}, {(HOME / name).stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
