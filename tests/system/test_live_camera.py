"""The page `/live` in a real browser, with Chromium's fake camera and microphone, against a real server."""

import re
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect, sync_playwright

from infra.settings import ServeSettings, Settings
from reelabel_engine.live_items import AUDIO_HZ, AudioSpan
from tasks.live.model import SPEECH_HZ
from tests.flows.serve.live.server import live_server
from tests.live.scripted_model import INFO, SPOKEN
from tests.system.conftest import _CHROMIUM, _OPTIONS
from tests.wait import until

_CAMERA = ["--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"]
TOKEN = "sixteen-characters-or-more"
expect.set_options(timeout=60_000)  # beside other work


@pytest.fixture(scope="module")
def server():
    with live_server() as server:
        yield server


@pytest.fixture(scope="module")
def browser():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=_CHROMIUM, args=[*_OPTIONS, *_CAMERA])
        yield browser
        browser.close()


@pytest.fixture
def page(browser, server):
    faults = []
    with closing(browser.new_page(viewport={"width": 1280, "height": 960})) as page:
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda message: message.type == "error" and faults.append(message.text))
        page.on("request", lambda request: request.url.startswith((server.url, "blob:")) or faults.append(request.url))
        page.goto(f"{server.url}/live")
        yield page
    assert [fault for fault in faults if "WebSocket connection" not in fault] == []


@pytest.fixture(scope="module")
def hearing():
    with live_server(info=replace(INFO, takes_audio=True)) as server:
        yield server


def start(page):
    page.get_by_role("button", name="Start").click()
    expect(page.locator("#state")).to_have_text("Live: scripted")
    expect(page.locator("#kept")).not_to_have_text("0")


def counted(page, name):
    return int(page.locator(f"#{name}").inner_text())


def acknowledged(page):
    return sum(counted(page, name) for name in ("kept", "similar", "evicted"))


def test_frames_of_the_camera_are_kept_and_a_question_about_them_is_answered(page, tmp_path):
    page.locator("#fps").select_option("4")
    start(page)
    page.fill("#question", "Which frames?")
    page.get_by_role("button", name="Ask", exact=True).click()

    answer = page.locator("#answers li").first
    expect(answer.locator(".note")).to_contain_text("First token after")
    expect(answer.get_by_role("heading", level=2)).to_have_text("Which frames?")
    seen = answer.locator(".outcome").inner_text().split()
    assert len(seen) == int(re.search(r"(\d+) frames?,", answer.locator(".note").inner_text())[1])
    page.fill("#choices", "yes | no")
    page.get_by_role("button", name="Ask", exact=True).click()
    expect(page.locator("#answers li").first.locator(".bars .row")).to_have_count(2)
    assert page.locator("#answers li").first.locator(".bars .share").all_inner_texts() == ["75.0%", "25.0%"]
    bars = page.locator("#answers li").first.locator(".bars i")
    yes, no = (bars.nth(at).evaluate("bar => getComputedStyle(bar).backgroundColor") for at in range(2))
    assert yes != no, "the most probable choice stands out"
    expect(page.locator("#sent")).to_have_text(re.compile(r"^([89]|\d\d+)$"))
    assert page.locator("#frames li img").count() >= 1
    page.screenshot(path=str(tmp_path / "live.png"))
    assert Axe().run(page).response["violations"] == []
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#state")).to_have_text("Stopped.")
    until(lambda: 0 <= counted(page, "sent") - acknowledged(page) <= 1)  # one acknowledgement a frame, but for the last
    assert page.locator("#ack-ms").inner_text().isdecimal()


def test_an_answer_is_cancelled(page, server):
    start(page)
    server.model.may_go_on.clear()
    try:
        page.fill("#question", "Which frames?")
        page.get_by_role("button", name="Ask", exact=True).click()
        answer = page.locator("#answers li").first
        expect(answer.locator(".outcome")).not_to_have_text("")
        page.get_by_role("button", name="Cancel: Which frames?").click()
        expect(answer.locator(".note")).to_have_text("Cancelled before its end.")
        expect(answer.get_by_role("button")).to_have_count(0)
    finally:
        server.model.may_go_on.set()


def test_a_standing_question_shows_its_latest_answers_until_it_is_cancelled(page, server):
    start(page)
    server.model.probabilities = [(0.9, 0.1), (0.2, 0.8)]
    page.fill("#question", "Is it open?")
    page.locator("#every").select_option("change")
    page.get_by_role("button", name="Ask", exact=True).click()
    expect(page.locator("#state")).to_have_text("To be told when an answer changes, give its choices.")
    page.fill("#choices", "yes | no")
    page.get_by_role("button", name="Ask", exact=True).click()

    answer = page.locator("#answers > li").first
    expect(answer.locator(".changes li").first).to_contain_text("s: no")  # then it is yes for good
    expect(answer.locator(".changes li").last).to_contain_text("s: yes")
    expect(answer.locator(".often")).to_have_text("when it changes")
    assert Axe().run(page).response["violations"] == []
    page.get_by_role("button", name="Cancel: Is it open?").click()
    expect(answer.locator(".often")).to_have_text("Ended")


def test_other_pages_import_the_session(page):
    created = page.evaluate(
        """async () => {
            const { LiveSession } = await import("/live/session.js");
            const session = new LiveSession(location.href, { config: { window: 4 } });
            const first = await new Promise((done) => session.addEventListener("message", ({ data }) => done(data)));
            session.close();
            return first;
        }"""
    )
    assert (created["type"], created["window"]) == ("session.created", 4)


def test_what_was_asked_before_the_session_has_begun_is_answered_before_it_ends(page):
    events = page.evaluate(
        """async () => {
            const { LiveSession } = await import("/live/session.js");
            const session = new LiveSession(location.href), events = [];
            session.addEventListener("message", ({ data }) => events.push([data.type, data.query_id]));
            session.ask("What is there?", { query_id: "early" });
            session.finish();
            await new Promise((done) => { session.addEventListener("end", done); setTimeout(done, 20000); });
            return events;
        }"""
    )
    assert events == [
        ["session.created", None],
        ["response.start", "early"],
        ["error", "early"],  # there is no frame
        ["session.done", None],
        ["session.closed", None],
    ]


def test_a_lost_connection_is_taken_up_again_and_the_session_goes_on(page, server):
    start(page)
    about = page.locator("#about").inner_text()

    server.drop()

    expect(page.locator("#state")).to_have_text("The connection was lost; connecting again.")
    expect(page.locator("#state")).to_have_text("Live: scripted")
    assert page.locator("#about").inner_text() == about
    page.fill("#question", "Which frames?")
    page.get_by_role("button", name="Ask", exact=True).click()
    expect(page.locator("#answers li .note").first).to_contain_text("First token after")
    page.get_by_role("button", name="Stop").click()


def test_a_session_that_is_stopped_before_it_has_begun_stays_stopped(page):
    page.evaluate(
        """() => {
            const state = document.getElementById("state");
            const stop = (_, observer) => {
                if (state.textContent !== "Connecting.") return;
                observer.disconnect();
                document.getElementById("start").click();
            };
            new MutationObserver(stop).observe(state, { childList: true });
        }"""
    )
    with page.expect_websocket(lambda socket: socket.url.endswith("/stream")) as opened:
        page.get_by_role("button", name="Start").click()
    if not opened.value.is_closed():
        opened.value.wait_for_event("close")

    expect(page.locator("#state")).to_have_text("Stopped.")
    expect(page.locator("#send")).to_be_disabled()


def test_a_camera_that_is_not_allowed_is_reported(browser, server):
    with closing(browser.new_page()) as page:
        page.add_init_script(
            "navigator.mediaDevices.getUserMedia = () => Promise.reject(new DOMException('', 'NotAllowedError'))"
        )
        page.goto(f"{server.url}/live")
        page.get_by_role("button", name="Start").click()

        expect(page.locator("#state")).to_have_text("The camera cannot be used: it was not allowed.")
        expect(page.get_by_role("button", name="Start")).to_be_visible()


def test_the_microphone_is_heard_among_the_frames_while_it_is_on(browser, hearing):
    with closing(browser.new_page()) as page:
        faults = []
        page.on("console", lambda message: message.type == "error" and faults.append(message.text))
        page.goto(f"{hearing.url}/live")
        expect(page.get_by_label("Microphone")).not_to_be_checked()
        start(page)
        expect(page.locator("#audio")).to_have_text("0")
        page.get_by_label("Microphone").check()

        expect(page.locator("#audio")).to_have_text(re.compile("[3-9]"))
        page.fill("#question", "What do you hear?")
        page.get_by_role("button", name="Ask", exact=True).click()
        expect(page.locator("#answers li .note").first).to_contain_text("s of audio")
        page.get_by_label("Microphone").uncheck()
        page.get_by_role("button", name="Stop").click()
        expect(page.locator("#state")).to_have_text("Stopped.")
        assert faults == []

    prefix, _ = hearing.model.requests[-1]
    samples = np.concatenate([item.samples for item in prefix.items if isinstance(item, AudioSpan)])
    assert len(samples) >= AUDIO_HZ  # a second; the fake microphone beeps twice in each
    assert np.abs(samples).max() > 1000


def test_speech_is_played_as_it_comes_unless_it_is_switched_off(browser):
    """What the page plays is noted where it is handed to the browser, as no test hears it."""
    with live_server(info=replace(INFO, produces_speech=True)) as server, closing(browser.new_page()) as page:
        page.add_init_script(
            "window.played = [];"
            "AudioBufferSourceNode.prototype.start = function () { window.played.push(this.buffer.duration) }"
        )
        page.goto(f"{server.url}/live")
        start(page)
        page.fill("#question", "What is there?")
        page.get_by_role("button", name="Ask", exact=True).click()
        expect(page.locator("#answers li .note").first).to_contain_text("0.1 s of speech")
        played = page.evaluate("window.played")
        assert played == [pytest.approx(len(SPOKEN) / 2 / SPEECH_HZ)]

        page.get_by_label("Play speech").uncheck()
        page.get_by_role("button", name="Ask", exact=True).click()
        expect(page.locator("#answers li .note")).to_have_count(2)
        expect(page.locator("#answers li .note").first).to_contain_text("s of speech")
        assert page.evaluate("window.played") == played


def test_a_microphone_that_is_not_allowed_is_reported_and_the_camera_goes_on(browser, hearing):
    with closing(browser.new_page()) as page:
        page.add_init_script(
            "const ask = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);"
            "navigator.mediaDevices.getUserMedia = (wanted) =>"
            " wanted.audio ? Promise.reject(new DOMException('', 'NotAllowedError')) : ask(wanted)"
        )
        page.goto(f"{hearing.url}/live")
        start(page)
        page.get_by_label("Microphone").click()

        expect(page.locator("#state")).to_have_text("The microphone cannot be used: it was not allowed.")
        expect(page.get_by_label("Microphone")).not_to_be_checked()
        kept = counted(page, "sent")
        expect(page.locator("#sent")).not_to_have_text(str(kept))


def test_a_page_whose_model_does_not_hear_has_no_microphone(page):
    expect(page.get_by_label("Microphone")).to_have_count(0)


def test_the_page_asks_for_the_token_and_holds_none(browser):
    with (
        live_server(settings=Settings(serve=ServeSettings(token=TOKEN))) as server,
        closing(browser.new_page()) as page,
    ):
        page.goto(f"{server.url}/live")
        assert TOKEN not in page.content()
        page.fill("#token", "not-the-token-at-all")
        page.get_by_role("button", name="Start").click()
        expect(page.locator("#state")).to_have_text("The server refused the connection; check the token.")

        page.fill("#token", TOKEN)
        page.get_by_role("button", name="Start").click()

        expect(page.locator("#state")).to_have_text("Live: scripted")


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_everyone_can_use_it(browser, hearing, theme):
    with closing(browser.new_page(viewport={"width": 390, "height": 800}, color_scheme=theme)) as page:
        page.goto(f"{hearing.url}/live")

        found = Axe().run(page).response["violations"]

        assert [(each["id"], [node["html"] for node in each["nodes"]]) for each in found] == []
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        tops = [page.locator(f"#{name}").bounding_box()["y"] for name in ("video", "question", "sent")]
        assert tops == sorted(tops)
