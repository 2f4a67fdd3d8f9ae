"""Recognizes secrets, and hides them before anything is printed or logged."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any, cast
from urllib.parse import unquote, urlsplit

from loopline.agents.known_secrets import HIDDEN, pattern_of

_WORD_BEGINS = r"(?:^|[_-]|(?-i:(?<=[a-z])(?=[A-Z])|\bPG(?=PASS)))"
_KEY_OF_SECRET = (
    r"(?:api|access|account|auth|encryption|private|secret|signing|subscription)[_-]?key"
)
SECRET_NAME = re.compile(
    rf"{_WORD_BEGINS}(?:(?:password|passwd|passphrase|secret|token|{_KEY_OF_SECRET}"
    r"|authorization|credential)s?|(?<=[_-])pwd)$",
    re.IGNORECASE,
)
"""Names whose values are never shown. `api_key_env` holds a variable's *name* and stays readable,
as do all values of a table such as `headers_env`, counts such as `max_tokens`, and the names of a
tokenizer's own tokens: the next pattern excludes both."""

_NO_SECRET_TOKEN = r"(?:bos|cls|eos|mask|pad|per|sep|unk)[_-]token"
_NOT_SECRET = re.compile(rf"{_WORD_BEGINS}(?:tokens|{_NO_SECRET_TOKEN})$", re.IGNORECASE)

_SECRET_WORD = (
    rf"(?:password|passwd|passphrase|secret(?:_key_base)?|token|{_KEY_OF_SECRET}"
    r"|authorization|credential)s?"
)
# Words with separators, or written together: `clientSecret`, `PGPASSWORD`.
_NAME_IN_TEXT = (
    r"(?<![A-Za-z0-9])(?<!\b(?:bos|cls|eos|pad|per|sep|unk)[_-])(?<!\bmask[_-])(?!(?:[A-Za-z0-9]{1,32}[_-]){0,4}"
    rf"(?:[A-Za-z0-9]{{0,32}}tokens|{_NO_SECRET_TOKEN})\b)"
    rf"(?:[A-Za-z0-9]{{1,32}}[_-]){{0,4}}[A-Za-z0-9]{{0,32}}?{_SECRET_WORD}"
)
_SCHEME_NAME = r"(?:basic|bearer|bot|digest|token|oauth|negotiate|ntlm|(?:api-?)?key)"
_SCHEME = rf"(?:{_SCHEME_NAME}(?:\s{{1,3}}|%20|\+))?"
_NO_SECRET_VALUE = (
    r"(?![\"']?(?:none|null|</?[a-z_]{1,32}>|<\|)(?![\w-])"
    r"|(?<=token[=:])\d{1,5}(?![\w.-])|\d{1,9}\.\d{1,20}(?![\w.-]))"
)
"""Values that say that there is none, a tokenizer's own tokens, and counts and costs of a token."""
_QUOTED = r"(?:(?!\2)(?:\\++[^\r\n]|[^\\\r\n])){1,16384}+"
"""A text up to the quotation mark of group 2, which itself may be escaped."""
_IDENTIFIER = r"(?!(?!live_|test_)[a-z]{1,16}(?:_[a-z]{1,16}){1,9}(?![\w-]))"
"""Not a program's own name, such as `hf_hub_download` or `sk_learn_model`."""
_KEY_PREFIX = (
    r"(?:(?:xai|gh[pousr]|github_pat|xox[a-z]|glpat)[-_](?!grok-)"
    rf"|(?:sk|pk|rk|hf|gsk|r8|npm|pypi)[-_]{_IDENTIFIER}"
    rf"|(?:fw|jina|lsv2|ntn|tgp_v1|whsec|dop_v1|lin_api)_{_IDENTIFIER}"
    r"|(?:api_org|dckr_pat|figd|glc|glsa|ph[cx]|rubygems|sb_secret|sbp|sgp|shp(?:at|ca|pa|ss)"
    rf"|sntry[su]|syt|vercel_blob_rw|wandb_v1)_{_IDENTIFIER}"
    r"|(?:csk|nvapi|pplx|tvly|xapp|GOCSPX|gl(?:cbt|dt|ft|imt|oas|ptt|rt|soat)|sq0(?:atp|csp)"
    r"|NRAK|PMAK|AGE-SECRET-KEY)-|hv[bsr]\.)"
)
_HEADER = (
    r"(?:(?:x-[a-z-]{0,32}|(?:ocp-apim-)?subscription-|private-|api-|access-|auth-|session-)"
    r"(?:key|token|secret|signature)|(?:proxy-)?authorization)"
)

_IN_TEXT = tuple(
    (re.compile(pattern), hidden)
    for pattern, hidden in (
        # The user and password of a URL.
        (r"(?i)(\b[a-z][a-z0-9+.-]{0,30}://[^\s:/@]{0,256}):[^\s/]{0,1024}@", rf"\1:{HIDDEN}@"),
        (
            r"(?i)(\b[a-z][a-z0-9+.-]{0,30}%3A%2F%2F(?:(?!%3A)[^\s/@?&]){0,256}%3A)"
            r"(?:(?!%40)[^\s/@?&]){0,1024}(?=%40)",
            rf"\1{HIDDEN}",
        ),
        # … or only a token, and tokens in the path of a URL.
        (
            r"(?i)(\b[a-z][a-z0-9+.-]{0,30}://)[^\s:/@?#]{20,256}(?::\*\*\*)?@",
            rf"\1{HIDDEN}@",
        ),
        (
            r"(\bhooks\.slack\.com/(?:services|triggers|workflows)/|\bdiscord(?:app)?\.com/api/(?:v\d{1,2}/)?webhooks/\d{1,20}/"
            r"|\bwebhook\.office\.com/webhookb2/|\boutlook\.office(?:365)?\.com/webhook/)[A-Za-z0-9@/_-]{8,}",
            rf"\1{HIDDEN}",
        ),
        # `Authorization: Digest username=…, response=…`
        (
            r"(?i)(\bauthorization[\"']?\s{0,3}[:=]\s{0,3}[\"']?(?:digest|oauth|signature|aws4-[\w-]{1,30})"
            r"\s)(?=[\w-]{1,32}=[\"\w])[^\r\n]+",
            rf"\1{HIDDEN}",
        ),
        # `token="…"`, also if the value has spaces.
        (
            rf"(?i)({_NAME_IN_TEXT}=(?:b|SecretStr\()?)(?={_NO_SECRET_VALUE})([\"']){_QUOTED}",
            rf"\1{HIDDEN}",
        ),
        # `--token=…`, `?api_key=…`, `OPENAI_API_KEY=…`
        (
            rf"(?i)({_NAME_IN_TEXT}(?:=(?!=)|%3D)){_NO_SECRET_VALUE}"
            rf"[\"']?{_SCHEME}[^\s&\"',;)}}\]]+",
            rf"\1{HIDDEN}",
        ),
        (
            r"(?i)((?:[?&]|&amp;|%3F|%26)(?:key|(?:[a-z]{1,9}-){0,3}sig(?:nature)?|auth|jwt)"
            r"(?:=|%3D))[^\s&\"'#]+",
            rf"\1{HIDDEN}",
        ),
        # `LLM_KEY=…`, `"LLM_KEY": "…"`, `DB_PASS=…`, `Pwd=…`; a shell's `PWD` is a folder.
        (
            r"(\b(?:[A-Z][A-Z0-9]{0,32}_){1,4}(?:KEY|PASS|PWD)(?:=|[\"']\s{0,3}:\s{0,3})|(?i:\bpwd|[?&]pass)=)[\"']?"
            r"(?=[^\s&\"',;/]{0,99}[0-9])[^\s&\"',;/][^\s&\"',;]{7,}",
            rf"\1{HIDDEN}",
        ),
        # `token = …` and `password: …`, if the value looks like a secret and not like a word.
        (
            rf"(?i)({_NAME_IN_TEXT}(?:\s{{1,3}}(?::?=|=>)(?!=)\s{{0,3}}|\s{{0,1}}[:：]\s{{1,3}}|：))"
            rf"{_NO_SECRET_VALUE}(?:[|>][+-]?\s{{1,16}})?[\"'`]?"
            r"(?=[^\s\"'`,;]{0,99}[0-9])[^\s\"'`,;]{8,}",
            rf"\1{HIDDEN}",
        ),
        # `--token …`
        (rf"(?i)(--{_NAME_IN_TEXT}\s{{1,3}}[\"']?)(?!-)[^\s\"']+", rf"\1{HIDDEN}"),
        (
            r"(\s(?:-u|--user|--proxy-user)[ =][\"']?[^\s:\"']{1,64}:)(?!\d{1,6}\b)[^\s\"']+",
            rf"\1{HIDDEN}",
        ),
        # `"api_key": "…"`, `'api_key' => '…'`
        (
            rf"(?i)({_NAME_IN_TEXT}\\{{0,7}}[\"']\s{{0,3}}(?::|=>)\s{{0,3}}\[?\s{{0,3}}b?)"
            rf"(?!\\{{0,7}}[\"'](?:</?[a-z]{{1,32}}>|<\|))(\\{{0,7}}[\"']){_QUOTED}",
            rf"\1\2{HIDDEN}",
        ),
        # `('x-api-key', '…')`, as a program prints the headers of a request.
        (
            rf"(?i)((?:{_HEADER}|{_NAME_IN_TEXT})[\"']\s{{0,3}},\s{{0,3}}b?)"
            rf"(?=[\"'][^\"'\r\n]{{0,128}}[0-9])([\"']){_SCHEME}(?=[^\"']{{8}}){_QUOTED}",
            rf"\1\2{HIDDEN}",
        ),
        (rf"(?i)(<{_NAME_IN_TEXT}>)[^<\s][^<]{{5,1024}}(?=</)", rf"\1{HIDDEN}"),
        # `Authorization: Bearer …`, `x-api-key: …`
        (
            rf"(?i)\b({_HEADER})((?:\s{{0,3}}:\s{{0,3}}|%3A(?:%20|\+)?){_SCHEME}[\"']?)"
            r"[^\s\"',;]+",
            rf"\1\2{HIDDEN}",
        ),
        (
            r"(?i)(\b(?:set-)?cookie[\"']?\s?[:,]\s?b?[\"']?)[\w.-]{1,64}=[^\r\n\"']*",
            rf"\1{HIDDEN}",
        ),
        # `Incorrect API key provided: …`, `api key '…' is invalid`, `the token '…' has expired`
        (r"(?i)(\bapi[ _-]key\s{1,3}[\"'`])[^\s\"'`]{8,}", rf"\1{HIDDEN}"),
        (
            r"(?i)(\b(?:api|access)[ _-]?key(?:\s(?:provided|given|used|value|is|was))?"
            r"(?:\s{1,3}|\s?[:=]\s{0,3})[\"'`]?)(?!https?:|(?-i:[A-Z][A-Z0-9_]+\b))"
            r"(?=[^\s\"'`,;]{0,99}[0-9])[\w.~+/=-]{12,}",
            rf"\1{HIDDEN}",
        ),
        (
            r"(?i)(\b(?:token|password|secret)\s[\"'`])(?=[^\s\"'`]{0,99}[0-9])[\w.~+/=-]{16,}",
            rf"\1{HIDDEN}",
        ),
        (r"(\b(?:requirepass|masterauth)\s{1,3}[\"']?)[^\s\"']{6,}", rf"\1{HIDDEN}"),
        (r"(?i)(\btoken\s)[0-9a-f]{40}\b", rf"\1{HIDDEN}"),
        (
            r"(?i)\b(bearer(?:\s{1,3}|%20|\+)[\"']?)(?!(?:auth(?:entication|orization)?|token)\b)[A-Za-z0-9._~+/=-]{8,}",
            rf"\1{HIDDEN}",
        ),
        # Keys by their format: of OpenAI and others, of hubs and forges, of clouds, and JWTs.
        (rf"\b{_KEY_PREFIX}[A-Za-z0-9_-]{{12,}}", HIDDEN),
        (r"\b(?:AKIA|ASIA|ABIA|ACCA)[0-9A-Z]{16}\b|\bAIza[0-9A-Za-z_-]{30,}", HIDDEN),
        (
            r"\bya29\.[\w-]{20,}|\bSG\.[\w-]{16,64}\.[\w-]{16,}|\b(?:dapi|SK)[0-9a-f]{32}\b"
            r"|(?:\b|(?<=/bot))[0-9]{8,10}:AA[\w-]{32,}|\bATATT3[\w=-]{20,}|\bsess-[A-Za-z0-9]{32,}"
            r"|\b1//0[\w-]{30,}",
            HIDDEN,
        ),
        (
            r"(-----BEGIN [A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?-----)(?:(?!----)[^\0]){1,16000}+"
            r"(?:-----END [A-Z0-9 ]{1,40}-----)?",
            rf"\1{HIDDEN}",
        ),
        (r"\beyJ[\w-]{8,4096}(?:\.[\w-]{0,4096}){2,4}", HIDDEN),
    )
)
"""Patterns of secrets in a text, with their replacements. A repetition that something must follow
is bounded: a foreign text may be a megabyte that starts like a secret."""
_PERHAPS = re.compile(
    r"(?i:://|%3A|pass|secret|token|key|auth|credential|cookie|bearer|pwd|sig|jwt|hook|\s-u|-user)"
    rf"|\b{_KEY_PREFIX}|AKIA|ASIA|ABIA|ACCA|AIza|ATATT3|eyJ|ya29|SG\.|dapi|sess-|SK|:AA|1//0"
)
"""Finds a text that one of these patterns could match. Most texts of a log (ids, names, levels)
don't match, and need not be searched thirty times."""


@lru_cache(maxsize=1024)
def is_secret_name(name: str) -> bool:
    return bool(SECRET_NAME.search(name)) and not _NOT_SECRET.search(name)


class Redactor:
    """Hides the given values, also as JSON, URLs and HTML spell them, and everything that looks
    like a key, in any text."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._values = pattern_of(frozenset(values))

    def text(self, text: str) -> str:
        if self._values is not None:
            text = self._values.sub(HIDDEN, text)
        if _PERHAPS.search(text) is None:
            return text
        for pattern, hidden in _IN_TEXT:
            text = pattern.sub(hidden, text)
        return text

    def value(self, value: Any, name: str = "") -> Any:
        """Return a JSON-like value with every secret hidden, recognized by its key's name or its
        format."""
        if name and is_secret_name(name) and value not in (None, ""):
            return HIDDEN
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, bytes):
            return self.text(value.decode("utf-8", "replace"))
        if isinstance(value, Mapping):
            holds_names = name.endswith("_env")
            return {
                self.text(key) if isinstance(key, str) else key: self.value(
                    inner, "" if holds_names else str(key)
                )
                for key, inner in cast(Mapping[Any, Any], value).items()
            }
        if isinstance(value, list | tuple):
            return [self.value(inner) for inner in cast(Iterable[Any], value)]
        # The text of anything else, such as an exception, may contain a secret.
        return value if value is None or isinstance(value, int | float) else self.text(str(value))


def secret_values(
    redis_url: str | None, key_variables: Iterable[str], environ: Mapping[str, str] | None = None
) -> list[str]:
    """Return the values that must never be written: the passwords in the URL, encoded and decoded,
    and the configured API keys."""
    environ = os.environ if environ is None else environ
    values = [environ[name] for name in key_variables if environ.get(name)]
    parts = urlsplit(redis_url or "")
    passwords = [parts.password, *re.findall(r"(?:^|&)(?:ssl_)?password=([^&]*)", parts.query)]
    for password in filter(None, passwords):
        values += [password, unquote(password)]
    return list(dict.fromkeys(values))
