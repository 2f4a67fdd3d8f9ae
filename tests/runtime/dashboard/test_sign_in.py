"""Who may look at the dashboard, and who may change things there."""

from __future__ import annotations

import re

import httpx

from tests.runtime.conftest import until
from tests.runtime.dashboard.conftest import Dashboard


def form_token(client: httpx.Client) -> str:
    match = re.search(r'name="form_token" value="([^"]+)"', client.get("/runs").text)
    assert match is not None
    return match[1]


def test_without_a_session_every_page_redirects_to_the_sign_in(dashboard: Dashboard) -> None:
    with httpx.Client(base_url=dashboard.url) as client:
        for page in (
            "/runs",
            "/runs/some-id",
            "/workers",
            "/policies",
            "/cost",
            "/compare?a=x&b=y",
        ):
            answer = client.get(page)
            assert answer.status_code == 303
            assert answer.headers["location"] == "/dashboard/sign-in"
        assert client.get("/runs/rows", headers={"x-fragment": "1"}).status_code == 401
        assert client.post("/policies/change", data={}).status_code == 303


def test_a_link_signs_in_once(dashboard: Dashboard) -> None:
    link = dashboard.link()
    with httpx.Client(base_url=dashboard.url) as first, httpx.Client() as second:
        assert first.get(link).headers["location"] == "/dashboard/runs"
        assert first.get("/runs").status_code == 200
        again = second.get(link)
        assert again.status_code == 403
        assert "was used, or is older than a minute" in again.text


def test_a_key_signs_in_only_with_a_right_to_the_dashboard(dashboard: Dashboard) -> None:
    plain = dashboard.deployment.new_key("plain")
    reader = dashboard.deployment.new_key("reader", "--dashboard", "read")
    with dashboard.signed_in(plain["key"]) as client:
        assert client.get("/runs").status_code == 303
    with dashboard.signed_in("sk-loopline-nobody's") as client:
        assert client.get("/runs").status_code == 303
    with dashboard.signed_in(reader["key"]) as client:
        assert "reader" in client.get("/runs").text


def test_a_form_that_is_too_large_is_refused_before_and_after_signing_in(
    dashboard: Dashboard,
) -> None:
    forms = ("key=" + "x" * 10**6, "&".join(f"key{n}=x" for n in range(200)))
    headers = {"content-type": "application/x-www-form-urlencoded"}
    with httpx.Client(base_url=dashboard.url) as stranger, dashboard.signed_in() as client:
        for form in forms:
            answer = stranger.post("/sign-in", content=form, headers=headers)
            assert answer.status_code == 403
            assert "the form has more than" in answer.text
            answer = client.post("/policies/change", content=form, headers=headers)
            assert answer.status_code == 400
            assert "the form has more than" in answer.text


def test_a_read_only_key_can_change_nothing(dashboard: Dashboard) -> None:
    run_id = dashboard.ask("Name a fruit.")
    reader = dashboard.deployment.new_key("looker", "--dashboard", "read")
    with dashboard.signed_in(reader["key"]) as client:
        token = form_token(client)
        assert "Reward this run" not in client.get(f"/runs/{run_id}").text
        for place in (
            f"/runs/{run_id}/cancel",
            f"/runs/{run_id}/fork",
            f"/runs/{run_id}/reward",
            "/policies/change",
        ):
            answer = client.post(place, data={"form_token": token, "value": "1"})
            assert answer.status_code == 403
            assert "read-only" in answer.text


def test_a_form_of_another_site_or_session_is_refused(dashboard: Dashboard) -> None:
    run_id = dashboard.ask("Name a fruit.")
    with dashboard.signed_in() as client, dashboard.signed_in() as other:
        token = form_token(client)
        place = f"/runs/{run_id}/reward"
        for headers in ({"sec-fetch-site": "cross-site"}, {"origin": "https://example.org"}):
            answer = client.post(place, data={"form_token": token, "value": "1"}, headers=headers)
            assert answer.status_code == 403
        for wrong in ("", form_token(other)):
            answer = client.post(place, data={"form_token": wrong, "value": "1"})
            assert answer.status_code == 403
        assert client.post(place, data={"form_token": token, "value": "1"}).status_code == 303


def test_revoking_a_key_ends_its_sessions(dashboard: Dashboard) -> None:
    leaver = dashboard.deployment.new_key("leaver", "--dashboard", "write")
    with dashboard.signed_in(leaver["key"]) as client:
        assert client.get("/runs").status_code == 200
        dashboard.deployment.ok("keys", "revoke", leaver["id"])
        until(lambda: client.get("/runs").status_code == 303, "end of the session")


def test_signing_out_ends_the_session(dashboard: Dashboard) -> None:
    with dashboard.signed_in() as client:
        cookies = dict(client.cookies)
        answer = client.post("/sign-out", data={"form_token": form_token(client)})
        assert answer.headers["location"] == "/dashboard/sign-in"
        with httpx.Client(base_url=dashboard.url, cookies=cookies) as later:
            assert later.get("/runs").status_code == 303, "the bus has forgotten the session"


def test_headers_forbid_foreign_scripts_and_frames_and_protect_the_cookie(
    dashboard: Dashboard,
) -> None:
    with dashboard.signed_in() as client:
        headers = client.get("/runs").headers
        assert "script-src 'self'" in headers["content-security-policy"]
        assert "unsafe" not in headers["content-security-policy"]
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert headers["cache-control"] == "no-store"
        cookie = client.post("/sign-in", data={"key": dashboard.deployment.key})
    assert "HttpOnly" in cookie.headers["set-cookie"]
    assert "SameSite=lax" in cookie.headers["set-cookie"]
