"""llama.cpp's functions, by the llama-cpp-python package.

As `Any`, so that the types of all the rest can be checked where the package is not installed.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

llama: Any = import_module("llama_cpp")
chat_format: Any = import_module("llama_cpp.llama_chat_format")
