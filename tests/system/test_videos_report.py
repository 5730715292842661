"""The page of described videos in a real browser: what it finds, shows and draws, and that it loads nothing."""

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from tasks.report.videos import render_videos
from tests.report.test_page import HOSTILE
from tests.report.test_videos import shown, videos_report


@pytest.fixture(scope="module")
def html(tmp_path_factory):
    """A page with a video of two scenes, one of another tag in its middle, and one with hostile texts."""
    film = shown("film")
    tags = [{"text": "beach", "score": 0.9}, {"text": "park", "score": 0.2}]
    beach = film["parts"][1] | {"tags": tags, "caption": "people swim"}
    coast = shown("coast", parts=0) | {"parts": [film["parts"][0], beach]}
    gone = shown("other", frames=0, parts=1, caption=HOSTILE, no_strip="Its frames are no longer in the cache.")
    path = tmp_path_factory.mktemp("report") / "run.html"
    path.write_text(render_videos(videos_report(film, coast, gone)))
    return path


@pytest.fixture
def page(open_page, html):
    return open_page(html)


def listed_ids(page):
    """The ids of the cards that are listed, in order."""
    return page.locator(".card:visible summary b").all_inner_texts()


def card(page, job_id):
    return page.locator(f"#job-{job_id}")


def test_a_search_finds_the_videos_and_marks_the_moments_that_have_all_words(page):
    page.fill("#query", "Beach")

    assert listed_ids(page) == ["coast"]
    expect(page.locator("#found")).to_have_text("1 of 3.")
    page.keyboard.press("Enter")
    expect(card(page, "coast").locator(".outcome")).to_be_visible()
    expect(card(page, "coast").locator("li.hit")).to_contain_text("0:10.0 to 0:20.0 beach")
    page.fill("#query", "runs dog")
    assert listed_ids(page) == ["film", "coast", "other"]
    page.fill("#query", "oth")
    assert listed_ids(page) == ["other"]
    page.fill("#query", "film")  # the ID, and not the heading of each strip
    assert listed_ids(page) == ["film"]
    for own in ("strip", "scene", "tags", "0.400", "s3"):
        page.fill("#query", own)
        assert listed_ids(page) == [], own
    page.fill("#query", "kitchen")
    expect(page.locator("#found")).to_have_text("0 of 3.")
    page.fill("#query", "")
    assert listed_ids(page) == ["film", "coast", "other"]
    expect(page.locator("li.hit")).to_have_count(0)


def test_the_strip_has_borders_at_scenes_and_the_tags_are_drawn_over_time(page):
    page.fill("#query", "coast")
    page.keyboard.press("Enter")

    shown = card(page, "coast")
    expect(shown.locator(".outcome")).to_have_text("a dog runs 0.400")
    assert shown.locator(".scene > p").all_inner_texts() == ["scene 1, 0:00.0 to 0:12.0", "scene 2, 0:12.0 to 0:20.0"]
    assert shown.locator(".scene").first.locator("img").count() == 2
    drawn = shown.locator(".tags")
    expect(drawn).to_have_attribute("aria-label", "Tags over time, by their score: beach, park.")
    assert drawn.locator("rect").count() == 3
    assert drawn.locator("svg").first.locator("line").count() == 1  # between the two scenes
    assert shown.locator(".chunks li").all_inner_texts() == [
        "0:00.0 to 0:10.0 park 0.500 a dog runs",
        "0:10.0 to 0:20.0 beach 0.900park 0.200 people swim",
    ]


def test_a_frequent_tag_is_searched_for_by_a_press(page):
    page.get_by_role("button", name="park").first.click()

    expect(page.locator("#query")).to_have_value("park")
    expect(page.locator("#found")).to_have_text("3 of 3.")


def test_hostile_texts_are_shown_as_they_are(page):
    page.fill("#query", "other")
    page.keyboard.press("Enter")

    expect(card(page, "other").locator(".outcome")).to_have_text(f"{HOSTILE} 0.400")
    expect(card(page, "other")).to_contain_text("Its frames are no longer in the cache.")
    assert page.title().startswith("clips")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_everyone_can_use_it(browser, html, theme):
    page = browser.new_page(viewport={"width": 390, "height": 800}, color_scheme=theme)
    page.goto(html.as_uri())
    for each in page.locator(".card").all():
        each.evaluate("card => card.open = true")

    found = Axe().run(page).response["violations"]
    width = page.evaluate("document.documentElement.scrollWidth")
    page.close()

    assert [(each["id"], [node["html"] for node in each["nodes"]]) for each in found] == []
    assert width <= 390
