"""Figures in a real browser: drawn within the policy, quick with thousands of marks, usable by mouse and keys,
right in both schemes, and with a table that says the same."""

from __future__ import annotations

import re
from typing import Any

import pytest
from playwright.sync_api import expect

from kvaudit.server.audits.models import Run
from tests.browser.looks import axe, faults
from tests.factories import a_team
from tests.server.web import builders
from tests.server.web.deployment import figure_history
from tests.server.web.deployment import figure_measures as measured
from tests.waiting import until

pytestmark = pytest.mark.django_db(transaction=True)

TIMELINE = "#figure-timeline"
CAPACITY = ("#figure-capacity", "#figure-prefill")
PLOT = f"{TIMELINE} [data-plot]"


@pytest.fixture
def past() -> Any:
    return figure_history.a_past("chat-past", team=a_team("platform"), changes=48)


def drawn(page: Any, name: str = TIMELINE) -> Any:
    figure = page.locator(name)
    figure.scroll_into_view_if_needed()
    expect(page.locator(f"{name}[data-drawn]")).to_be_visible()
    return figure


def shown_range(page: Any) -> list[float]:
    return page.evaluate(
        f"(() => {{ const axis = document.querySelector('{PLOT}')._fullLayout.xaxis;"
        " return axis.range.map((end) => axis.r2l(end)); })()"
    )


def width(shown: list[float]) -> float:
    return shown[1] - shown[0]


def paper(page: Any) -> str:
    return page.evaluate(f"document.querySelector('{PLOT}')._fullLayout.paper_bgcolor")


def test_every_figure_is_drawn_within_the_policy_accessible_and_no_wider_than_its_window(visit, past):
    def all_drawn(name: str, page: Any) -> None:
        for figure in {"history": [TIMELINE], "capacity": CAPACITY}.get(name, ()):
            drawn(page, figure)
        if name == "history":
            # 48 changes, three nodes, and a pause with its end
            assert page.locator(f"{TIMELINE} .scatterlayer .point").count() == 48 + 3 + 2

    pages = {
        "history": "/d/chat-past/history/",
        "capacity": "/d/chat-past/capacity/",
        "events": "/d/chat-past/events/",
    }
    assert faults(visit(), pages, prepare=all_drawn) == {}


def test_a_figure_follows_the_scheme_and_keeps_its_zoom(visit, past):
    visitor = visit(color_scheme="light")
    page = visitor.go("/d/chat-past/history/")
    drawn(page)
    page.get_by_role("group", name="Tools of Timeline").get_by_role("button", name="Zoom in").click()
    before = shown_range(page)
    assert paper(page) == "#ffffff"
    page.emulate_media(color_scheme="dark")
    expect(page.locator(f"{TIMELINE}[data-drawn='2']")).to_be_visible()
    assert paper(page) == "#1c2025"
    assert shown_range(page) == before
    assert visitor.complaints == []


def test_it_is_used_from_the_keyboard_alone(visit, past):
    visitor = visit()
    page = visitor.go("/d/chat-past/history/")
    drawn(page)
    plot = page.locator(PLOT)
    plot.focus()
    said = page.locator(f"{TIMELINE} [role=status]")
    page.keyboard.press("End")
    expect(said).to_contain_text(re.compile("Opens what it comes from"))
    last = said.text_content()
    page.keyboard.press("ArrowLeft")
    expect(said).not_to_have_text(last)
    page.keyboard.press("Home")
    expect(said).to_contain_text("pool: pass")
    expect(page.locator(f"{TIMELINE} .hoverlayer .hovertext")).to_be_visible()
    everything = shown_range(page)
    page.keyboard.press("+")
    until(lambda: width(shown_range(page)) < width(everything) * 0.6, "it is zoomed in")
    page.keyboard.press("0")
    until(lambda: shown_range(page) == everything, "everything is shown")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name=re.compile("^Run "))).to_be_visible()
    assert visitor.complaints == []


def test_a_click_on_a_mark_opens_its_run(visit, past):
    visitor = visit()
    page = visitor.go("/d/chat-past/history/")
    drawn(page)
    mark = page.locator(f"{TIMELINE} .scatterlayer .point").first
    box = mark.bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(page.locator(f"{TIMELINE} .hoverlayer .hovertext")).to_be_visible()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(page).to_have_url(re.compile(r"/runs/\d+/#check-[a-z]+$"))
    assert visitor.complaints == []


def test_dragging_zooms_and_a_double_click_shows_everything(visit, past):
    visitor = visit()
    page = visitor.go("/d/chat-past/history/")
    drawn(page)
    everything = shown_range(page)
    area = page.locator(f"{TIMELINE} .nsewdrag").first.bounding_box()
    y = area["y"] + area["height"] - 4
    page.mouse.move(area["x"] + 100, y)
    page.mouse.down()
    page.mouse.move(area["x"] + 300, y, steps=5)
    page.mouse.up()
    until(lambda: shown_range(page)[1] < everything[1], "it is zoomed in")
    page.mouse.dblclick(area["x"] + 200, y)
    until(lambda: shown_range(page) == everything, "everything is shown")
    assert visitor.complaints == []


def test_kinds_are_hidden_by_buttons(visit, past):
    page = visit().go("/d/chat-past/history/")
    figure = drawn(page)
    points = figure.locator(".scatterlayer .point")
    before = points.count()
    button = figure.get_by_role("button", name="pass", exact=True)
    button.focus()
    page.keyboard.press("Enter")
    expect(figure.get_by_role("button", name="pass", exact=True)).to_have_attribute("aria-pressed", "false")
    expect(figure.get_by_role("button", name="pass", exact=True)).to_be_focused()
    expect(points).not_to_have_count(before)
    page.keyboard.press("Enter")
    expect(points).to_have_count(before)


def test_a_figure_is_saved_as_a_picture(visit, past):
    visitor = visit()
    page = visitor.go("/d/chat-past/history/")
    figure = drawn(page)
    with page.expect_download() as saved:
        figure.get_by_role("button", name="Save as a picture").click()
    assert saved.value.suggested_filename == "figure-timeline.png"
    assert [complaint for complaint in visitor.complaints if "blob:" not in complaint] == []


PLAIN_MARKS = """() => {
    const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    for (let n = 0; n < 5000; n++) {
        const mark = document.createElementNS("http://www.w3.org/2000/svg", "path");
        mark.setAttribute("d", `M${n % 900},${n % 300}m-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0`);
        svg.append(mark);
    }
    document.body.append(svg);
    svg.getBBox();
    return new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => { svg.remove(); done(); })));
}"""


def test_five_thousand_marks_are_drawn_at_a_bounded_price(visit):
    """In the time of the browser itself for as many plain marks, so that a slow machine is slow on both sides."""
    busy = figure_history.a_past(
        "chat-busy", team=a_team("platform"), changes=5_000,
        windows=[{"days": [], "from": "22:00", "to": "06:00", "zone": "UTC"}],
    )  # fmt: skip
    builders.a_plan(
        busy, name="nightly", windows=[{"days": [], "from": "01:00", "to": "05:00", "zone": "UTC"}]
    )
    visitor = visit()
    page = visitor.page
    meter = page.context.new_cdp_session(page)
    # Processor time of the page's own thread: other work on the machine must not count.
    meter.send("Performance.enable", {"timeDomain": "threadTicks"})

    def spent() -> float:
        metrics = meter.send("Performance.getMetrics")["metrics"]
        return next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration")

    visitor.go("/d/chat-busy/history/")
    drawn(page)
    assert page.locator(f"{TIMELINE} .scatterlayer .point").count() == 5_005
    began = spent()
    page.evaluate(PLAIN_MARKS)
    plain = spent() - began
    began = spent()
    page.emulate_media(color_scheme="dark")  # draws everything anew
    expect(page.locator(f"{TIMELINE}[data-drawn='2']")).to_be_visible()
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert spent() - began < 40 * plain + 1, plain
    began = spent()
    page.locator(PLOT).press("+")
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert spent() - began < 40 * plain + 1, plain
    assert visitor.complaints == []


def test_without_javascript_the_table_says_the_same(visit, past):
    page = visit(java_script_enabled=False).go("/d/chat-past/history/")
    figure = page.locator(TIMELINE)
    figure.get_by_text("As a table").click()
    assert figure.get_by_role("row").count() == 31
    figure.get_by_role("link", name="All rows").click()
    expect(page.get_by_role("heading", name="Everything that changed")).to_be_visible()
    assert page.get_by_role("row").count() == 48 + 3 + 2 + 1
    assert page.get_by_role("link", name=re.compile(r"^run \d+")).count() == 48


def test_a_figure_that_cannot_be_loaded_says_so_and_unfolds_its_table(visit, past):
    visitor = visit()
    visitor.page.route("**/figures/timeline/", lambda route: route.fulfill(status=500))
    page = visitor.go("/d/chat-past/history/")
    figure = page.locator(TIMELINE)
    expect(figure.get_by_role("alert")).to_contain_text("could not be loaded")
    expect(figure.get_by_role("table")).to_be_visible()
    assert axe(page) == []


def test_strip_and_matrix_have_tables(visit):
    deployment = builders.a_pair("chat-large", team=a_team("platform"))
    run: Run = builders.a_run(deployment, {"rejection": "fail", "canary": "fail"})
    run.results.filter(check_id="rejection").update(measures=measured.REJECTION)
    run.results.filter(check_id="canary").update(measures=measured.canary())
    page = visit().go(f"/runs/{run.pk}/")
    expect(page.get_by_role("img", name=re.compile("^N is 681,274 tokens"))).to_be_visible()
    page.get_by_text("As a table (6 lengths)").click()
    expect(page.get_by_role("cell", name="7, 8, 19, 20, 13,007, 13,019")).to_be_visible()


def test_paper_shows_the_table_of_a_figure_that_nobody_scrolled_to(visit, past):
    visitor = visit()
    page = visitor.go("/d/chat-past/capacity/")
    drawn(page, CAPACITY[0])
    below = page.locator("#figure-prefill")
    assert below.get_attribute("data-drawn") is None, "it is drawn when somebody comes near"
    page.emulate_media(media="print")
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    expect(below.locator("table")).to_be_visible()
    expect(below.locator("[data-plot]")).to_be_hidden()
    expect(page.locator(f"{CAPACITY[0]} table")).to_be_hidden()
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    page.emulate_media(media="screen")
    expect(below.locator("table")).to_be_hidden()
    drawn(page, "#figure-prefill")
    assert visitor.complaints == []


def test_without_the_library_every_figure_says_so_and_shows_its_table(visit, past):
    visitor = visit()
    visitor.page.route("**/plotly-basic*", lambda route: route.abort())
    page = visitor.go("/d/chat-past/history/")
    figure = page.locator(TIMELINE)
    expect(figure.get_by_role("alert")).to_contain_text("its script did not come")
    expect(figure.locator("table")).to_be_visible()


def held_back(visitor: Any, tab: str) -> Any:
    """Open a tab of the deployment and keep plotly's script away; the function that is returned lets it come."""
    held: list[Any] = []
    visitor.page.route("**/plotly-basic*", lambda route: held.append(route))
    with visitor.page.expect_request("**/plotly-basic*"):
        visitor.page.goto(visitor.base + f"/d/chat-past/{tab}/", wait_until="commit")
    return lambda: held[0].continue_()


def test_figures_are_asked_for_while_the_library_still_loads(visit, past):
    visitor = visit()
    with visitor.page.expect_response("**/figures/timeline/") as told:
        let_it_come = held_back(visitor, "history")
    assert told.value.ok
    assert visitor.page.locator(TIMELINE).get_attribute("data-drawn") is None
    let_it_come()
    drawn(visitor.page)
    assert visitor.complaints == []


def test_nothing_jumps_when_a_figure_comes(visit, past):
    visitor = visit()
    let_it_come = held_back(visitor, "capacity")
    capacity = visitor.page.locator("#figure-capacity")
    capacity.scroll_into_view_if_needed()
    before = capacity.bounding_box()["height"]
    let_it_come()
    drawn(visitor.page, "#figure-capacity")
    assert abs(capacity.bounding_box()["height"] - before) < 40
