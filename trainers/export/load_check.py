"""Checks that llama.cpp can load a new file without crashing.

On unexpected content, an assertion in llama.cpp ends its whole process: in a worker, with all of
its current work. So a file is loaded, and one token computed, in a separate process before the file
gets its name.
"""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from loopline.trainers.errors import TrainingError
from loopline.workers.isolated_python import OWN_PYTHON

_WORDS = 400
"""Characters kept from llama.cpp's last output."""


def require_loadable(file: Path) -> None:
    """Raise TrainingError for a file that llama.cpp refuses or that crashes it. Without
    llama-cpp-python nothing is tried."""
    if find_spec("llama_cpp") is None:
        return
    result = subprocess.run(
        [*OWN_PYTHON, "-m", __name__, str(file)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    if result.returncode == 0:
        return
    message = " ".join(result.stderr.decode(errors="replace").split())[-_WORDS:]
    how = "refuses" if result.returncode > 0 else "crashes on"
    raise TrainingError(f"llama.cpp {how} the converted file ({message}); nothing was written")


def main() -> int:
    """Load the file given on the command line and compute one token."""
    from loopline.workers.engines.llama_cpp.context import (
        Feed,
        LlamaContext,
        begin_listening,
        last_error,
        llama,
    )

    begin_listening()
    llama.llama_backend_init()
    parameters = llama.llama_model_default_params()
    parameters.n_gpu_layers = 0
    model = llama.llama_model_load_from_file(sys.argv[1].encode(), parameters)
    if model is None:
        print(last_error(), file=sys.stderr)
        return 1
    context = LlamaContext(model, cells=32, sequences=1, batch=8, threads=1, exact=False)
    context.decode([Feed(0, 0, [0], wanted=1)])
    return 0


if __name__ == "__main__":
    sys.exit(main())
