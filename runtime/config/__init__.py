"""Configuration of one deployment: profiles, files, environment and options, resolved and typed."""

from pathlib import Path

PROFILE_DIR = Path(__file__).parents[1] / "profiles"


def profile_names() -> list[str]:
    """Names of the profiles that come with the program; every `--help` shows them, so that nothing
    may be imported for them."""
    return sorted(path.stem for path in PROFILE_DIR.glob("*.toml"))
