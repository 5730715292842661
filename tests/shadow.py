"""A user's folder in Prefect's usual layout, with packages that have the same names as ours."""

NAMES = ("flows", "tasks", "infra", "sql")


def write_shadow(folder):
    """Write packages that raise an ImportError if they are imported instead of ours."""
    for name in NAMES:
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(f'raise ImportError("{name} of the user was imported")\n')
    return folder
