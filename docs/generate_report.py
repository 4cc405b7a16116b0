"""Draw the first screen of the demo's report, light and dark: report.webp and report-dark.webp.

    make demo && python docs/generate_report.py demo/report.html

Needs Chromium. The table of contents is cut off, so that the picture is legible at 720 pixels.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image

HOME = Path(__file__).parent
WIDTH, HEIGHT, CONTENTS = 1340, 900, 250
"""Of the window, and of the table of contents with its margin."""


def main() -> None:
    report = Path(sys.argv[1] if len(sys.argv) > 1 else "demo/report.html").resolve()
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None or not report.is_file():
        sys.exit(f"This needs Chromium and a report at {report}: make demo writes one.")
    for theme, name in (("light", "report.webp"), ("dark", "report-dark.webp")):
        with tempfile.TemporaryDirectory() as folder:
            shot = Path(folder) / "shot.png"
            options = (
                "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                "--force-device-scale-factor=2", "--virtual-time-budget=60000",
                f"--window-size={WIDTH},{HEIGHT}", f"--user-data-dir={folder}/profile",
                f"--screenshot={shot}",
            )  # fmt: skip
            address = f"{report.as_uri()}#?theme={theme}"
            subprocess.run([browser, *options, address], check=True, capture_output=True)
            with Image.open(shot) as picture:
                cut = picture.convert("RGB").crop((2 * CONTENTS, 0, *picture.size))
            cut = cut.resize((cut.width * 3 // 4, cut.height * 3 // 4), Image.Resampling.LANCZOS)
            cut.save(HOME / name, quality=86, method=6)
            print(f"{name}: {cut.width}×{cut.height}, {(HOME / name).stat().st_size / 1e3:.0f} kB")


if __name__ == "__main__":
    main()
