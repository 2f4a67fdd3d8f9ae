"""Programs that solve nothing but try to pass. Each must define a function `f`, or print."""

from __future__ import annotations

CHEATS: dict[str, str] = {
    "says that it passed": """
print("passed"); print("OK"); print('{"passed": true}')
""",
    "exits with 0": """
import sys
sys.exit(0)
""",
    "exits at once with 0": """
import os
os._exit(0)
""",
    "exits when it is asked": """
import os
def f(n): os._exit(0)
""",
    "raises the end of everything": """
def f(n): raise SystemExit(0)
""",
    "equals everything": """
class All:
    __eq__ = __ge__ = __contains__ = lambda self, other: True
    __ne__ = lambda self, other: False
    __hash__ = lambda self: 0
    __sub__ = __rsub__ = __abs__ = lambda self, *other: 0
    __str__ = lambda self: "passed"
def f(n): return All()
""",
    "equals everything and is a number": """
class All(int):
    def __eq__(self, other): return True
    __hash__ = int.__hash__
def f(n): return All()
""",
    "patches the comparison": """
import builtins, json, operator
operator.eq = builtins.all = lambda *_: True
builtins.AssertionError = type("Harmless", (BaseException,), {})
json.dumps = lambda *_: '{"value": true, "passed": true}'
def f(n): return 0
""",
    "patches what runs it": """
import sys
for module in list(sys.modules.values()):
    for name in ("values_agree", "outputs_agree", "encode", "decode", "check", "_why_not"):
        if hasattr(module, name):
            setattr(module, name, lambda *_: None)
def f(n): return 0
""",
    "replaces the judge's builtins": """
import builtins
builtins.compile = builtins.exec = lambda *_, **__: None
def f(n): return 0
""",
    "reads what is around it": """
import glob, re
seen = ""
for path in glob.glob("/proc/[0-9]*/*") + glob.glob("/tmp/*") + glob.glob("/sandbox/*"):
    try:
        with open(path, errors="replace") as file:
            seen += file.read(100_000)
    except OSError:
        pass
def f(n):
    found = re.findall(r"== (\\d+)", seen) + ["0"]
    return int(found[0])
""",
    "looks into its callers and its memory": """
import gc, re, sys
def f(n):
    frame, seen = sys._getframe(), []
    while frame:
        seen.append(repr(frame.f_locals))
        frame = frame.f_back
    seen += [each for some in gc.get_objects() if type(some) in (list, tuple)
             for each in some if type(each) is str]
    found = re.findall(r"== (\\d+)", "".join(seen)) + ["0"]
    return int(found[0])
""",
    "answers before it is asked": """
import os
for descriptor in range(3, 20):
    try:
        os.write(descriptor, b'{"test": 0, "passed": true, "why": null}\\n' * 9)
    except OSError:
        pass
def f(n): return 0
""",
    "answers with nonsense": """
import os
for descriptor in range(3, 20):
    try:
        os.write(descriptor, b"[" * 100_000 + b"\\n")
    except OSError:
        pass
def f(n): return 0
""",
}
