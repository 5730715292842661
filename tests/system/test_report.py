"""The page of a run in a real browser: what it computes, finds and draws, and that it loads nothing."""

import random
from functools import partial
from urllib.parse import quote

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from reelabel.decode.gops import spans_to_decode
from reelabel.sampling.options import Sampling
from reelabel.sampling.registry import choose_indices
from reelabel.sampling.spec import VideoProperties
from reelabel.sampling.uniform import pick_evenly
from reelabel.text import escape_controls
from tasks.report.run import render_run, select_trade_off
from tests.report.rows import job_card, report, strip, with_strip
from tests.report.test_page import HOSTILE
from tests.report.test_trade import evaluation

CLIPS = 1_500
# Line ends for JavaScript, though not for JSON.
SEPARATED = "Which\u2028colour\u2029now?"
FRAMES = strip()
CHUNK = {"label": None, "code": None, "message": None, "margin": None, "strip": None}
CHUNKS = [
    CHUNK | {"chunk": 0, "start_s": 0, "end_s": 1.9998, "label": "blue", "margin": 0.5},
    CHUNK | {"chunk": 1, "start_s": 2, "end_s": 3.9998, "label": "red", "margin": 0.8, "strip": FRAMES},
    CHUNK | {"chunk": 2, "start_s": 4, "end_s": None, "code": "no_frames", "message": "It hangs."},
]


@pytest.fixture(scope="module")
def html(tmp_path_factory):
    """A page with every section, hostile texts, and a clip of two keyframes."""
    changed = job_card("clip-8", before="blue", selected_because=["changed label"], question=SEPARATED)
    jobs = [
        with_strip(job_card("clip-7"), FRAMES),
        with_strip(changed, strip(count=1)),
        job_card("film", no_strip="", chunks=CHUNKS),
        job_card("hostile", question=HOSTILE),
        job_card(HOSTILE),
        job_card("a b#c/%20"),
        job_card("100%", selected_because=["wrong", "low margin"]),
        job_card("quoting", question="Is it #wrong?"),
    ]
    run_report = report(jobs=jobs, trade=select_trade_off(evaluation(), "5" * 16), labels=99_999)
    path = tmp_path_factory.mktemp("report") / "run.html"
    path.write_text(render_run(run_report))
    return path


@pytest.fixture
def opened(open_page, html):
    """Return a function that opens the page so wide and in such a theme."""
    return partial(open_page, html)


@pytest.fixture
def page(opened):
    return opened()


def set_slider(page, name, value):
    page.locator(f"#{name}").evaluate(
        "(slider, value) => { slider.value = value; slider.dispatchEvent(new Event('input', {bubbles: true})) }",
        value,
    )


def numbers(page, name):
    """How many frames a sampler shows, how many of them are distinct, and how many are decoded."""
    texts = page.locator(f"#replay-{name} .numbers").inner_text().replace(",", "").split()
    return tuple(int(text) for text in texts if text.isdigit())[:3]


def card(page, job_id):
    return page.locator(f'[id="job-{job_id}"]')


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


def in_python(clip):
    """What the code that runs picks of a clip, and what it decodes for that, by sampler."""
    total, fps = clip["totalFrames"], clip["fps"]
    keyframes = list(range(0, total, clip["gop"]))
    facts = VideoProperties(total_frames=total, fps=fps, duration_s=total / fps)
    uniform = choose_indices(Sampling(sampler="uniform", num_frames=clip["numFrames"]), facts).tolist()
    picks = {"keyframes": [keyframes[at] for at in pick_evenly(len(keyframes), clip["numFrames"])], "uniform": uniform}
    spans = {name: spans_to_decode(dict.fromkeys(positions), keyframes) for name, positions in picks.items()}
    return {name: [picks[name], sum(last - first + 1 for first, last in spans[name])] for name in picks}


def numbers_of(clip, name):
    picks, decoded = in_python(clip)[name]
    return len(picks), len(set(picks)), decoded


IN_JAVASCRIPT = """(clips) => clips.map((clip) => {
    const { choose, placeKeyframes } = window.reelabelReplay;
    clip.keyframes = placeKeyframes(clip.totalFrames, clip.gop);
    return Object.fromEntries(["keyframes", "uniform"].map((name) => {
        const { picks, decoded } = choose(name, clip);
        return [name, [picks, decoded]];
    }));
})"""


def test_picks_in_the_browser_equal_those_of_the_code(page):
    every = list(clips())

    got = page.evaluate(IN_JAVASCRIPT, every)

    for clip, in_javascript in zip(every, got, strict=True):
        assert in_javascript == in_python(clip), clip


def test_sliders_move_and_the_numbers_follow(page):
    for name, value in (("fps", 24), ("length", 20), ("gop", 120), ("frames", 8)):
        set_slider(page, name, value)

    clip = {"totalFrames": 480, "fps": 24, "numFrames": 8, "gop": 120}
    assert numbers(page, "keyframes") == (8, 4, 4)
    assert numbers(page, "uniform") == numbers_of(clip, "uniform")
    expect(page.locator("#replay-of")).to_have_text("A clip of this length and GOP: 4 keyframes.")
    expect(page.locator("#replay-keyframes").get_by_role("img")).to_have_accessible_name(
        "8 shown, 4 distinct, 4 decoded of 480"
    )
    assert page.locator("#replay-keyframes circle").count() == 4
    assert page.locator("#replay-keyframes .tick").count() == 4
    texts = page.locator("#replay-keyframes li").all_inner_texts()
    assert [text.split()[0] for text in texts] == ["0.00", "5.00", "10.00", "15.00"]
    set_slider(page, "gop", 480)
    assert numbers(page, "keyframes") == (8, 1, 1)
    expect(page.locator("#replay-keyframes li")).to_have_text("0.00 s\N{MULTIPLICATION SIGN}8")
    expect(page.locator("#replay-of")).to_have_text("A clip of this length and GOP: 1 keyframe.")


@pytest.mark.parametrize(("name", "text"), [("frames", "17"), ("length", "30.5 s"), ("fps", "30.01"), ("gop", "251")])
def test_sliders_can_be_moved_by_keyboard(page, name, text):
    page.locator(f"#{name}").focus()
    page.keyboard.press("ArrowRight")

    expect(page.locator(f"#{name}-out")).to_have_text(text)
    assert numbers(page, "keyframes")[0] == (17 if name == "frames" else 16)


def test_a_job_is_opened_by_its_id_and_its_clip_is_replayed(page):
    page.get_by_label("Search").fill("clip-7")
    page.keyboard.press("Enter")

    shown = card(page, "clip-7")
    expect(shown.get_by_label("Question")).to_contain_text("Which colour?")
    expect(shown.get_by_role("img", name="Frame at 2.00 s, shown 8 times")).to_have_count(1)
    expect(shown.locator(".row:has(.accent) .share")).to_have_text("0.900")
    expect(shown.locator("svg")).to_have_attribute(
        "aria-label", "Timeline of the file, 4.00 s: 2 keyframes, 2 frames shown."
    )
    shown.get_by_role("button", name="Replay its picks").click()
    expect(page.locator("#replay-of")).to_have_text("The clip of clip-7: 2 keyframes.")
    assert numbers(page, "keyframes") == (16, 2, 2)
    expect(page.locator("#gop-out")).to_have_text("as in the file")
    set_slider(page, "gop", 10)
    expect(page.locator("#replay-of")).to_have_text("A clip of this length and GOP: 7 keyframes.")


def test_a_card_is_opened_by_keyboard(page):
    card(page, "clip-7").locator("summary").focus()
    page.keyboard.press("Enter")

    expect(card(page, "clip-7").get_by_label("Question")).to_be_visible()


@pytest.mark.parametrize(
    ("address", "job_id"),
    [("clip-7", "clip-7"), (quote("a b#c/%20"), "a b#c/%20"), (quote("100%"), "100%"), ("100%", "100%")],
)
def test_an_address_opens_a_job(opened, address, job_id):
    page = opened(fragment="#job-" + address)

    expect(card(page, job_id).get_by_label("Question")).to_be_visible()


def test_an_address_that_names_no_job_says_so_until_one_does(opened, html):
    page = opened(fragment="#%")
    expect(page.locator("#found")).to_be_empty()

    page.goto(html.as_uri() + "#job-gone")
    expect(page.locator("#found")).to_contain_text("No job of this report has this ID.")
    page.get_by_label("Search").fill("hangs")
    page.goto(html.as_uri() + "#job-gone%")
    expect(page.locator("#found")).to_contain_text("No job of this report has this ID.")
    page.goto(html.as_uri() + "#job-film")
    expect(page.locator("#found")).to_have_text("1 of 8.")
    page.goto(html.as_uri() + "#job-clip-7")
    expect(card(page, "clip-7").get_by_label("Question")).to_be_visible()
    expect(page.get_by_label("Search")).to_have_value("")
    expect(page.locator("#found")).to_be_empty()
    expect(page.locator(".card:visible")).to_have_count(8)


def test_the_chunks_of_a_job_are_on_a_timeline_with_their_labels_and_frames(page):
    page.get_by_label("Search").fill("film#2")
    page.keyboard.press("Enter")

    shown = card(page, "film")
    expect(shown.locator("svg").first).to_have_attribute(
        "aria-label", "Timeline of 3 chunks: 1 with the label of the job."
    )
    expect(shown).to_contain_text("blue 1, red 1, no_frames 1.")
    assert shown.locator(".chunks li").all_inner_texts() == [
        "film#0, from 0.00 s to 2.00 s: blue, margin 0.500",
        "film#1, from 2.00 s to 4.00 s: red, margin 0.800",
        "film#2, from 4.00 s to the end: no_frames: It hangs.",
    ]
    expect(shown.locator("li.hit")).to_contain_text("film#2")
    page.goto(page.url + "#job-film%231")
    expect(shown.locator("li:target")).to_contain_text("film#1")
    expect(shown.get_by_role("heading", name="Frames the model saw of film#1")).to_be_visible()
    # The frames of clip-7 as well, which the page holds once.
    expect(shown.get_by_role("img", name="Frame at 2.00 s, shown 8 times")).to_have_count(1)
    expect(shown).to_contain_text("reelabel report 1a2b3c4d --job 'film#0'")


def test_a_clip_of_hardly_any_frames_a_second_is_replayed_unchanged(browser, tmp_path):
    facts = {"fps": 0.001, "total_frames": 3, "duration_s": 3000.0, "keyframes_in_file": 1}
    run_report = report(jobs=[with_strip(job_card(), strip(**facts, keyframe_times_s=(0.0,)))])
    (tmp_path / "run.html").write_text(render_run(run_report))
    page = browser.new_page()
    page.goto((tmp_path / "run.html").as_uri() + "#job-clip-7")

    page.get_by_role("button", name="Replay its picks").click()

    assert numbers(page, "uniform") == (3, 3, 3)
    expect(page.locator("#replay-uniform li").last).to_have_text("2000.00 s")
    page.close()


@pytest.mark.parametrize("fps", [30.0, 12.5, 30_000 / 1_001])
def test_sliders_of_a_replayed_clip_move_by_one_frame(browser, tmp_path, fps):
    facts = {"fps": fps, "total_frames": 1_000, "duration_s": 1_000 / fps, "keyframes_in_file": 1}
    made = report(jobs=[with_strip(job_card(), strip(**facts, keyframe_times_s=(0.0,)))])
    (tmp_path / "run.html").write_text(render_run(made))
    page = browser.new_page()
    page.goto((tmp_path / "run.html").as_uri() + "#job-clip-7")
    decoded = page.locator("#replay-uniform .numbers")

    page.get_by_role("button", name="Replay its picks").click()
    expect(decoded).to_contain_text("of 1,000")
    page.locator("#length").press("ArrowRight")
    expect(decoded).to_contain_text("of 1,001")
    page.locator("#length").press("ArrowLeft")
    page.locator("#length").press("ArrowLeft")
    expect(decoded).to_contain_text("of 999")
    page.locator("#fps").press("ArrowRight")
    expect(page.locator("#fps-out")).to_have_text(f"{fps + 0.01:.2f}")
    page.close()


@pytest.mark.parametrize("keyframe_times_s", [tuple(9.0 * at for at in range(100)), None])
def test_a_clip_beyond_the_range_of_the_sliders_is_replayed_unchanged(browser, tmp_path, keyframe_times_s):
    clip = {"totalFrames": 108_000, "fps": 120.0, "numFrames": 128, "gop": 1_080}
    facts = {"fps": 120.0, "total_frames": 108_000, "duration_s": 900.0, "keyframes_in_file": 100}
    shown = strip(**facts, keyframe_times_s=keyframe_times_s)
    run_report = report(jobs=[with_strip(job_card(), shown)], sampling={"sampler": "keyframes", "num_frames": 128})
    (tmp_path / "run.html").write_text(render_run(run_report))
    page = browser.new_page()
    page.goto((tmp_path / "run.html").as_uri() + "#job-clip-7")
    expect(page.locator("#frames-out")).to_have_text("128")

    page.get_by_role("button", name="Replay its picks").click()

    for name in ("keyframes", "uniform"):
        assert numbers(page, name) == numbers_of(clip, name)
    expect(page.locator("#replay-of")).to_have_text("The clip of clip-7: 100 keyframes.")
    for name, text in (("length", "900 s"), ("fps", "120"), ("frames", "128")):
        expect(page.locator(f"#{name}-out")).to_have_text(text)
    second = in_python(clip)["uniform"][0][1]
    expect(page.locator("#replay-uniform li").nth(1)).to_have_text(f"{second / 120:.2f} s")
    assert page.locator("#replay-uniform li").all_inner_texts()[24:] == ["and 104 more"]
    page.close()


def test_a_page_tells_how_to_see_a_job_that_was_left_out(page):
    page.get_by_label("Search").fill("it's elsewhere")
    page.get_by_role("button", name="Open").click()

    expect(page.locator("#found")).to_contain_text("if the run has it: reelabel report 1a2b3c4d --job ID")


def test_links_open_jobs_and_reasons_and_words_filter_them(page):
    page.locator("#time").get_by_role("link", name="clip-7").click()
    expect(card(page, "clip-7").get_by_label("Question")).to_be_visible()

    page.get_by_role("button", name="changed label (1)").click()
    expect(page.locator(".card:visible")).to_have_count(1)
    card(page, "clip-8").locator("summary").click()
    expect(card(page, "clip-8")).to_contain_text("previously blue")
    assert card(page, "clip-8").get_by_label("Question").text_content() == escape_controls(SEPARATED)

    page.get_by_role("button", name="changed label (1)").click()
    page.get_by_label("Search").fill("HANGS no_frames")
    expect(page.locator(".card:visible summary b")).to_have_text(["film"])
    expect(page.locator("#found")).to_have_text("1 of 8.")
    assert [text[:6] for text in page.locator("li.hit").all_text_contents()] == ["film#2"]


def test_a_reason_is_pressed_with_words_until_it_or_another_is_pressed(page):
    listed = page.locator(".card:visible summary b")
    wrong, changed = (page.get_by_role("button", name=name) for name in ("wrong (1)", "changed label (1)"))

    wrong.click()
    expect(listed).to_have_text(["100%"])  # and not the one whose question says so
    expect(wrong).to_have_attribute("aria-pressed", "true")
    page.get_by_label("Search").fill("previously")
    expect(page.locator("#found")).to_have_text("0 of 8.")
    changed.click()
    expect(listed).to_have_text(["clip-8"])
    expect(wrong).to_have_attribute("aria-pressed", "false")
    changed.click()
    expect(changed).to_have_attribute("aria-pressed", "false")
    page.get_by_label("Search").fill("")
    expect(listed).to_have_count(8)
    wrong.click()
    page.goto(page.url + "#job-clip-7")
    expect(listed).to_have_count(8)
    expect(wrong).to_have_attribute("aria-pressed", "false")
    expect(card(page, "100%")).to_contain_text("listed as: wrong, low margin")


def test_a_hostile_question_stays_text(page):
    page.get_by_label("Search").fill("hostile")
    page.keyboard.press("Enter")

    expect(card(page, "hostile").get_by_label("Question")).to_have_text(HOSTILE)
    page.get_by_label("Search").fill(HOSTILE)
    page.keyboard.press("Enter")
    expect(page.locator(".card[open] summary b")).to_have_text(["hostile", HOSTILE])
    assert page.title().startswith("clips")


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_has_no_accessibility_violations(opened, theme, width):
    page = opened(width=width, theme=theme)
    for shown in page.locator(".card").all():
        shown.evaluate("card => card.open = true")
    page.get_by_label("Search").fill("clip")
    page.get_by_role("button", name="changed label (1)").click()

    found = Axe().run(page)

    assert found.violations_count == 0, found.generate_report()
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_words_without_end_do_not_widen_the_page(open_page, tmp_path):
    word = "x" * 500
    chunks = [chunk | {"message": word} for chunk in CHUNKS]
    card = job_card(word, chunks=chunks)
    card.row.update(task=word, subtask=None, decode_note=word)
    (tmp_path / "run.html").write_text(render_run(report(jobs=[card])))

    page = open_page(tmp_path / "run.html", width=390)
    for shown in page.locator(".card").all():
        shown.evaluate("card => card.open = true")

    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_the_theme_is_that_of_the_system(opened):
    background = "getComputedStyle(document.body).backgroundColor"

    assert opened(theme="dark").evaluate(background) == "rgb(20, 22, 26)"
    assert opened(theme="light").evaluate(background) == "rgb(251, 250, 247)"
