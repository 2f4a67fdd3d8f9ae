"""Anything that looks like a secret is hidden, however long the text is, and regardless of its
author."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loopline.runtime.config import secrets
from loopline.runtime.config.secrets import Redactor

HIDDEN = {
    "train --token=hunter2abc x": "train --token=*** x",
    "--api-key hunter22 --next": "--api-key *** --next",
    "http://h/v1?api_key=abc123&x=1": "http://h/v1?api_key=***&x=1",
    "http://h/v1?x=1&key=abc123#top": "http://h/v1?x=1&key=***#top",
    "OPENAI_API_KEY=short": "OPENAI_API_KEY=***",
    "{'api_key': 'abcdef'}": "{'api_key': '***'}",
    r'"{\"token\": \"abc\"}"': r'"{\"token\": \"***\"}"',
    "Authorization: Basic dXNlcg==": "Authorization: Basic ***",
    "x-api-key: abc": "x-api-key: ***",
    "finish_reason 'sk-abcdef1234567890'": "finish_reason '***'",
    "redis://u:p@h/0": "redis://u:***@h/0",
    "eyJhbGciOiJI.eyJzdWIiOiIx.abcdefghij": "***",
    "AKIAABCDEFGHIJKLMNOP": "***",
    "xapp-1-A01-123-753dc98fa36a1009": "***",
    "https://hooks.slack.com/services/T0/B0/WCfPKPv8oy9": "https://hooks.slack.com/services/***",
    "pplx-1qnlsjImrtLWq1RCY3Z2kIw": "***",
    "nvapi-UPieGxKZtBGRwWHuahCT": "***",
    "lsv2_pt_9ea50487435d13836822": "***",
    "ya29.GXYueG8QllXjj03utgTG16Msi5": "***",
    "SG.53Nzu7B7WpYrmeOUk3LCL6.7UjM8qDHkiXi5TCxtWz": "***",
    "dapi8bface3fb4d4058b49d89d8daf6fcd22": "***",
    "123456789:AAct0ZPIuAtuwruVVHGaHhju6UuYuKeCrED": "***",
    "authorization=Bearer WlV4LSCIjdGu": "authorization=***",
    "Ocp-Apim-Subscription-Key: 2153769da0097278": "Ocp-Apim-Subscription-Key: ***",
    "PRIVATE-TOKEN: XOp0YqWzJsKYNfeTk578": "PRIVATE-TOKEN: ***",
    "Set-Cookie: sid=rzfRKNUHEKAI7; Path=/": "Set-Cookie: ***",
    "https://4skj2Yy1CzhMjrsQRZOM8aI8a60Piy@github.com/x.git": "https://***@github.com/x.git",
    "https://s3/x?X-Amz-Signature=ae741a35fa30&y=1": "https://s3/x?X-Amz-Signature=***&y=1",
    '"clientSecret": "epzXDhKPdyfJ"': '"clientSecret": "***"',
    "PGPASSWORD=ZmF0rx7jq": "PGPASSWORD=***",
    "AccountName=x;AccountKey=4LWXev5dDc1N==;": "AccountName=x;AccountKey=***;",
    "aws_session_token = yARiLMiRIIe7p2yi": "aws_session_token = ***",
    "password: hunter2hunter2": "password: ***",
    "api key 'OxLeF5Of2ICvG6ZIa7k6uxnj' is invalid": "api key '***' is invalid",
    "-----BEGIN RSA PRIVATE KEY-----\nOLpV\n-----END RSA PRIVATE KEY-----": (
        "-----BEGIN RSA PRIVATE KEY-----***"
    ),
    "-----BEGIN RSA PRIVATE KEY-----\nDEK-Info: AES-128-CBC,A\n\nOL-pV\n": (
        "-----BEGIN RSA PRIVATE KEY-----***"
    ),
    "-----BEGIN PGP PRIVATE KEY BLOCK-----\n\nOLpV": "-----BEGIN PGP PRIVATE KEY BLOCK-----***",
    "Authorization: ApiKey Zx9Qk2Lm7Pv4": "Authorization: ApiKey ***",
    "Authorization: Bearer 'Zx9Qk2Lm7Pv4'": "Authorization: Bearer '***'",
    "sent Bearer authZx9Qk2Lm7Pv4 to it": "sent Bearer *** to it",
    'Authorization: Digest username="u", response="Zx9Qk2Lm"': "Authorization: Digest ***",
    "Authorization%3A%20Bearer%20Zx9Qk2Lm7Pv4": "Authorization%3A%20Bearer%20***",
    "[('x-api-key', 'Zx9Qk2Lm7Pv4')]": "[('x-api-key', '***')]",
    "(b'authorization', b'Basic Zx9Qk2Lm7Pv4')": "(b'authorization', b'***')",
    "{'api_key': b'Zx9Qk2Lm7Pv4'}": "{'api_key': b'***'}",
    r"""'{"password": "a\"b c"}'""": """'{"password": "***"}'""",
    r'{\\"token\\": \\"abc\\"}': r'{\\"token\\": \\"***\\"}',
    '"api_keys": ["Zx9Qk2Lm7Pv4"]': '"api_keys": ["***"]',
    "'api_key' => 'Zx9Qk2Lm7Pv4'": "'api_key' => '***'",
    "api_key=SecretStr('Zx9Qk2Lm7Pv4')": "api_key=***')",
    'password="two words"': 'password=***"',
    'apiKey: "Zx9Qk2Lm7Pv4"': 'apiKey: ***"',
    "password = 'Zx9Qk2Lm7Pv4'": "password = ***'",
    "password: >-\n  Zx9Qk2Lm7Pv4": "password: ***",
    "<password>Zx9Qk2Lm7Pv4</password>": "<password>***</password>",
    "x%3Fapi_key%3DZx9Qk2Lm7Pv4": "x%3Fapi_key%3D***",
    "x?a=1&amp;key=Zx9Qk2Lm7Pv4": "x?a=1&amp;key=***",
    "x?subscription-key=Zx9Qk2Lm7Pv4": "x?subscription-key=***",
    "OPENAI_KEY=Zx9Qk2Lm7Pv4": "OPENAI_KEY=***",
    "{'AZURE_OPENAI_KEY': 'Zx9Qk2Lm7Pv4'}": "{'AZURE_OPENAI_KEY': ***'}",
    '{"DB_PASS":"Zx9Qk2Lm7Pv4"}': '{"DB_PASS":***"}',
    "https://hooks.slack.com/workflows/T0/A0/Zx9Qk2Lm": "https://hooks.slack.com/workflows/***",
    "https://outlook.office.com/webhook/Zx9Qk2Lm/x": "https://outlook.office.com/webhook/***",
    "Server=x;Pwd=Zx9Qk2Lm7Pv4;": "Server=x;Pwd=***;",
    "HTTPS://u:Zx9Qk2Lm7Pv4@h/": "HTTPS://u:***@h/",
    "https%3A%2F%2Fu%3AZx9Qk2Lm7Pv4%40h": "https%3A%2F%2Fu%3A***%40h",
    "https://Zx9Qk2Lm7Pv4Zx9Qk2Lm7Pv4:x-oauth-basic@h/": "https://***@h/",
    "curl -u me:Zx9Qk2Lm7Pv4 https://h": "curl -u me:*** https://h",
    "'Cookie': 'session=Zx9Qk2Lm7Pv4'": "'Cookie': '***'",
    "Incorrect API key provided: Zx9Qk2Lm7Pv4": "Incorrect API key provided: ***",
    "The token 'Zx9Qk2Lm7Pv4Rt8W' has expired": "The token '***' has expired",
    "requirepass Zx9Qk2Lm7Pv4": "requirepass ***",
    "https://discord.com/api/webhooks/12/Zx9Qk2Lm": "https://discord.com/api/webhooks/12/***",
    "https://h/bot123456789:AAct0ZPIuAtuwruVVHGaHhju6UuYuKeCrED/x": "https://h/bot***/x",
    "xoxc-12-Zx9Qk2Lm7Pv4": "***",
    "glrt-Zx9Qk2Lm7Pv4": "***",
    "hvs.Zx9Qk2Lm7Pv4": "***",
    "GOCSPX-Zx9Qk2Lm7Pv4": "***",
    "eyJhbGciOiJI.e30.Zx9Qk2Lm7Pv4": "***",
}
SHOWN = [
    "max_tokens=256 tokens=3 prompt_tokens: 5",
    "api_key_env=OPENAI_API_KEY",
    "control token: <s>",
    "token 5 of 10",
    "http://h/v1?tokens=5",
    "maxTokens=256, totalTokens: 1234567890",
    "run 01a21d3c-3bbd-7ca7-8f23-771609f22403",
    "weights_sha256: 8d24987638f1962aa941eb10ad51d5673438e61b",
    "commit 8d24987638f1962aa941eb10ad51d5673438e61b",
    "chatcmpl-8d24987638f1962aa941, call_8d24987638f1962aa941eb10",
    "password must be set; secret sharing; the key is under the mat",
    "wrong password: connection refused; password: Optional[str]",
    "token: the next word, token = tokenizer.next()",
    "a firmware-update-of-the-pool, sk-learn 1.2",
    "primary-key: 12345678, cookie recipe: flour=1",
    "https://h/v1/models/gpt-4o-mini",
    "token=5 tokens, price_per_token=0.000001, dollars per token: 0.00000125",
    "eos_token=</s> pad_token: <pad>1234 'bos_token': '<|begin_of_text|>'",
    "token=None api_key=null",
    "if token=='+': pass",
    "hf_hub_download, npm_config_registry, sk_learn_linear_model, xai-grok-2-latest",
    "Bearer authentication failed",
    "PWD=/home/user1234 docker run -u 1000:1000",
    "api key OPENAI_API_KEY_2 isn't set",
    "('password', 'token', 'api_key')",
]


@pytest.mark.parametrize(("text", "safe_text"), HIDDEN.items())
def test_a_secret_is_recognized_by_its_name_or_its_form(text: str, safe_text: str) -> None:
    assert Redactor().text(text) == safe_text


@pytest.mark.parametrize("text", SHOWN)
def test_text_that_only_resembles_a_secret_stays_readable(text: str) -> None:
    assert Redactor().text(text) == text


@pytest.mark.parametrize(
    "spelling",
    [
        "a%2Fb%3Fc+d%22",
        r"a/b?c d\"",
        "a%2Fb%3Fc%20d%22",
        "a%2fb%3fc%20d%22",
        "a/b%3Fc%20d%22",
        "a%252Fb%253Fc%2520d%2522",
        r"a\/b?c d\"",
        r"a\u002Fb?c d\u0022",
        r"a/b?c d\\\"",
        "a/b?c d&quot;",
        "a&#47;b?c d&#x22;",
    ],
)
def test_a_known_value_is_hidden_as_json_urls_and_html_spell_it(spelling: str) -> None:
    assert Redactor(['a/b?c d"']).text(f"x {spelling} y") == "x *** y"


@pytest.mark.parametrize(
    ("secret", "spelling"),
    [
        ("pässword", r"p\u00e4ssword"),
        ("pässword", "p%C3%A4ssword"),
        ("pässword", r"p\xc3\xa4ssword"),
        ("key\U0001d4b3abc", r"key\ud835\udcb3abc"),
        ("line\nline", r"line\nline"),
        (r"a\b\\cdef", r"a\\b\\\\cdef"),
        ("it's me", r"it\'s me"),
        ("a&b<c>d", r"a\u0026b\u003cc\u003ed"),
        ("a&b<c>d", "a&amp;b&lt;c&gt;d"),
    ],
)
def test_a_character_of_a_known_value_is_hidden_in_each_escape(secret: str, spelling: str) -> None:
    assert Redactor([secret]).text(f"x {spelling} y {secret}") == "x *** y ***"


def test_a_known_value_of_backslashes_is_searched_for_in_bounded_time() -> None:
    began = time.process_time()
    Redactor(["\\" * 20 + "x"]).text("\\" * 20_000)
    assert time.process_time() - began < 5


def test_a_secret_is_hidden_where_it_is_a_key() -> None:
    assert Redactor().value({"sk-abcdef1234567890": 1}) == {"***": 1}


HOSTILE = ["('token', '", "x-api-key', '", "<token>", "https%3A%2F%2F", "token: >\n",
           "Authorization: Digest a=", "api key ", "-u a:", "hf_a", "sk-a_", "eyJaaaaaaaa..",
           "a.", "a-", "a_", "a://b:", "sk-", "eyJ-", "eyJaaaaaaaaa.", "token=", "token-",
           "--token ", "authorization: ", 'token":', "a" * 31 + "_", "x-", " ",
           "bearer ", "-----BEGIN PRIVATE KEY-----", "cookie: a=", "x-a-", "aA", "a://a",
           "hooks.slack.com/services/", "SG.", "password: ", "token = "]  # fmt: skip


@pytest.mark.parametrize("unit", HOSTILE)
def test_redaction_takes_linear_time_in_the_length_of_a_text(unit: str) -> None:
    """A text of twelve times the length takes twelve times as long, not 144 times."""

    def seconds(length: int) -> float:
        text = (unit * length)[:length]
        durations: list[float] = []
        for _ in range(3):
            began = time.process_time()
            Redactor().text(text)
            durations.append(time.process_time() - began)
        return min(durations)

    assert seconds(60_000) < 40 * max(seconds(5_000), 1e-4)


_PIECES = st.one_of(
    st.sampled_from([*HIDDEN, *SHOWN, "sk-", "_", "-", "AKIA", "AIza", "eyJ", ".", " ", ":", "="]),
    st.text("abcXYZ019-_.=:/@\"' \n", max_size=20),
    st.text(max_size=5),
)


@given(st.lists(_PIECES, max_size=6).map("".join))
def test_no_text_that_skips_the_search_contains_a_secret(text: str) -> None:
    expected = text
    for pattern, hidden in secrets._IN_TEXT:  # pyright: ignore[reportPrivateUsage]
        expected = pattern.sub(hidden, expected)
    assert Redactor().text(text) == expected
