"""Adds the generated reference pages to the site, each time it is built."""

from __future__ import annotations

import sys
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

sys.path.insert(0, str(Path(__file__).parent))

from reference_pages import pages


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Called by MkDocs once it has listed the files of `docs/`."""
    for path, text in pages().items():
        files.append(File.generated(config, path, content=text))
    return files
