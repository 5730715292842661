"""What Prefect shows of a run."""

from flows.run.artifacts import list_figures


def test_texts_of_a_manifest_are_no_markdown_in_prefects_ui():
    listed = list_figures([("jobs", "3")], ["row 3 ![](https://evil.example) <b>`\u202e\n# Big"])

    assert listed == ("\n- jobs: 3\n- **row 3 \\!\\[\\]\\(https://evil.example\\) \\<b\\>\\`\\<U+202E\\>␊\\# Big**")
