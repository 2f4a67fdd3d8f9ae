"""Converts an HTTP API's answer to the text that a model reads."""

from __future__ import annotations

import codecs
import re
import unicodedata

import httpx

CHARSETS = frozenset(
    {"ascii", "utf-8", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "koi8-r", "koi8-u"}
    | {f"iso8859-{n}" for n in range(1, 17)}
    | {f"cp{n}" for n in (932, 936, 949, 950, 1250, 1251, 1252, 1253, 1254, 1255, 1256, 1257, 1258)}
    | {"gb2312", "gbk", "gb18030", "big5", "shift_jis", "euc_jp", "euc_kr"}
)
"""Python's names of the accepted encodings. Python has others that take minutes for a megabyte, or
that are not text encodings."""
SNIFFED_BYTES = 4_096

_PICTURES = ("image/", "audio/", "video/", "font/", "model/")
_TEXT_ENDINGS = ("+json", "+xml", "+yaml", "+text")
_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_DECLARED = re.compile(
    rb"""<\?xml[^>]{0,80}?encoding=["']([\w.:-]{1,40})"""
    rb"""|<meta[^>]{0,80}?charset=["']?([\w.:-]{1,40})"""
)


def text_of(headers: httpx.Headers, body: bytes) -> str | None:
    """The text of an answer; None if it is not text (a picture, an archive)."""
    whole = headers.get("content-type", "")
    kind = whole.partition(";")[0].strip().lower()
    charset = _charset(whole, kind, body)
    # A header that declares text is trusted; otherwise the bytes decide.
    is_text = kind.startswith("text/") or kind.endswith(_TEXT_ENDINGS) or kind == "application/json"
    if not is_text and (kind.startswith(_PICTURES) or not _looks_like_text(body, charset)):
        return None
    return body.decode(charset, "replace").removeprefix("\ufeff")


def kind_of(headers: httpx.Headers) -> str:
    return headers.get("content-type", "").partition(";")[0].strip().lower() or "no content-type"


def _charset(header: str, kind: str, body: bytes) -> str:
    """Encoding from the byte order mark, the header, or the declaration of an XML or HTML page;
    otherwise UTF-8."""
    for mark, name in _BOMS:
        if body.startswith(mark):
            return name
    named = re.search(r"""charset\s*=\s*["']?([^\s"';]{1,40})""", header, re.IGNORECASE)
    if named is not None:
        return _known_charset(named[1]) or "utf-8"
    if kind.endswith(("xml", "html")) and (match := _DECLARED.search(body[:1_024])):
        return _known_charset((match[1] or match[2]).decode("ascii", "replace")) or "utf-8"
    return "utf-8"


def _known_charset(charset: str) -> str | None:
    try:
        name = codecs.lookup(charset).name
    except (LookupError, ValueError):
        return None
    return name if name in CHARSETS else None


def _looks_like_text(body: bytes, charset: str) -> bool:
    try:
        # The last character may be incomplete.
        begins = codecs.getincrementaldecoder(charset)().decode(body[:SNIFFED_BYTES])
    except UnicodeError:
        return False
    return not any(
        unicodedata.category(character) in ("Cc", "Cn") and character not in "\t\n\r\f\x1b"
        for character in begins
    )
