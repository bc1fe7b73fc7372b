"""Tests for the report in a real browser: it shows what the run recorded, and works with mouse and keyboard."""

from __future__ import annotations

import base64
import json
import math
import re
import shutil
import zlib
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from bertmill.report.page import write_report, write_run_report
from tests.report.conftest import HOSTILE
from tests.report.test_page import large_run  # noqa: F401 (a fixture)

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Debian's chromium")

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
DESKTOP, PHONE = {"width": 1280, "height": 900}, {"width": 360, "height": 740}

OpenPage = Callable[..., "Page"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def open_page(browser: Browser) -> Iterator[OpenPage]:
    """Opens a file. The test fails if the page logs an error or requests another file."""
    problems: list[str] = []
    contexts = []

    def open_file(path: Path, **options: Any) -> Page:
        context = browser.new_context(**{"viewport": DESKTOP, **options})
        contexts.append(context)
        page = context.new_page()
        page.on(
            "console", lambda message: problems.append(message.text) if message.type in ("error", "warning") else None
        )
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on(
            "request", lambda request: None if request.url.startswith(path.as_uri()) else problems.append(request.url)
        )
        page.goto(path.as_uri())
        return page

    yield open_file
    for context in contexts:
        context.close()
    assert not [each for each in problems if not each.startswith("blob:")]


def lines_of(run: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (run / "log.jsonl").read_text(encoding="utf-8").splitlines()]


def evaluation_of(run: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((run / "evaluation.json").read_text(encoding="utf-8"))
    return content


def short(value: float) -> str:
    """A number as tables show it."""
    return str(int(value)) if value == int(value) else f"{value:.4f}"


def headings(page: Page) -> list[str]:
    return page.locator("h2").all_inner_texts()


def read_last_values(page: Page, plot: str) -> str:
    """Read the values at the last step of a plot with the keyboard."""
    figure = page.locator(".figure", has=page.locator("h3", has_text=re.compile(f"^{plot}$")))
    figure.locator("svg").focus()
    page.keyboard.press("End")
    return figure.locator(".readout").inner_text()


def test_a_pretraining_report_shows_the_metrics_of_the_log(open_page: OpenPage, pretrained_run: Path) -> None:
    page = open_page(pretrained_run / "report.html")
    assert page.title() == "bertmill: run"
    sections = ["Curves", "Metrics on held-out text", "Predicted pieces", "Attention", "Settings and provenance"]
    assert headings(page) == sections
    *_, trained, evaluated = lines_of(pretrained_run)
    readout = read_last_values(page, "MLM loss")
    assert readout == f"step 12: training {trained['mlm_loss']:.4f}, held-out {evaluated['heldout_mlm_loss']:.4f}"
    tiles = page.locator(".tiles").inner_text()
    assert f"{100 * evaluated['heldout_mlm_accuracy']:.1f}%" in tiles
    accuracy = evaluation_of(pretrained_run)["metrics"]["mlm_accuracy"]
    assert f"95% CI: {100 * accuracy['low']:.1f}% – {100 * accuracy['high']:.1f}%" in tiles
    assert f"{short(accuracy['low'])} – {short(accuracy['high'])}" in page.locator("#metrics").inner_text()
    assert evaluation_of(pretrained_run)["baseline"]["answer"] in tiles
    texts = page.locator("svg text").all_text_contents()
    vocabulary_size = evaluation_of(pretrained_run)["vocabulary_size"]
    assert f"random guessing {math.log(vocabulary_size):.4f}" in texts
    assert any(each.startswith("piece frequencies alone") for each in texts)


def test_predicted_pieces_match_the_evaluation(open_page: OpenPage, pretrained_run: Path) -> None:
    page = open_page(pretrained_run / "report.html")
    instances = evaluation_of(pretrained_run)["predictions"]
    number = max(range(len(instances)), key=lambda number: len(instances[number]["positions"]))
    page.locator("#predictions select").select_option(str(number))
    page.locator("#predictions button.piece").last.click()
    position = instances[number]["positions"][-1]
    detail = page.locator(".predictions-detail").inner_text()
    assert f"expected {position['expected']}" in detail
    for guess in position["guesses"]:
        assert guess["piece"] in detail
        assert f"{100 * guess['probability']:.1f}%" in detail


def test_a_classifier_report_shows_metrics_classes_and_confusion(open_page: OpenPage, finished: Path) -> None:
    page = open_page(finished / "report.html")
    evaluation = evaluation_of(finished)
    metric = evaluation["metrics"]["accuracy"]
    table = page.locator("#metrics").inner_text()
    cells = page.locator("#metrics tbody tr").first.locator("td").all_inner_texts()
    assert cells[:2] == [short(metric["value"]), f"{short(metric['low'])} – {short(metric['high'])}"]
    assert evaluation["baseline"]["answer"] in table
    assert "Warning" not in table
    matrix = page.locator("svg.confusion")
    matrix.focus()
    page.keyboard.press("ArrowRight")
    count = evaluation["confusion"][0][1]
    assert f"expected no, predicted yes: {count} of" in page.locator("#confusion").inner_text()
    assert page.locator("#classes tbody tr").count() == 2


def test_a_report_warns_that_nothing_was_learned(open_page: OpenPage, finished: Path, tmp_path: Path) -> None:
    run = shutil.copytree(finished, tmp_path / "run")
    content = evaluation_of(run) | {"warning": "the model is not clearly better than the <b>baseline</b>."}
    (run / "evaluation.json").write_text(json.dumps(content), encoding="utf-8")
    write_run_report(run)
    shown = open_page(run / "report.html").locator("#metrics .warning").inner_text()
    assert shown == f"Warning: {content['warning']}"


def decoded(page: dict[str, Any], num_heads: int) -> np.ndarray:
    size = page["stop"] - page["start"]
    levels = np.frombuffer(zlib.decompress(base64.b64decode(page["weights"])), np.uint8)
    return (levels.reshape(-1, num_heads, size, size) / 255) ** 2


def test_attention_shows_the_weights_of_the_selected_layer_head_and_piece(open_page: OpenPage, finished: Path) -> None:
    page = open_page(finished / "report.html")
    text = evaluation_of(finished)["attention"][0]
    weights = decoded(text["pages"][0], text["num_heads"])
    section = page.locator("#attention")
    section.get_by_role("button", name="2", exact=True).click()
    section.get_by_role("button", name="head 2").click()
    section.locator("button.piece").first.focus()
    page.keyboard.press("ArrowRight")
    detail = page.locator(".attention-detail")
    assert f"From {text['pieces'][1]}" in detail.inner_text()
    assert "layer 2, head 2" in detail.inner_text()
    best = int(weights[1, 1, 1].argmax())
    first_bar = detail.locator(".bar").first.inner_text()
    assert f"{text['pieces'][best]} ·{best}" in first_bar
    assert f"{100 * weights[1, 1, 1, best]:.1f}%" in first_bar


def test_segments_of_a_pair_have_different_styles(open_page: OpenPage, hostile_run: Path) -> None:
    page = open_page(hostile_run / "report.html")
    text = evaluation_of(hostile_run)["attention"][0]
    page.wait_for_selector("#attention button.piece")
    assert page.locator("#attention .piece.a").count() == text["num_first"]
    assert page.locator("#attention .piece.b").count() == len(text["pieces"]) - text["num_first"]


def test_html_in_texts_and_labels_is_shown_as_text(open_page: OpenPage, hostile_run: Path) -> None:
    page = open_page(hostile_run / "report.html")
    assert page.title() == "bertmill: run"
    assert HOSTILE in page.locator("#errors").inner_text()
    assert "<i>x</i>" in page.locator("#classes").inner_text()
    assert page.locator("#report i:not(.legend i)").count() == 0
    assert page.locator("#report b b, #errors b").count() == 0


@pytest.mark.parametrize("kind", ["pretrained", "classifier", "tagger", "answerer"])
def test_every_report_fits_a_phone_and_has_a_dark_theme(
    kind: str, open_page: OpenPage, request: pytest.FixtureRequest
) -> None:
    fixtures = {"pretrained": "pretrained_run", "classifier": "finished"}
    run: Path = request.getfixturevalue(fixtures.get(kind, kind))
    run = run.parent if run.name == "model" else run
    page = open_page(run / "report.html", viewport=PHONE, color_scheme="dark")
    page.wait_for_selector("#attention button.piece")
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.get_by_role("button", name="Switch theme").click()
    assert page.evaluate("document.documentElement.dataset.theme") == "light"


def test_several_runs_are_compared(open_page: OpenPage, finished: Path, hostile_run: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(hostile_run, other)
    write_report([finished, other], tmp_path / "both.html")
    page = open_page(tmp_path / "both.html")
    assert headings(page)[:2] == ["Comparison", "Curves"]
    metric = evaluation_of(other)["metrics"]["accuracy"]
    cells = page.locator("#comparison tbody tr").first.locator("td").all_inner_texts()
    assert cells[1] == f"{short(metric['value'])} ({short(metric['low'])} – {short(metric['high'])})"
    page.get_by_role("button", name="other").click()
    assert HOSTILE in page.locator("#errors").inner_text()


def test_a_long_run_with_many_classes_stays_usable(open_page: OpenPage, large_run: Path) -> None:  # noqa: F811
    write_run_report(large_run)
    page = open_page(large_run / "report.html")
    assert read_last_values(page, "loss").startswith("step 100,000: training 3.")
    matrix = page.locator("svg.confusion")
    matrix.focus()
    page.keyboard.press("ArrowDown")
    assert "expected class number 1, predicted class number 0" in page.locator("#confusion").inner_text()
    assert page.locator("#classes tbody tr").count() == 20
    page.get_by_role("button", name="Show all 77 classes").click()
    assert page.locator("#classes tbody tr").count() == 77
    assert page.evaluate("document.activeElement.rowIndex") == 21  # the first class that the button added


SPOKEN = "[aria-live]"
# The lowest contrast between a text and what is painted behind it. A canvas blends the colors.
LOWEST_CONTRAST = """() => {
  const context = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const put = (color) => { context.fillStyle = color; context.fillRect(0, 0, 1, 1); };
  const luminance = () => [...context.getImageData(0, 0, 1, 1).data].slice(0, 3)
    .map((each) => each / 255).map((each) => (each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4))
    .reduce((sum, each, place) => sum + each * [0.2126, 0.7152, 0.0722][place], 0);
  const contrast = (element) => {
    const layers = [];
    for (let each = element; each; each = each.parentElement) layers.unshift(getComputedStyle(each).backgroundColor);
    layers.forEach(put);
    const behind = element.previousElementSibling;
    if (behind && behind.tagName === "rect" && element.textContent.match(/^[0-9]/)) {
      context.globalAlpha = +getComputedStyle(behind).fillOpacity;
      put(getComputedStyle(behind).fill);
      context.globalAlpha = 1;
    }
    const back = luminance();
    put(getComputedStyle(element)[element.tagName === "text" ? "fill" : "color"]);
    const [low, high] = [back, luminance()].sort((one, other) => one - other);
    return [(high + 0.05) / (low + 0.05), element.textContent];
  };
  const hasText = (element) => [...element.childNodes].some((each) => each.nodeType === 3 && each.data.trim());
  const texts = [...document.querySelectorAll("#report *")].filter((each) => hasText(each) && each.checkVisibility());
  return texts.map(contrast).sort((one, other) => one[0] - other[0])[0];
}"""


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("kind", ["pretrained_run", "finished", "hostile_run"])
def test_texts_contrast_with_what_is_behind_them(
    kind: str, theme: str, open_page: OpenPage, request: pytest.FixtureRequest
) -> None:
    page = open_page(request.getfixturevalue(kind) / "report.html", color_scheme=theme)
    page.wait_for_selector("#attention button.piece")
    contrast, text = page.evaluate(LOWEST_CONTRAST)
    assert contrast >= 4.5, text


def test_values_are_announced_in_one_place_when_arrow_keys_move(open_page: OpenPage, finished: Path) -> None:
    page = open_page(finished / "report.html")
    page.wait_for_selector("#attention button.piece")
    assert page.locator(SPOKEN).count() == 1
    for plot, start in (("#curves svg", "step "), ("svg.confusion", "expected "), ("canvas.matrix", "from ")):
        page.locator(plot).first.focus()
        page.keyboard.press("ArrowRight")
        assert page.locator(SPOKEN).inner_text().startswith(start)
    page.locator("#attention button.piece").first.focus()
    assert " attends to " in page.locator(SPOKEN).inner_text()


def test_everything_focusable_has_a_name_and_an_outline(open_page: OpenPage, finished: Path) -> None:
    page = open_page(finished / "report.html")
    page.wait_for_selector("#attention button.piece")
    page.keyboard.press("Tab")
    while page.evaluate("document.activeElement !== document.body"):
        name, outline = page.evaluate(
            "(({ activeElement: e }) => [e.ariaLabel || e.textContent || e.labels[0].textContent,"
            " getComputedStyle(e).outlineStyle])(document)"
        )
        assert name
        assert outline == "solid", name
        page.keyboard.press("Tab")


def test_tables_have_names_and_headings_are_in_order(open_page: OpenPage, finished: Path) -> None:
    page = open_page(finished / "report.html")
    assert page.locator("table:not([aria-label]), th:not([scope])").count() == 0
    levels = page.evaluate("[...document.querySelectorAll('h1, h2, h3')].map((each) => +each.tagName[1])")
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
