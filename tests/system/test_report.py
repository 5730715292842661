"""The page of a run in a real browser: what it computes, finds and draws, and that it loads nothing."""

import random

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from reelabel.decode.gops import spans_to_decode
from reelabel.errors import SamplingRefusedError
from reelabel.sampling.options import Sampling
from reelabel.sampling.properties import VideoProperties
from reelabel.sampling.registry import choose_indices, dense_samplers
from reelabel.sampling.uniform import pick_evenly
from reelabel.text import printable
from tasks.report.chunks import ShownChunk
from tasks.report.page import render
from tasks.report.trade import select_trade_off
from tests.report.rows import report, shown_job, strip
from tests.report.test_page import HOSTILE
from tests.report.test_trade import evaluation

CLIPS = 1_500
# Line ends for JavaScript, though not for JSON.
SEPARATED = "Which\u2028colour\u2029now?"
CHUNKS = (
    ShownChunk(number=0, start_s=0, end_s=1.9998, label="blue", code=None, message=None, margin=0.5),
    ShownChunk(number=1, start_s=2, end_s=3.9998, label="red", code=None, message=None, margin=0.8, strip=0),
    ShownChunk(number=2, start_s=4, end_s=None, label=None, code="no_frames", message="It hangs.", margin=None),
)
SAMPLERS = tuple(dense_samplers())


@pytest.fixture(scope="module")
def html(tmp_path_factory):
    """A page with every section, hostile questions, and a clip of two keyframes."""
    jobs = [
        shown_job("clip-7"),
        shown_job("clip-8", strip=1, others=(0,), before="blue", reasons=("changed label",), question=SEPARATED),
        shown_job("film", strip=None, no_strip="", chunks=CHUNKS),
        shown_job("hostile", question=HOSTILE, strip=None, no_strip="No frames were taken.", reasons=("sample",)),
    ]
    made = report(
        jobs=jobs, strips=[strip(), strip(frames=1)], trade=select_trade_off(evaluation(), "5" * 16), labels=99_999
    )
    path = tmp_path_factory.mktemp("report") / "run.html"
    path.write_text(render(made))
    return path


@pytest.fixture
def opened(browser, html):
    """Open the page so wide and in such a theme; whatever it logs or asks for fails the test."""
    pages, faults = [], []

    def open_page(width=1280, theme="light"):
        page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=theme)
        page.on("console", lambda message: faults.append(message.text))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", lambda request: faults.append(request.url) if is_elsewhere(request.url) else None)
        page.goto(html.as_uri())
        pages.append(page)
        return page

    def is_elsewhere(url):
        return not url.startswith(("data:", html.as_uri()))

    yield open_page
    for page in pages:
        page.close()
    assert faults == []


@pytest.fixture
def page(opened):
    return opened()


def set_slider(page, name, value):
    page.locator(f"#{name}").evaluate(
        "(slider, value) => { slider.value = value; slider.dispatchEvent(new Event('input', {bubbles: true})) }",
        value,
    )


def counts(page, row):
    numbers = page.locator(f"#numbers-{row} b")
    return {each.get_attribute("data-count"): int(each.inner_text().replace(",", "")) for each in numbers.all()}


def clips():
    """Clips of every kind, the same ones each time."""
    draw = random.Random(20)
    rates = [1, 12, 12.5, 23.976, 24, 24000 / 1001, 25, 29.97, 30, 30000 / 1001, 50, 59.94, 60]
    for _ in range(CLIPS):
        total = draw.choice([draw.randint(2, 60), draw.randint(2, 2_000), draw.randint(2, 60_000)])
        yield {
            "totalFrames": total,
            "fps": draw.choice(rates),
            "numFrames": draw.randint(1, 64),
            "gop": draw.randint(1, 300),
        }


def in_python(clip, samplers=SAMPLERS):
    """What the code that runs picks of a clip, and what it decodes for that."""
    total = clip["totalFrames"]
    keyframes = list(range(0, total, clip["gop"]))
    facts = VideoProperties(total_frames=total, fps=clip["fps"], duration_s=total / clip["fps"])
    picks = {"keyframes": [keyframes[at] for at in pick_evenly(len(keyframes), clip["numFrames"])]}
    for name in samplers:
        sampling = Sampling(sampler=name, num_frames=clip["numFrames"])
        try:
            picks[name] = choose_indices(sampling, facts).tolist()
        except SamplingRefusedError:
            picks[name] = []
    spans = {name: spans_to_decode(dict.fromkeys(positions), keyframes) for name, positions in picks.items()}
    decoded = {name: sum(last - first + 1 for first, last in found) for name, found in spans.items()}
    return [picks, decoded]


IN_JAVASCRIPT = """(clips) => clips.map((clip) => {
    const { SAMPLERS, sampleKeyframes } = window.reelabelPicks;
    const { placeKeyframes, spansToDecode, countFrames } = window.reelabelPicks;
    clip.keyframes = placeKeyframes(clip.totalFrames, clip.gop);
    const picks = { keyframes: sampleKeyframes(clip) };
    for (const [name, sample] of Object.entries(SAMPLERS)) picks[name] = sample(clip);
    const decoded = Object.fromEntries(Object.entries(picks).map(
        ([name, positions]) => [name, countFrames(spansToDecode(positions, clip.keyframes))]));
    return [picks, decoded];
})"""


def test_picks_in_the_browser_equal_those_of_the_code(page):
    every = list(clips())

    got = page.evaluate(IN_JAVASCRIPT, every)

    replayed = page.evaluate("Object.keys(window.reelabelPicks.SAMPLERS)")
    assert set(replayed) == set(SAMPLERS)
    for clip, in_javascript in zip(every, got, strict=True):
        assert in_javascript == in_python(clip, replayed), clip


def test_sliders_move_and_the_numbers_follow(page):
    for name, value in (("fps", 24), ("length", 20), ("gop", 120), ("frames", 8)):
        set_slider(page, name, value)

    clip = {"totalFrames": 480, "fps": 24, "numFrames": 8, "gop": 120}
    picks, decoded = in_python(clip)
    assert counts(page, "keyframes") == {"shown": 8, "distinct": 4, "decoded": 4}
    assert counts(page, "uniform") == {"shown": 8, "distinct": 8, "decoded": decoded["uniform"]}
    assert counts(page, "sampler")["decoded"] == decoded["qwen2_vl"]
    expect(page.locator("#keyframes-out")).to_have_text("4")
    page.locator("#sampler").select_option("fps")
    assert counts(page, "sampler") == {"shown": 40, "distinct": len(set(picks["fps"])), "decoded": decoded["fps"]}
    set_slider(page, "keyframes", 1)
    expect(page.locator("#gop-out")).to_have_text("480")
    assert counts(page, "keyframes") == {"shown": 8, "distinct": 1, "decoded": 1}
    expect(page.locator("#replay-keyframes .repeats")).to_have_text("0.00 s \N{MULTIPLICATION SIGN}8")


def test_sliders_can_be_moved_by_keyboard(page):
    page.locator("#frames").focus()
    page.keyboard.press("ArrowRight")

    expect(page.locator("#frames-out")).to_have_text("17")
    assert counts(page, "keyframes")["shown"] == 17


def test_a_job_is_found_by_its_id_and_its_clip_is_replayed(page):
    page.get_by_label("Job ID").fill("clip-7")
    page.keyboard.press("Enter")

    shown = page.locator("#shown-job")
    expect(shown.get_by_role("heading", name="clip-7")).to_be_visible()
    expect(shown.get_by_label("Question")).to_contain_text("Which colour?")
    expect(shown.get_by_role("img", name="Frame at 2.00 s, shown 8 times")).to_have_count(1)
    expect(shown.locator(".chosen .share")).to_have_text("0.900")
    expect(shown.locator("#track svg")).to_have_attribute(
        "aria-label", "Timeline of the file, 4.00 s: 2 keyframes, 2 frames shown."
    )
    page.get_by_role("button", name="Replay its picks").click()
    expect(page.locator("#replay-of")).to_contain_text("The clip of clip-7")
    assert counts(page, "keyframes") == {"shown": 16, "distinct": 2, "decoded": 2}
    expect(page.locator("#gop-out")).to_have_text("as in the file")


def test_the_chunks_of_a_job_are_on_a_timeline_with_their_labels_and_frames(page):
    page.get_by_label("Job ID").fill("film")
    page.keyboard.press("Enter")

    shown = page.locator("#shown-job")
    expect(shown.locator("#chunks svg")).to_have_attribute(
        "aria-label", "Timeline of 3 chunks: 1 with the label of the job."
    )
    expect(shown).to_contain_text("3 chunks: blue 1, red 1, no_frames 1.")
    expect(shown.locator("#shown-chunk")).to_have_text("film#1, from 2.00 s to 4.00 s: red, margin 0.800")
    expect(shown.get_by_role("img", name="Frame at 2.00 s, shown 8 times")).to_have_count(1)

    shown.get_by_role("button", name="#2 no_frames").click()

    expect(shown.locator("#shown-chunk")).to_have_text("film#2, from 4.00 s to the end: no_frames: It hangs.")
    expect(shown).to_contain_text("reelabel report 1a2b3c4d --job 'film#2'")
    expect(page.get_by_label("Job ID")).to_have_value("film#2")


@pytest.mark.parametrize("keyframe_times_s", [tuple(9.0 * at for at in range(100)), None])
def test_a_clip_beyond_the_range_of_the_sliders_is_replayed_unchanged(browser, tmp_path, keyframe_times_s):
    clip = {"totalFrames": 108_000, "fps": 120.0, "numFrames": 128, "gop": 1_080}
    facts = {"fps": 120.0, "total_frames": 108_000, "duration_s": 900.0, "keyframes_in_file": 100}
    made = report(
        strips=[strip(**facts, keyframe_times_s=keyframe_times_s)],
        sampling={"sampler": "keyframes", "num_frames": 128},
    )
    (tmp_path / "run.html").write_text(render(made))
    page = browser.new_page()
    page.goto((tmp_path / "run.html").as_uri())
    expect(page.locator("#frames-out")).to_have_text("128")
    page.get_by_label("Job ID").fill("clip-7")
    page.keyboard.press("Enter")

    page.get_by_role("button", name="Replay its picks").click()
    page.locator("#sampler").select_option("fps")

    picks, decoded = in_python(clip)
    for row, name in (("keyframes", "keyframes"), ("uniform", "uniform"), ("sampler", "fps")):
        assert counts(page, row) == {
            "shown": len(picks[name]),
            "distinct": len(set(picks[name])),
            "decoded": decoded[name],
        }
    for name, text in (("length", "900 s"), ("fps", "120"), ("frames", "128"), ("keyframes", "100")):
        expect(page.locator(f"#{name}-out")).to_have_text(text)
    expect(page.locator("#replay-uniform .repeats")).to_contain_text(f"{picks['uniform'][1] / 120:.2f} s")
    page.close()


def test_a_job_shows_what_other_samplers_chose(page):
    page.get_by_label("Job ID").fill("clip-8")
    page.keyboard.press("Enter")

    shown = page.locator("#shown-job")
    expect(shown.get_by_role("heading", name="Frames of other samplers")).to_be_visible()
    expect(shown.get_by_text("16 frames, 2 distinct, 2 decoded in 3.5 ms")).to_be_visible()
    expect(shown.get_by_role("img", name="Frame at 2.00 s, shown 8 times")).to_have_count(1)


def test_a_page_tells_how_to_see_a_job_that_was_left_out(page):
    page.get_by_label("Job ID").fill("it's elsewhere")
    page.get_by_role("button", name="Show").click()

    expect(page.locator("#shown-job code")).to_have_text("reelabel report 1a2b3c4d --job 'it'\\''s elsewhere'")


def test_links_and_reasons_open_jobs(page):
    page.locator("#time").get_by_role("link", name="clip-7").click()
    expect(page.locator("#shown-job").get_by_role("heading", name="clip-7")).to_be_visible()

    page.get_by_role("button", name="changed label (1)").click()
    expect(page.locator("#shown-job")).to_contain_text("previously blue")
    assert page.get_by_label("Question").text_content() == printable(SEPARATED)


def test_a_hostile_question_stays_text(page):
    page.get_by_label("Job ID").fill("hostile")
    page.keyboard.press("Enter")

    expect(page.get_by_label("Question")).to_have_text(HOSTILE)
    assert page.title().startswith("clips")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_has_no_accessibility_violations(opened, theme, width):
    page = opened(width=width, theme=theme)
    page.get_by_label("Job ID").fill("clip-7")
    page.keyboard.press("Enter")

    found = Axe().run(page)

    assert found.violations_count == 0, found.generate_report()
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_the_theme_follows_the_system_until_it_is_switched(opened):
    page = opened(theme="dark")
    background = "getComputedStyle(document.body).backgroundColor"
    dark = page.evaluate(background)
    switch = page.get_by_role("button", name="Dark")
    expect(switch).to_have_attribute("aria-pressed", "true")

    switch.click()

    expect(switch).to_have_attribute("aria-pressed", "false")
    assert page.evaluate(background) != dark
    assert opened(theme="light").evaluate(background) == page.evaluate(background)
