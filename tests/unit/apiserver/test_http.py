"""Who is let in, what is answered at the edges."""

import pytest
from support.apiserver_world import CONFIG_MAPS, PORT, WIDGETS, World, widget


async def test_without_a_valid_token_nothing_is_answered(world: World) -> None:
    for header in ("", "Bearer wrong-token-of-some-length", "Basic abc", "Bearer "):
        answer = await world.request("GET", CONFIG_MAPS, headers={"authorization": header})
        assert answer.status == 401
        assert answer.message == "Unauthorized"


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", f"10.0.0.1:{PORT}", ""])
async def test_a_foreign_host_is_refused_even_with_a_token(world: World, host: str) -> None:
    assert (await world.request("GET", CONFIG_MAPS, headers={"host": host})).status == 403


@pytest.mark.parametrize(
    "header", [("origin", "https://evil.example"), ("sec-fetch-site", "cross-site")]
)
async def test_web_pages_of_other_sites_are_refused(world: World, header: tuple[str, str]) -> None:
    answer = await world.request("POST", WIDGETS, widget("a"), headers=dict([header]))
    assert answer.status == 403
    assert (await world.request("GET", f"{WIDGETS}/a")).status == 404


async def test_health_and_version_need_no_token(world: World) -> None:
    for path in ("/healthz", "/livez", "/readyz", "/readyz?verbose", "/readyz/storage", "/version"):
        answer = await world.request("GET", path, headers={"authorization": ""})
        assert answer.status == 200, path
    assert (await world.request("GET", "/readyz")).content == b"ok"
    assert (await world.request("GET", "/metrics", headers={"authorization": ""})).status == 401


async def test_metrics_count_requests_and_objects(world: World) -> None:
    await world.post(WIDGETS, widget("a"))
    text = (await world.request("GET", "/metrics")).content.decode()
    line = 'apiserver_requests_total{code="201",resource="widgets.example.io",verb="POST"} 1.0'
    assert line in text
    assert 'apiserver_objects{resource="widgets.example.io"} 1.0' in text


async def test_bodies_over_the_limit_are_refused(world: World) -> None:
    body = b'{"data": "' + b"x" * (3 * 1024 * 1024) + b'"}'
    answer = await world.request("POST", CONFIG_MAPS, body)
    assert answer.status == 413
    undeclared = await world.request("POST", CONFIG_MAPS, body, {"content-length": ""})
    assert undeclared.status in (413, 400)


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b"\xff\xfe", b"[" * 100_000, b'{"metadata": 3}',
             b'{"metadata": {"name": 7}}', b'{"metadata": {"labels": {"a": 1}, "name": "a"}}',
             b'{"metadata": {"name": "a", "finalizers": "x"}}', b'{"kind": "Pod"}',
             b'{"apiVersion": [], "kind": {}}', b'{"metadata": {"name": "a/b"}}']
)  # fmt: skip
async def test_bodies_that_are_no_object_of_the_kind_are_the_clients_fault(
    world: World, body: bytes
) -> None:
    answer = await world.request("POST", CONFIG_MAPS, body)
    assert 400 <= answer.status < 500
    assert answer.json["kind"] == "Status"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nothing", 404),
        ("GET", "/apis/example.io/v1/namespaces/default/nothing", 404),
        ("GET", f"{WIDGETS}/a/nothing", 404),
        ("GET", "/api/v1/namespaces/default/namespaces", 404),
        ("GET", "/api/v1/namespaces/default/nodes", 404),
        ("GET", "/apis/example.io/v2/widgets", 404),
        ("PUT", WIDGETS, 405),
        ("POST", "/apis/example.io/v1/widgets", 405),
        ("GET", "/apis/authentication.k8s.io/v1/tokenreviews", 405),
        ("POST", "/apis", 405),
        ("GET", f"{WIDGETS}?limit=few", 400),
        ("GET", f"{WIDGETS}?labelSelector=%3D%3D", 400),
        ("DELETE", f"{WIDGETS}/a?dryRun=Some", 400),
    ],
)
async def test_paths_and_queries_that_make_no_sense(
    world: World, method: str, path: str, status: int
) -> None:
    answer = await world.request(method, path, {} if method in ("PUT", "POST") else None)
    assert (answer.status, answer.json["code"]) == (status, status)


async def test_discovery_is_cached_by_its_tag(world: World) -> None:
    first = await world.request("GET", "/apis")
    again = await world.request("GET", "/apis", headers={"if-none-match": first.headers["etag"]})
    assert (again.status, again.content) == (304, b"")


async def test_reviews_know_the_users_of_the_tokens_file(world: World) -> None:
    who = await world.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", {})
    assert who["status"]["userInfo"]["username"] == "tester"
    path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
    for user, allowed in (("tester", True), ("stranger", False)):
        review = await world.post(path, {"spec": {"user": user}})
        assert review["status"]["allowed"] is allowed
    tokens = "/apis/authentication.k8s.io/v1/tokenreviews"
    unknown = await world.post(tokens, {"spec": {"token": "x"}})
    assert unknown["status"] == {"authenticated": False, "error": "unknown token"}
    assert "token" not in unknown["spec"]


async def test_a_fault_of_the_server_is_answered_without_its_details(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr(world.server.state, "collection", broken)
    answer = await world.request("GET", WIDGETS)
    assert answer.status == 500
    assert b"secret" not in answer.content
