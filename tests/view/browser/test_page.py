"""The page in a real browser: Debian's chromium, driven by selenium (``make test-view``)."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver import ActionChains
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.select import Select
from selenium.webdriver.support.wait import WebDriverWait

from gem_core.cli import main
from gem_core.runs.directory import episode_store as store
from gem_core.runs.directory.run_dir import RunDir
from gem_view.api import Viewer
from gem_view.export import export

from ..conftest import ATTACK, log_step

SECONDS = 20
DOT = (  # a PNG of one point
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="
)


@pytest.fixture(scope="module")
def chromium():
    paths = [shutil.which("chromium"), shutil.which("chromedriver")]
    assert all(paths), "install chromium and its driver: apt-get install chromium chromium-driver"
    options = webdriver.ChromeOptions()
    options.binary_location = paths[0]
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=Service(paths[1]))
    yield browser
    browser.quit()


class Page:
    """The browser at one address."""

    def __init__(self, browser, address):
        self.browser = browser
        self.address = address

    def open(self, page=""):
        self.browser.get("about:blank")
        self.browser.get(f"{self.address}#/{page}")
        return self

    def all(self, selector):
        return self.browser.find_elements(By.CSS_SELECTOR, selector)

    def one(self, selector):
        return self.wait(lambda: self.all(selector), selector)[0]

    def wait(self, condition, what=""):
        return WebDriverWait(self.browser, SECONDS, 0.05).until(lambda _: condition(), what)

    def text(self, selector="main"):
        return self.one(selector).text

    def has(self, text, selector="main"):
        self.wait(lambda: text in self.browser.find_element(By.CSS_SELECTOR, selector).text, text)

    def press(self, *keys):
        ActionChains(self.browser).send_keys(*keys).perform()

    def rows(self):
        return self.js("return [...document.querySelectorAll('.row .id')].map((e) => e.innerText)")

    def js(self, code):
        return self.browser.execute_script(code)


@pytest.fixture
def page(chromium, server):
    chromium.set_window_size(1000, 800)
    page = Page(chromium, server.address)
    page.open()
    yield page
    errors = [entry["message"] for entry in chromium.get_log("browser")]
    assert errors == []  # also none of the content security policy


def test_runs_are_listed_filtered_and_drawn(page):
    page.has("2 of 2 runs")
    assert [row.text for row in page.all("#runs tbody td:nth-child(5)")] == ["oat", "trl"]
    assert len(page.all(".chart path")) == 2
    page.press("/")
    page.press("trl")
    page.has("1 of 2 runs")
    page.wait(lambda: len(page.all(".chart path")) == 1)


def test_a_curve_is_read_zoomed_and_smoothed(page):
    page.open("run/0").has("Learning curve")
    chart = page.one(".chart svg")
    page.wait(lambda: page.all(".chart path"))
    whole = page.one(".chart path").get_attribute("d")
    assert "not smoothed" in page.text()
    ActionChains(page.browser).move_to_element_with_offset(chart, 120, 0).perform()
    page.has("step 2", ".readout")
    assert "0.6667" in page.text(".readout")
    ActionChains(page.browser).move_to_element(chart).click_and_hold().move_by_offset(
        200, 0
    ).release().perform()
    page.wait(lambda: page.one(".chart path").get_attribute("d") != whole)
    chart.send_keys("0")
    page.wait(lambda: page.one(".chart path").get_attribute("d") == whole)
    page.one("input[type=range]").send_keys(Keys.END)
    page.has("smoothed by 0.95")
    assert page.one(".chart path").get_attribute("d") != whole
    Select(page.one("main select")).select_by_value("reward/mean")
    page.wait(lambda: "reward/mean" in page.one(".chart svg").get_attribute("aria-label"))


def test_episodes_are_filtered_sorted_and_opened(page):
    page.open("run/0/episodes").has("12 of 12 episodes")
    assert page.rows() == [str(k) for k in range(1, 13)]
    Select(page.all("#filters select")[2]).select_by_value("0")
    page.has("1 of 12 episodes")
    assert page.rows() == ["3"]
    page.open("run/0/episodes").has("12 of 12 episodes")
    page.one("[data-sort=reward]").click()
    page.wait(lambda: page.rows()[0] == "3")
    page.one("[data-sort=reward]").click()
    page.wait(lambda: page.rows()[-1] == "3")
    page.press("/", "no such text")
    page.has("0 of 12 episodes")
    page.open("run/0/episodes?text=again&step_min=3").has("4 of 12 episodes")
    page.press("j", "j", Keys.ENTER)
    page.has("Episode 11 of test/oat/seed0")


def test_a_long_list_has_few_rows_and_scrolls_to_its_end(page, runs):
    run = RunDir(runs / "test" / "oat" / "seed0")
    rows = list(store.read_records(run.path / store.FILE))[:8]
    repeated = [
        {**row, "step": step} if row["step"] == 1 else row
        for step in range(4, 2004)
        for row in rows
    ]
    store.append(run.path, repeated)
    page.open("run/0/episodes")
    total = 12 + 4 * 2000  # the second four lines are of step 2 each time
    page.has(f"{total:,} of {total:,} episodes")
    page.wait(lambda: "indexed" not in page.text("#count"))
    assert len(page.rows()) < 60
    page.js("document.querySelector('.scroll').scrollTop = 1e9")
    page.wait(lambda: page.rows()[-1:] == [str(12 + 8 * 2000)])
    assert page.all(".row")[-1].get_attribute("data-row") == str(total - 1)


def test_an_episode_turn_by_turn_with_coloured_tokens(page):
    page.open("run/0/episode/1").has("Turn 2")
    first = page.one("#turn0").text
    assert "advantage 0.500" in first and "Guess a number & win." in first and "dice" in first
    assert "terminated" in page.text()
    Select(page.one("#colouring")).select_by_value("logprob")
    tokens = page.all("#turn1 .action .token")
    assert "".join(token.text for token in tokens) == r"\boxed{7}"
    colours = {token.value_of_css_property("background-color") for token in tokens}
    assert len(colours) > 4
    assert "log-probability -0.1000" in tokens[0].get_attribute("title")
    page.one("body").click()
    page.press("c")
    page.wait(lambda: Select(page.one("#colouring")).first_selected_option.text == "advantage")
    page.press("n")
    page.has("Episode 2 of")


def test_a_script_in_an_observation_does_not_run(page):
    page.open("run/0/episode/2").has(ATTACK)
    page.js("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    assert page.js("return window.attacked") is None
    assert page.all("main img, main script") == []
    page.open("compare?runs=0,1&step=1&split=train&idx=1").has("equal to the last token")
    page.wait(lambda: "onerror" in page.text(".side"))
    assert page.js("return window.attacked") is None


def test_the_policy_stops_a_script_that_got_into_the_page(page):
    page.js(
        "const s = document.createElement('script'); s.textContent = 'window.attacked = 3';"
        "document.body.append(s);"
    )
    page.browser.execute_script("document.body.setAttribute('onclick', 'window.attacked = 4')")
    page.one("h1").click()
    assert page.js("return window.attacked") is None
    blocked = [entry["message"] for entry in page.browser.get_log("browser")]
    assert len([line for line in blocked if "Content Security Policy" in line]) == len(blocked) >= 1


def test_the_same_task_side_by_side_with_the_first_token_at_which_they_part(page):
    for box in page.wait(lambda: page.all("#runs input")):
        box.click()
        page.wait(lambda: True)
    page.wait(lambda: page.all(".bar button:not(:disabled)"))[0].click()
    page.has("step 1, train 0")
    page.one("#different").click()
    page.wait(lambda: len(page.all("#tasks tbody tr")) == 1)
    page.press(Keys.ESCAPE)
    page.one("#tasks a").click()
    page.has("in the action of turn 2: oat 57, trl 55", "#parting")
    page.wait(lambda: [mark.text for mark in page.all(".side .parted")] == ["9", "7"])


def test_a_running_training_is_followed_without_reloading(page, runs):
    run = RunDir(runs / "test" / "trl" / "seed0")
    page.open("run/1/episodes").has("12 of 12 episodes")
    page.has("following 2 runs", "#live")
    time.sleep(2.5)  # the page has asked for the state once
    log_step(run, 4, guess=9)
    page.has("16 of 16 episodes")
    page.open("run/1").has("4/3")
    page.js("window.same = true")
    time.sleep(2.5)
    log_step(run, 5, guess=9)
    page.has("5/3")
    assert page.js("return window.same") is True


def test_keys_and_dark_and_light(page):
    page.open("run/0/episodes").has("12 of 12 episodes")
    light = page.one("body").value_of_css_property("background-color")
    page.press("t")
    page.wait(lambda: page.one("body").value_of_css_property("background-color") != light)
    page.press("t")
    page.press("?")
    page.has("next, previous episode", "#keys")
    page.press(Keys.ESCAPE)
    page.press("u")
    page.has("Learning curve")
    page.press("g")
    page.has("2 of 2 runs")
    page.press("j", "j", Keys.ENTER)
    page.has("test/trl/seed0", "h1")


@pytest.mark.parametrize("width", [500, 1000])
def test_no_page_is_wider_than_the_window(page, width):
    page.browser.set_window_size(width, 800)
    task = "compare?runs=0,1&step=1&split=train&idx=2"
    for path in ("", "run/0", "run/0/episodes", "run/0/episode/2", "compare?runs=0,1", task):
        page.open(path)
        page.wait(lambda: page.all("h1"))
        page.wait(lambda: page.all(".row, .turn, table, .side"))
        wide = page.js("return document.documentElement.scrollWidth - window.innerWidth")
        assert wide <= 0, path


def test_an_exported_file_needs_no_server(chromium, runs, tmp_path):
    target = tmp_path / "report.html"
    assert main(["view", str(runs), "--export", str(target)]) == 0
    page = Page(chromium, target.as_uri())
    chromium.get_log("browser")
    page.open().has("2 of 2 runs")
    page.wait(lambda: len(page.all(".chart path")) == 2)
    page.open("run/0/episodes").has("12 of 12 episodes")
    Select(page.all("#filters select")[2]).select_by_value("0")
    page.has("1 of 12 episodes")
    page.open("run/0/episode/2").has(ATTACK)
    assert page.js("return window.attacked") is None
    page.open("compare").has("step 1, train 0")
    page.open("compare?runs=0,1&step=1&split=train&idx=2").has("oat 57, trl 55", "#parting")
    assert chromium.get_log("browser") == []
    assert Path(target).stat().st_size < 1_000_000


def test_the_report_of_a_comparison_is_shown_as_text_with_its_pictures(chromium, runs, tmp_path):
    report = {
        "summary": f"1 of 2 cells. {ATTACK}",
        "sections": [
            {"title": "Table", "head": ["trainer", ATTACK], "rows": [["oat", ATTACK]]},
            {"title": "Failed", "items": [ATTACK]},
            {"title": "Plots", "pictures": [{"name": "dot", "data": DOT}]},
        ],
    }
    target = export(Viewer([runs]), tmp_path / "report.html", report=report)
    page = Page(chromium, target.as_uri())
    chromium.get_log("browser")
    page.open().has("1 of 2 cells. " + ATTACK, "#report")
    assert [cell.text for cell in page.all("#report td")] == ["oat", ATTACK]
    page.wait(lambda: page.js("return document.querySelector('#report img').naturalWidth") == 1)
    assert page.js("return window.attacked") is None
    assert chromium.get_log("browser") == []


def test_an_exported_directory_without_runs_shows_its_report(chromium, tmp_path):
    viewer = Viewer([tmp_path], allow_none=True)
    report = {"summary": "0 of 1 cells finished.", "sections": []}
    page = Page(chromium, export(viewer, tmp_path / "report.html", report=report).as_uri())
    page.open().has("0 of 1 cells finished.", "#report")
    page.has("0 of 0 runs")
