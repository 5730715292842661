"""The page of described videos in a real browser: what it finds, shows and draws, and that it loads nothing."""

from dataclasses import replace

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tasks.report.videos.page import render_videos
from tests.report.test_page import HOSTILE
from tests.report.test_videos import made, shown


@pytest.fixture(scope="module")
def html(tmp_path_factory):
    """A page with a video of two scenes, one of another tag in its middle, and one with hostile texts."""
    film, other = shown("film"), shown("other", frames=0, parts=1)
    beach = replace(film.parts[1], tags=(("beach", 0.9), ("park", 0.2)), caption="people swim")
    coast = replace(film, job_id="coast", parts=(film.parts[0], beach))
    gone = replace(other, caption=(HOSTILE, 0.1), no_strip="Its frames are no longer in the cache.")
    path = tmp_path_factory.mktemp("report") / "run.html"
    path.write_text(render_videos(made(film, coast, gone)))
    return path


@pytest.fixture
def page(browser, html):
    faults = []
    page = browser.new_page(viewport={"width": 1280, "height": 900})
    page.on("console", lambda message: faults.append(message.text))
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("request", lambda request: request.url.startswith(("data:", html.as_uri())) or faults.append(request.url))
    page.goto(html.as_uri())
    yield page
    page.close()
    assert faults == []


def hits(page):
    return page.locator("#hits li").all_inner_texts()


def test_a_search_finds_the_moment_whose_texts_have_all_words(page):
    page.fill("#query", "Beach")

    assert hits(page) == ["coast beach, 0.900 · 0:10.0 to 0:20.0"]
    expect(page.locator("#found")).to_have_text("1 of 3 videos.")
    expect(page.locator("#shown-video h3")).to_have_text("coast")
    page.fill("#query", "runs dog")
    assert [hit.split()[0] for hit in hits(page)] == ["film", "coast", "other"]
    page.fill("#query", "oth")
    assert [hit.strip() for hit in hits(page)] == ["other"]
    page.fill("#query", "kitchen")
    expect(page.locator("#found")).to_have_text("0 of 3 videos.")
    assert page.locator("#shown-video").inner_text() == ""


def test_the_strip_has_borders_at_scenes_and_the_tags_are_drawn_over_time(page):
    page.fill("#query", "coast")

    expect(page.locator("#shown-video .outcome")).to_have_text("a dog runs")
    assert page.locator(".scene > p").all_inner_texts() == ["scene 1, 0:00.0 to 0:12.0", "scene 2, 0:12.0 to 0:20.0"]
    assert page.locator(".scene").first.locator("img").count() == 2
    drawn = page.locator("#tags svg")
    expect(drawn).to_have_attribute("aria-label", "Tags over time, by their score: beach, park.")
    assert drawn.locator("rect").count() == 3
    assert drawn.locator("line[y1]").count() == 1  # between the two scenes
    assert page.locator(".captions li").all_inner_texts() == [
        "0:00.0 to 0:10.0 a dog runs",
        "0:10.0 to 0:20.0 people swim",
    ]


def test_a_frequent_tag_is_searched_for_by_a_press(page):
    page.get_by_role("button", name="park").first.click()

    expect(page.locator("#query")).to_have_value("park")
    expect(page.locator("#found")).to_have_text("3 of 3 videos.")


def test_hostile_texts_are_shown_as_they_are(page):
    page.fill("#query", "other")
    page.locator("#hits button", has_text="other").click()

    expect(page.locator("#shown-video .outcome")).to_have_text(HOSTILE)
    assert "Its frames are no longer in the cache." in page.locator("#shown-video").inner_text()
    assert page.title().startswith("clips")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_everyone_can_use_it(browser, html, theme):
    page = browser.new_page(viewport={"width": 390, "height": 800}, color_scheme=theme)
    page.goto(html.as_uri())

    found = Axe().run(page).response["violations"]
    width = page.evaluate("document.documentElement.scrollWidth")
    page.close()

    assert [(each["id"], [node["html"] for node in each["nodes"]]) for each in found] == []
    assert width <= 390
