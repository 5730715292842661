"""A user's own folder in Prefect's usual layout: packages that have the names of ours."""

NAMES = ("flows", "tasks", "infra", "sql")


def write_shadow(folder):
    """Write packages that say so when they are imported in the place of ours."""
    for name in NAMES:
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(f'raise ImportError("{name} of the user was imported")\n')
    return folder
