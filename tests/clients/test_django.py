"""The Django project of the documentation, exactly as its page shows it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.clients.environments import environments
from tests.docs.fences import ROOT, blocks

pytestmark = pytest.mark.slow

PROGRAM = Path(__file__).with_name("programs") / "ask_django.py"


def test_async_and_sync_django_views_ask_an_app(tmp_path: Path) -> None:
    environment = environments()["django"]
    if environment.missing:
        pytest.skip(environment.missing)
    [code] = [
        block.text
        for block in blocks("docs/build/apps.md")
        if "from django.urls import path" in block.text
    ]
    (tmp_path / "web.py").write_text(code)
    [packages] = environment.folder.glob("lib/python*/site-packages")
    places = (tmp_path, ROOT / "examples", packages, ROOT)
    done = subprocess.run(
        [sys.executable, str(PROGRAM)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, places))},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    quote, first, second, roles = json.loads(done.stdout)
    assert quote == {"sku": "A7", "price": 12.5}
    assert (first, second) == ({"answer": "It is open."}, {"answer": "Until six."})
    assert roles == ["user", "assistant", "user", "assistant"]
