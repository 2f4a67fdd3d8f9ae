"""One line about a machine's gaps: the number of tests that they skip, and the commands that fill
them."""

from __future__ import annotations

import re
from collections.abc import Iterable

BROUGHT_BY = (
    (r"\bredis server|TLS server", "apt-get install redis-server"),
    (r"\bbwrap\b", "apt-get install bubblewrap"),
    (r"\bdocker-compose\b", "apt-get install docker-compose"),
    (r"\bnode\b", "apt-get install nodejs"),
    (r"\bpromtool\b", "apt-get install prometheus"),
    (r"\bchromium\b", "apt-get install chromium"),
    (r"make clients", "make clients"),
    (r"make gguf", "make gguf"),
    (r"make vllm", "make vllm"),
    (r"make (install|test)", "make test"),
    (r"_DATA\b", "LOOPLINE_DATA=FOLDER make test"),
    (r"CUDA GPU", "a machine with a CUDA GPU"),
)
"""Skip reasons, and how to make the test run. `make test` as root runs apt-get by itself."""

_APT = "apt-get install "


def summary(reasons: Iterable[str]) -> str:
    """Return the line, empty if nothing was skipped. A reason outside the table gets its own
    entry."""
    counts: dict[str, int] = {}
    of_their_own = 0
    for reason in reasons:
        for pattern, command in BROUGHT_BY:
            if re.search(pattern, reason):
                counts[command] = counts.get(command, 0) + 1
                break
        else:
            of_their_own += 1
    packages = sorted(command.removeprefix(_APT) for command in counts if command.startswith(_APT))
    parts: list[str] = []
    if packages:
        count = sum(counts[_APT + package] for package in packages)
        parts.append(f"{count} run after `{_APT}{' '.join(packages)}`")
    parts += [
        f"{count} by `{command}`" if " GPU" not in command else f"{count} on {command}"
        for command, count in sorted(counts.items())
        if not command.startswith(_APT)
    ]
    if of_their_own:
        parts.append(f"{of_their_own} for reasons of their own (`pytest -rs` lists them)")
    return f"not run here: {', '.join(parts)}" if parts else ""
