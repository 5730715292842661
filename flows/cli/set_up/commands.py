"""The commands that set up and check an installation."""

from __future__ import annotations

from typing import Annotated

import typer

from flows.cli.options import example
from infra.settings import load_settings
from reelabel.errors import ConfigurationError

app = typer.Typer()


@app.command()
@example("reelabel demo --keep")
def demo(
    model: Annotated[
        str | None, typer.Option(help="Model folder or Hugging Face name. Default: the tiny demo model.")
    ] = None,
    clips: Annotated[int, typer.Option(min=24, max=1000, help="Clips to generate, with three jobs each.")] = 32,
    *,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the services running afterwards.")] = False,
) -> None:
    """Run a complete example on generated clips: services, deployment, answers, summary."""
    from flows.cli.set_up.demo import run_demo  # noqa: PLC0415

    raise typer.Exit(run_demo(model=model, clips=clips, keep=keep))


@app.command()
@example("reelabel up")
def up() -> None:
    """Start the embedded services and leave them running.

    They are Postgres, an S3 server, a Prefect server and its worker. The database's schema is upgraded.
    """
    from flows.cli.set_up.services import start_services  # noqa: PLC0415

    start_services()


@app.command()
@example("reelabel down")
def down(
    *,
    force: Annotated[bool, typer.Option("--force", help="Stop them even if another command is using them.")] = False,
) -> None:
    """Stop the embedded services; their data is kept."""
    from flows.cli.set_up.services import stop_services  # noqa: PLC0415

    stop_services(load_settings(), force=force)


@app.command()
@example("reelabel prepare")
def prepare() -> None:
    """Upgrade the database's schema and create the store's bucket."""
    from flows.cli.set_up.services import prepare_storage  # noqa: PLC0415

    prepare_storage()


@app.command()
@example("reelabel doctor")
def doctor() -> None:
    """Check the installation and its services, and suggest fixes.

    Exits with 2 if a check fails.
    """
    from flows.cli.set_up.services import print_checks  # noqa: PLC0415

    raise typer.Exit(print_checks(load_settings()))


@app.command()
@example("reelabel config")
def config(
    *,
    form: Annotated[
        str,
        typer.Option(
            "--format", help="toml, the settings in use; or markdown, a reference of all with their defaults."
        ),
    ] = "toml",
) -> None:
    """Print every setting with its value and meaning; secrets are masked."""
    from flows.cli.set_up.services import print_settings, settings_page  # noqa: PLC0415

    if form not in {"toml", "markdown"}:
        raise ConfigurationError(f"Unknown --format {form}; use toml or markdown.")
    if form == "markdown":
        print(settings_page(), end="")  # noqa: T201 - may be saved as a file
    else:
        print_settings(load_settings())
