"""Tables on a narrow terminal, or in a pipe, which is 80 columns wide."""

from io import StringIO

from flows.cli.console import SafeConsole, make_table

FIGURES = ["1a2b3c4d", "12,345 of 1,000,000", "1,000,000", "1,234 of 100,000", "3 days, 14:05:06"]


def test_figures_are_in_one_piece_and_text_folds_beside_them():
    columns = ("run", "dataset", "jobs", "failed", "shards", "elapsed")
    run, *others = FIGURES
    dataset = "classify animals-2026-11-28 by a-model-with-a-long-name"
    table = make_table(columns, [[run, dataset, *others]], plain=True, unbroken={*columns} - {"dataset"})
    console = SafeConsole()
    console.width, console.file = 80, StringIO()

    console.print(table, crop=False)

    lines = console.file.getvalue().splitlines()
    assert all(figure in lines[1] for figure in FIGURES)
    assert all(heading in lines[0] for heading in columns)
    folded = "".join(line[len(run) :].split("  ")[1].strip() for line in lines[1:])
    assert folded.replace(" ", "") == dataset.replace(" ", "")
