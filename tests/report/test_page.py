import json
import re
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from reelabel.text import printable
from tasks.report.page import render
from tasks.report.rendering import MAX_BYTES
from tests.hostile import HOSTILE as INVISIBLE
from tests.hostile import hidden_in
from tests.report.rows import PIXEL, report, shown_job, strip

SHOWABLE = INVISIBLE.replace("\n", "")
HOSTILE = "</script><script>document.title='broken'</script><img src=x onerror=alert(1)> & \"'"


def data_of(page):
    [text] = re.findall(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    return json.loads(text)


def test_failures_are_told_at_the_top_with_their_most_frequent_reason():
    made = report()
    groups = tuple(replace(made.failure_groups[0], code=code) for code in ("video_missing", "video_empty"))

    failing = render(replace(made, failures=3, failure_groups=groups))

    assert '<dt>failures</dt><dd><a href="#failures">3</a></dd>' in failing
    assert "of ended jobs, most often video_missing</dd>" in failing
    assert "<dt>failures</dt><dd>0</dd>" in render(replace(made, failures=0, failure_groups=()))


@pytest.mark.parametrize(
    ("short", "drawn"), [((1,), []), ((4, 4), ["all others"])], ids=["too short together", "long enough together"]
)
def test_parts_of_the_time_that_are_too_short_to_be_drawn_are_one(short, drawn):
    parts = (("answer", 1000.0), *((f"part {ms}", float(ms)) for ms in short))
    made = replace(report(), glance=replace(report().glance, parts=parts))

    assert [part["name"] for part in data_of(render(made))["parts"]] == ["answer", *drawn]


def test_times_are_shown_in_utc_whatever_the_databases_time_zone():
    made = report()
    glance = replace(made.glance, started_at=datetime(2026, 11, 23, 1, 30, tzinfo=timezone(timedelta(hours=2))))

    assert '<p class="over">classify · reelabel-tiny · 2026-11-22 23:30 UTC</p>' in render(replace(made, glance=glance))


def test_a_page_loads_nothing_from_elsewhere():
    page = render(report())

    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]*)"', page)[1].replace("&#39;", "'")
    assert "default-src 'none'" in policy
    assert policy.count("sha256-") == 3
    assert not re.search(r'<(?:link|iframe|img|script)[^>]*(?:src|href)="(?!data:)', page)


@pytest.mark.parametrize(
    "hostile",
    [
        pytest.param(report(jobs=[shown_job(question=HOSTILE)]), id="question"),
        pytest.param(report(jobs=[shown_job(name=HOSTILE)]), id="job id"),
        pytest.param(report(jobs=[shown_job(choices=((HOSTILE, 1.0),))]), id="choice"),
        pytest.param(report(caveats=(HOSTILE,)), id="warning"),
    ],
)
def test_text_of_a_manifest_stays_text(hostile):
    page = render(hostile)

    assert page.count("<script") == render(report()).count("<script")
    assert "<img src=x" not in page


def test_scripts_read_a_hostile_question_unchanged():
    page = render(report(jobs=[shown_job(question=HOSTILE, name=HOSTILE)]))

    data = data_of(page)
    [job] = data["jobs"]
    assert (data["texts"][job["question"]], job["job_id"], job["system_prompt"]) == (HOSTILE, HOSTILE, None)


def test_a_page_shows_invisible_characters():
    jobs = [shown_job(question=SHOWABLE, name=SHOWABLE, choices=((SHOWABLE, 1.0),))]
    made = report(jobs=jobs, caveats=(SHOWABLE,))
    made = replace(made, glance=replace(made.glance, dataset=SHOWABLE, bottleneck=SHOWABLE))

    page = re.sub(r"<script>.*?</script>", "", render(made), flags=re.DOTALL)  # the vendored scripts

    assert hidden_in(page, keep="\n\t") == []
    assert hidden_in(json.dumps(data_of(page), ensure_ascii=False)) == []
    assert data_of(page)["jobs"][0]["job_id"] == printable(SHOWABLE)
    assert "\\u001b" not in page


def test_frames_of_the_last_videos_are_left_out_until_the_page_is_small_enough():
    image = PIXEL + "A" * 20_000
    jobs = [shown_job(f"clip-{at}", strip=at) for at in range(300)]
    strips = [strip(image=image) for _ in jobs]

    page = render(report(jobs=jobs, strips=strips))

    data = data_of(page)
    with_frames = [job["job_id"] for job in data["jobs"] if job["strip"] is not None]
    assert len(page.encode()) < MAX_BYTES
    assert 30 < len(with_frames) == len(data["strips"]) < 300
    assert with_frames == [f"clip-{at}" for at in range(len(with_frames))]
    assert data["jobs"][-1]["no_strip"] == "Its frames did not fit into this report."


def test_long_texts_are_shortened_to_make_room_for_frames():
    image = PIXEL + "A" * 10_000
    texts = [f"{at:03}" + "\N{CJK UNIFIED IDEOGRAPH-8272}" * 3_997 for at in range(300)]
    jobs = [shown_job(f"clip-{at}", strip=at % 60, question=text) for at, text in enumerate(texts)]

    page = render(report(jobs=jobs, strips=[strip(image=image)] * 60))

    data = data_of(page)
    assert len(page.encode()) < MAX_BYTES
    assert len(data["strips"]) > 40
    assert data["texts"][0] == f"{texts[0][:1000]}... (4,000 characters)"


def test_the_limit_holds_even_if_every_text_is_long():
    choices = tuple((f"{at:02}" + "'" * 4_000, 0.5) for at in range(26))
    jobs = [shown_job(f"clip-{at}", choices=choices, question=f"{at}" * 4_000) for at in range(100)]

    assert len(render(report(jobs=jobs)).encode()) < MAX_BYTES


def test_a_text_that_many_jobs_share_is_stored_once():
    shared = {"question": "\N{CJK UNIFIED IDEOGRAPH-8272}" * 4_000, "system_prompt": "Be brief.\u2028" * 400}

    page = render(report(jobs=[shown_job(f"clip-{at}", **shared) for at in range(300)]))

    data = data_of(page)
    assert data["texts"] == [shared["question"], printable(shared["system_prompt"])]
    assert {(job["question"], job["system_prompt"]) for job in data["jobs"]} == {(0, 1)}
    assert len(page.encode()) - len(render(report()).encode()) < 300_000


def test_a_page_says_that_it_contains_a_sample():
    page = render(report(labels=99_999))

    assert "1 of 100,000 jobs are in this report, 1 with their frames" in page


def test_the_slowest_jobs_have_the_time_of_the_image_text_model_if_questions_chose_frames():
    plain = report()
    chosen = replace(plain.slowest[0], embed_ms=4321.0)

    assert '<th scope="col" class="number">embed</th>' not in render(plain)
    page = render(report(slowest=(chosen,)))
    assert '<th scope="col" class="number">embed</th>' in page
    assert "4,321" in page


def test_a_run_that_asked_nothing_has_a_page():
    nothing = replace(report().glance, ended=0, cost=None, parts=(), bottleneck="")

    page = render(report(glance=nothing, labels=0, failures=0, timeline=None, slowest=(), tasks=(), reliability=()))

    assert "No job was left to answer." in page
    assert "There are no labels yet." in page
