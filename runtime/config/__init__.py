"""Configuration of one deployment: profiles, files, environment and options, resolved and typed."""

from pathlib import Path

PROFILE_DIR = Path(__file__).parents[1] / "profiles"


def profile_names() -> list[str]:
    """Return the names of the shipped profiles. Every `--help` shows them, so this must not import
    anything heavy."""
    return sorted(path.stem for path in PROFILE_DIR.glob("*.toml"))
