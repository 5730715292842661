"""Programs for developers of this repository, outside the wheel."""
