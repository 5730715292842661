"""`reelabel replay` and its page in a real browser: the frames follow the slider, as runs choose them."""

import os

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from infra.embedded import export
from reelabel.decode.gops import spans_to_decode
from reelabel.extract import extract_local
from reelabel.sampling.options import Sampling
from tests.clips import write_clip
from tests.command_line import reelabel


@pytest.fixture(scope="module")
def clip(tmp_path_factory):
    return write_clip(tmp_path_factory.mktemp("replay") / "clip.mp4", frames=96, fps=12, gop=24, b_frames=2)


@pytest.fixture(scope="module")
def replayed(services, clip):
    """Run the command; gives the file that it writes."""
    target = clip.with_name("replay.html")
    completed = reelabel(os.environ | export(services), "replay", str(clip), "--out", str(target))
    assert (completed.returncode, completed.stdout) == (0, f"Wrote {target}; open it in a browser.\n")
    return target


@pytest.fixture
def page(open_page, replayed):
    return open_page(replayed, allowed="file:")


def shown(page, sampler):
    return [item.inner_text() for item in page.locator(f"#replay-{sampler} li:has(img)").all()]


def chosen(clip, sampler, num_frames):
    """What a run shows of the clip."""
    found = extract_local(clip, sampling=Sampling(sampler=sampler, num_frames=num_frames))
    times = {row: int((found.shown == row).sum()) for row in found.shown.tolist()}
    repeats = {row: f"\n\N{MULTIPLICATION SIGN}{count}" if count > 1 else "" for row, count in times.items()}
    return [f"{found.selection.time_s[row]:.2f} s{repeated}" for row, repeated in repeats.items()]


def test_the_frames_follow_the_slider_as_runs_choose_them(page, clip):
    for num_frames in (16, 17, 1, 3, 32):
        page.locator("#frames").fill(str(num_frames))

        for sampler in ("keyframes", "uniform"):
            assert shown(page, sampler) == chosen(clip, sampler, num_frames), (sampler, num_frames)
    spans = spans_to_decode(np.linspace(0, 95, 32, dtype=np.int64).tolist(), [0, 24, 48, 72])
    decoded = sum(last + 1 - first for first, last in spans)
    expect(page.locator("#replay-uniform .numbers")).to_have_text(f"32 shown, 32 distinct, {decoded} decoded of 96")
    assert page.locator("#replay-keyframes .tick").count() == 4
    expect(page.locator("#replay-of")).to_have_text("The video: 4 keyframes.")
    expect(page.get_by_role("slider")).to_have_count(1)


def test_the_slider_is_moved_by_keyboard(page, clip):
    page.locator("#frames").focus()
    page.keyboard.press("ArrowLeft")

    assert shown(page, "keyframes") == chosen(clip, "keyframes", 15)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_everyone_can_use_it(browser, replayed, theme):
    page = browser.new_page(viewport={"width": 390, "height": 800}, color_scheme=theme)
    page.goto(replayed.as_uri())

    found = Axe().run(page)
    width = page.evaluate("document.documentElement.scrollWidth")
    page.close()

    assert found.violations_count == 0, found.generate_report()
    assert width <= 390


def test_what_cannot_be_replayed_is_reported(services, tmp_path, clip):
    broken = tmp_path / "broken.mp4"
    broken.write_bytes(b"no video at all" * 100)

    missing = reelabel(os.environ | export(services), "replay", str(tmp_path / "gone.mp4"))
    unreadable = reelabel(os.environ | export(services), "replay", str(broken))
    nowhere = reelabel(os.environ | export(services), "replay", str(clip), "--out", str(tmp_path / "no" / "x.html"))

    assert [completed.returncode for completed in (missing, unreadable, nowhere)] == [1, 1, 2]
    assert "video_missing" in missing.stderr
    assert "video_unreadable" in unreadable.stderr
    assert "does not exist; create it first." in nowhere.stderr
    assert "Traceback" not in missing.stderr + unreadable.stderr + nowhere.stderr
