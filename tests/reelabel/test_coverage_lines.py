from reelabel.coverage import coverage_warnings


def test_a_run_says_for_how_many_clips_keyframes_may_not_be_enough():
    lines = coverage_warnings({"videos": 2000, "long_gap": 1, "one_keyframe": 412})

    assert lines == [
        "412 of 2,000 clips have a single keyframe: answers about anything later are guesses",
        "1 of 2,000 clips has a long gap between keyframes: what happens in it is not seen",
    ]


def test_of_enough_keyframes_nothing_is_said():
    assert coverage_warnings({"videos": 2000}) == coverage_warnings({}) == []
