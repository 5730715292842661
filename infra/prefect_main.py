"""Prefect's command line, `python -m infra.prefect_main ARGUMENTS`, for the embedded server."""

from __future__ import annotations

from infra.garbage import collect_rarely


def main() -> None:
    """Run Prefect."""
    collect_rarely()  # the server imports much
    from prefect.cli import app  # noqa: PLC0415

    app()


if __name__ == "__main__":
    main()
