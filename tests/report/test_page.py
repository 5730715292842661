import re
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from html import escape

import pytest

from reelabel.text import escape_controls
from tasks.report.render import MAX_BYTES
from tasks.report.run import render_run, run_overview
from tests.hostile import HOSTILE as INVISIBLE
from tests.hostile import hidden_in
from tests.report.rows import PIXEL, SLOW, job_card, report, run_row, strip, with_strip

SHOWABLE = INVISIBLE.replace("\n", "")
HOSTILE = "</script><script>document.title='broken'</script><img src=x onerror=alert(1)> & \"'"


def cards_of(page):
    """The cards of a page, by job id."""
    return {card.partition('"')[0]: card for card in page.split('<details class="card" id="job-')[1:]}


def without_script(page):
    return re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)


def with_overview(**changed):
    page = report()
    return page | {"overview": page["overview"] | changed}


def test_failures_are_told_at_the_top_with_their_most_frequent_reason():
    [group] = report()["failure_groups"]
    groups = [group | {"code": code} for code in ("video_missing", "video_empty")]

    failing = render_run(report(failures=3, failure_groups=groups))

    assert '<dt>failures</dt><dd><a href="#failures">3</a></dd>' in failing
    assert "of finished jobs, most often video_missing</dd>" in failing
    assert "<dt>failures</dt><dd>0</dd>" in render_run(report(failures=0, failure_groups=[]))


def test_answers_in_words_count_as_answers_at_the_top():
    page = render_run(report(words={"answers": 5, "cut": 1, "tokens": 60}))

    assert "<dt>answers</dt><dd>7</dd>" in page
    assert '<dd class="sub">12.5% of finished jobs' in page


@pytest.mark.parametrize(
    ("short", "drawn"), [((1,), []), ((4, 4), ["all others"])], ids=["too short together", "long enough together"]
)
def test_parts_of_the_time_that_are_too_short_to_be_drawn_are_one(short, drawn):
    parts = (("answer", 1000.0), *((f"part {ms}", float(ms)) for ms in short))

    page = render_run(with_overview(parts=parts))

    bars = page.partition("Where the time went")[2].partition("</dl>")[0]
    assert re.findall(r"<dt>(.*?)</dt>", bars) == ["answer", *drawn]


@pytest.mark.parametrize(
    ("answer", "shown"),
    [
        pytest.param({"text": ""}, "no words", id="nothing"),
        pytest.param({"text": "A cat."}, "A cat.", id="words"),
        pytest.param({"data": False}, "false", id="false"),
        pytest.param({"data": 0}, "0", id="zero"),
        pytest.param({"data": {}}, "{}", id="an empty object"),
        pytest.param({"data": None}, "null", id="null"),
    ],
)
def test_an_answer_in_words_is_shown_however_little_it_says(answer, shown):
    nothing = dict.fromkeys(("label", "margin", "answer", "text", "data"))
    card = job_card(choices=None)
    words = replace(card, row={**card.row, **nothing, "finish_reason": "stop", "output_tokens": 3, **answer})

    page = cards_of(render_run(report(jobs=[words])))["clip-7"]

    assert f'<p class="outcome">{shown}</p>' in page
    assert "3 tokens of words, ended by stop" in page
    assert "<h3>Time</h3>" in page


@pytest.mark.parametrize(
    ("changed", "is_shown"),
    [({}, True), ({"jobs_labelled": 0, "jobs_failed": 0}, False), ({"wall_ms": {"engine start": 4000.0}}, False)],
)
def test_a_rate_is_shown_if_jobs_were_answered_by_a_loaded_engine(changed, is_shown):
    page = render_run(report() | {"overview": run_overview(run_row(**changed))})

    assert ("<dt>jobs per second</dt>" in page) == is_shown


def test_times_are_shown_in_utc_whatever_the_databases_time_zone():
    page = render_run(with_overview(started_at=datetime(2026, 11, 23, 1, 30, tzinfo=timezone(timedelta(hours=2)))))

    assert '<p class="over">classify · reelabel-tiny · 2026-11-22 23:30 UTC</p>' in page


def test_a_page_loads_nothing_from_elsewhere():
    page = render_run(report())

    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)[1].replace("&#39;", "'")
    assert "default-src 'none'" in policy
    assert policy.count("sha256-") == page.count("<script") == 1
    assert not re.search(r'<(?:link|iframe|img|script)[^>]*(?:src|href)="(?!data:)', page)


@pytest.mark.parametrize(
    "hostile",
    [
        pytest.param(report(jobs=[job_card(question=HOSTILE)]), id="question"),
        pytest.param(report(jobs=[job_card(system_prompt=HOSTILE)]), id="system prompt"),
        pytest.param(report(jobs=[job_card(HOSTILE)]), id="job id"),
        pytest.param(report(jobs=[job_card(choices=[(HOSTILE, 1.0)])]), id="choice"),
        pytest.param(report(jobs=[with_strip(job_card(), strip(note=HOSTILE))]), id="frames"),
        pytest.param(report(slowest=[SLOW | {"job_id": HOSTILE}], jobs=[job_card(HOSTILE)]), id="link to a job"),
        pytest.param(report(caveats=[HOSTILE]), id="warning"),
    ],
)
def test_text_of_a_manifest_stays_text(hostile):
    page = render_run(hostile)

    assert page.count("<script") == 1
    assert "<img src=x" not in page
    assert escape(HOSTILE).replace("&#x27;", "&#39;").replace("&quot;", "&#34;") in page


def test_a_marker_in_a_text_is_not_replaced_by_cards_or_frames():
    page = render_run(
        report(caveats=["<!--cards-->"], jobs=[with_strip(job_card(question="<!--frames 0-->"), strip())])
    )

    assert page.count("&lt;!--cards--&gt;") == page.count("&lt;!--frames 0--&gt;") == 1
    assert page.count("<div data-frames=") == 1


def test_a_page_shows_invisible_characters():
    jobs = [job_card(SHOWABLE, question=SHOWABLE, choices=[(SHOWABLE, 1.0)])]
    data = with_overview(dataset=SHOWABLE, bottleneck=SHOWABLE) | {"jobs": jobs, "caveats": [SHOWABLE]}

    page = without_script(render_run(data))

    assert hidden_in(page, keep="\n\t") == []
    assert escape(escape_controls(SHOWABLE, keep="\n\t"), quote=False) in page


def test_frames_of_the_last_videos_are_left_out_if_the_page_would_be_too_large():
    image = PIXEL + "A" * 20_000
    jobs = [with_strip(job_card(f"clip-{at}"), strip(image=image)) for at in range(300)]

    page = render_run(report(jobs=jobs))

    with_frames = [job_id for job_id, card in cards_of(page).items() if "<div data-frames=" in card]
    assert len(page.encode()) < MAX_BYTES
    assert 30 < len(with_frames) < 300
    assert with_frames == [f"clip-{at}" for at in range(len(with_frames))]
    assert "Its frames did not fit into this report." in cards_of(page)["clip-299"]
    assert f"{len(with_frames)} with their frames" in page


def test_frames_that_several_jobs_share_are_on_the_page_once():
    shared = strip(image=PIXEL + "A" * 10_000)

    page = render_run(report(jobs=[with_strip(job_card(f"clip-{at}"), shared) for at in range(300)]))

    assert page.count("<div data-frames=") == 1
    assert '<a href="#job-clip-0">clip-0</a>' in cards_of(page)["clip-299"]
    assert "300 with their frames" in page
    assert len(page.encode()) < 1_000_000


def test_links_to_shared_frames_leave_the_page_below_three_megabytes():
    strips = [strip(image=PIXEL + "A" * 20_000) for _ in range(30)]
    jobs = [with_strip(job_card(f"{at:03}" + "x" * 1_000, question="?" * 2_000), strips[at % 30]) for at in range(300)]

    page = render_run(report(jobs=jobs))

    assert len(page.encode()) < MAX_BYTES
    assert len(cards_of(page)) == 300
    assert page.count("data-same=") > 100


def test_texts_of_more_than_two_thousand_characters_are_cut():
    long = "\N{CJK UNIFIED IDEOGRAPH-8272}" * 2_001

    page = render_run(report(jobs=[job_card(question=long), job_card("short", question=long[1:])]))

    assert f">{long[:2_000]}... (2,001 characters)</pre>" in page
    assert f">{long[1:]}</pre>" in page


def test_300_jobs_of_long_texts_and_many_frames_are_below_three_megabytes():
    image = PIXEL + "A" * 10_000
    strips = [strip(image=image) for _ in range(60)]
    texts = [f"{at:03}" + "\N{CJK UNIFIED IDEOGRAPH-8272}" * 3_997 for at in range(300)]
    jobs = [with_strip(job_card(f"clip-{at}", question=text), strips[at % 60]) for at, text in enumerate(texts)]

    page = render_run(report(jobs=jobs))

    assert len(page.encode()) < MAX_BYTES
    assert len(cards_of(page)) == 300
    assert page.count("<div data-frames=") > 40
    assert f"{texts[299][:400]}... (4,000 characters)" in cards_of(page)["clip-299"]


def test_the_limit_holds_even_if_every_text_is_long():
    choices = [(f"{at:02}" + "'" * 4_000, 0.5) for at in range(26)]
    jobs = [job_card(f"clip-{at}", choices=choices, question=f"{at}" * 4_000) for at in range(100)]

    page = render_run(report(jobs=jobs))

    assert len(page.encode()) < MAX_BYTES
    assert len(cards_of(page)) == 100


def test_jobs_without_room_are_left_out_from_the_end():
    choices = [(f"{at:02}" + "\x00" * 100, 0.5) for at in range(26)]
    jobs = [job_card(f"{at:03}" + "'" * 4_000, choices=choices) for at in range(300)]

    page = render_run(report(jobs=jobs, labels=300, failures=0))

    assert len(page.encode()) < MAX_BYTES
    shown = len(cards_of(page))
    assert 10 < shown < 300
    assert f"{shown} of 300 jobs are in this report" in page


def test_a_system_prompt_that_all_jobs_share_is_on_the_page_once():
    prompt = "Be brief.\u2028" * 100

    page = render_run(report(jobs=[job_card(f"clip-{at}", system_prompt=prompt) for at in range(300)]))

    assert page.count(escape(escape_controls(prompt), quote=False)) == 1


def test_a_page_says_that_it_contains_a_sample():
    page = render_run(report(labels=99_999))

    assert "1 of 100,000 jobs are in this report, 1 with their frames" in page


def test_a_failed_job_shows_why_and_where():
    row = {"job_id": "gone", "code": "video_missing", "stage": "fetch", "message": "There is no video."}

    card = cards_of(render_run(report(jobs=[replace(job_card(), row=row, choices=None)])))["gone"]

    assert '<p class="outcome">video_missing</p>' in card
    assert "There is no video. · failed in stage fetch" in card


def test_an_image_has_no_timeline():
    image = strip(count=1, duration_s=0.0, fps=0.0, total_frames=1, keyframe_times_s=None)
    media = [{"kind": "image", "uri": "image.file", "strip": image, "no_strip": ""}]

    card = cards_of(render_run(report(jobs=[job_card(media=media), job_card("other")])))["clip-7"]

    assert "1. Image <code>image.file</code>" in card
    assert card.count("<img") == 1
    assert "<svg" not in card
    assert "Replay its picks" not in card


def test_the_slowest_jobs_have_the_time_of_the_image_text_model_if_questions_chose_frames():
    assert '<th scope="col" class="number">embed</th>' not in render_run(report())

    page = render_run(report(slowest=[SLOW | {"embed_ms": 4321.0}]))

    assert '<th scope="col" class="number">embed</th>' in page
    assert "4,321" in page


def test_a_run_that_asked_nothing_has_a_page():
    nothing = with_overview(ended=0, cost=None, parts=(), bottleneck="")
    empty = {"timeline": None, "slowest": [], "tasks": [], "reliability": [], "jobs": [], "label_counts": []}

    page = render_run(nothing | empty | {"labels": 0, "failures": 0, "known": 0, "accuracy": None})

    assert "No job was left to answer." in page
    assert "There are no labels yet." in page
