from tasks.domain.coverage import count_reasons, coverage_warnings


def test_coverage_is_counted_by_reason():
    counts = count_reasons(["", "one_keyframe,long_gap", "long_gap"])

    assert counts == {"videos": 3, "not_covered": 2, "one_keyframe": 1, "long_gap": 2}


def test_a_run_says_for_how_many_clips_keyframes_may_not_be_enough():
    lines = coverage_warnings({"videos": 2000, "long_gap": 1, "one_keyframe": 412})

    assert lines == [
        "412 of 2,000 clips have a single keyframe: answers about anything later are guesses",
        "1 of 2,000 clips has a long gap between keyframes: what happens in it is not seen",
    ]


def test_lines_about_the_same_clips_say_so():
    lines = coverage_warnings({"videos": 68, "not_covered": 16, "one_keyframe": 11, "long_gap": 9, "low_coverage": 16})

    assert lines[-1] == "16 of 68 clips in all: some have several of these faults"
    apart = coverage_warnings({"videos": 68, "not_covered": 16, "one_keyframe": 11, "unknown": 5})
    assert [line.split()[0] for line in apart] == ["11", "5"]


def test_sufficient_keyframes_are_not_mentioned():
    assert coverage_warnings({"videos": 2000}) == coverage_warnings({}) == []
