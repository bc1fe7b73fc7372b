"""Write a screenshot of the top of a report: make_report_screenshot.py REPORT.html OUT.png. Needs chromium."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from playwright.sync_api import ViewportSize, sync_playwright

SIZE = ViewportSize(width=1280, height=900)


def write_screenshot(report: Path, out: Path) -> None:
    """Write the top of the report, in the light theme, as a PNG file."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport=SIZE, color_scheme="light")
        page.goto(report.resolve().as_uri())
        page.wait_for_load_state("networkidle")
        page.screenshot(path=out)
        browser.close()


if __name__ == "__main__":
    write_screenshot(Path(sys.argv[1]), Path(sys.argv[2]))
