"""Both transports against a real loopback server: the same behaviour, with TLS, faults, rotation."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from support.kube_cluster import WIDGETS, Answer, FakeCluster, status_answer
from support.kube_http import FakeHttpServer
from support.kube_virtual_time import until

from clusterops.kube.access import Access
from clusterops.kube.client import Client
from clusterops.kube.credentials import Credential, TokenFile
from clusterops.kube.errors import ApiError, ConfigError, NotFound, Unauthorized, Unreachable
from clusterops.kube.light import LightTransport
from clusterops.kube.official import OfficialTransport
from clusterops.kube.reflector import Reflector
from clusterops.kube.retry import RetryPolicy
from clusterops.kube.store import Store

TRANSPORTS = {"light": LightTransport, "official": OfficialTransport}
PATH = "/apis/example.org/v1/namespaces/ns/widgets"


@pytest.fixture(params=TRANSPORTS)
def make(request):
    @asynccontextmanager
    async def opened(access, **options):
        transport = TRANSPORTS[request.param](access, **options)
        try:
            yield transport
        finally:
            await transport.close()

    return opened


@pytest.fixture
async def server():
    async with FakeHttpServer(FakeCluster()) as running:
        yield running


async def test_a_request_arrives_as_it_was_meant(make, server):
    server.tokens = {"secret"}
    server.base_path = "/k8s/clusters/c-1"
    async with make(Access(server.url, token="secret")) as transport:
        answer = await transport.request(
            "POST",
            PATH,
            query={"fieldManager": "a b&c"},
            body=b'{"metadata":{"name":"w"}}',
            accept="application/json",
        )
    assert answer.status == 201
    assert b'"uid"' in answer.body
    assert answer.headers["content-type"] == "application/json"
    (seen,) = server.seen
    assert (seen.method, seen.path) == ("POST", "/k8s/clusters/c-1" + PATH)
    assert seen.query == {"fieldManager": "a b&c"}
    assert seen.headers["content-type"] == "application/json"
    assert seen.headers["authorization"] == "Bearer secret"
    assert seen.headers["host"] == f"127.0.0.1:{server.port}"
    assert seen.headers["user-agent"] == "clusterops"


async def test_a_name_with_odd_characters_is_not_decoded_on_the_way(make, server):
    async with make(Access(server.url)) as transport:
        with pytest.raises(NotFound):
            await Client(transport).get(WIDGETS, "ns", "a/../b%2F?c")
    assert server.seen[0].path.endswith("/widgets/a%2F..%2Fb%252F%3Fc")


async def test_connections_are_kept_and_used_again(make, server):
    server.cluster.put("widgets", "ns", "w")
    async with make(Access(server.url)) as transport:
        for _ in range(5):
            await transport.request("GET", f"{PATH}/w")
        await asyncio.gather(*(transport.request("GET", f"{PATH}/w") for _ in range(3)))
        for _ in range(5):
            await transport.request("GET", f"{PATH}/w")
    assert server.connections <= 3
    await until(lambda: server.open_connections == 0, within_seconds=5)


async def test_an_error_is_the_servers_status(make, server):
    async with make(Access(server.url)) as transport:
        with pytest.raises(NotFound, match='widgets "w" not found') as raised:
            await transport.request("GET", f"{PATH}/w")
        assert raised.value.reason == "NotFound"
        server.script.append(Answer(502, b"<html>no\x1b[31m</html>", {"content-type": "text/html"}))
        with pytest.raises(ApiError, match=r"^HTTP 502$"):
            await transport.request("GET", PATH)
        server.script.append(Answer(503, b"over\x1bloaded", {"retry-after": "4"}))
        with pytest.raises(ApiError, match=r"over\\x1bloaded") as raised:
            await transport.request("GET", PATH)
        assert raised.value.retry_after_seconds == 4
        server.script.append(Answer(302, b"", {"location": "http://elsewhere.example/"}))
        with pytest.raises(ApiError) as raised:
            await transport.request("GET", PATH)
        assert raised.value.status == 302


@pytest.mark.parametrize("manners", ["silent", "close", "cut"])
async def test_no_whole_answer_is_unreachable_and_the_next_request_works(make, server, manners):
    server.script.append(manners)
    async with make(Access(server.url)) as transport:
        with pytest.raises(Unreachable):
            await transport.request("POST", PATH, body=b"{}", timeout_seconds=0.5)
        server.script.clear()  # on a busy machine the time may be up before the request is there
        server.cluster.put("widgets", "ns", "w")
        assert (await transport.request("GET", f"{PATH}/w")).status == 200


async def test_a_kept_connection_that_the_server_closed_is_replaced_unnoticed(make, server):
    server.cluster.put("widgets", "ns", "w")
    async with make(Access(server.url)) as transport:
        await transport.request("GET", f"{PATH}/w")
        server.script.append("close")  # on the kept connection, after reading the request
        assert (await transport.request("GET", f"{PATH}/w")).status == 200
    assert server.connections == 2


async def test_a_create_on_a_kept_connection_is_never_sent_twice(make, server):
    server.cluster.put("widgets", "ns", "w")
    async with make(Access(server.url)) as transport:
        await transport.request("GET", f"{PATH}/w")
        server.script.append("close")
        with pytest.raises(Unreachable):
            await transport.request("POST", PATH, body=b'{"metadata":{"name":"x"}}')
    assert [seen.method for seen in server.seen].count("POST") == 1


async def test_nobody_listening_is_unreachable(make):
    async with make(Access("http://127.0.0.1:9")) as transport:
        with pytest.raises(Unreachable, match=r"127\.0\.0\.1:9"):
            await transport.request("GET", "/version")
        with pytest.raises(Unreachable, match=r"127\.0\.0\.1:9"):
            async with transport.stream("/version"):
                pass


async def test_a_cancelled_request_closes_its_connection(make, server):
    server.script.append("silent")
    async with make(Access(server.url)) as transport:
        task = asyncio.create_task(transport.request("GET", PATH))
        await until(lambda: server.seen, within_seconds=5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: server.open_connections == 0, within_seconds=5)


async def test_a_watch_streams_and_leaving_it_closes_the_connection(make, server):
    async with make(Access(server.url)) as transport:
        client = Client(transport)
        async with client.watch(WIDGETS, "ns", resource_version="100") as events:
            server.cluster.put("widgets", "ns", "a")
            first = await anext(events)
            assert (first.type, first.key, first.resource_version) == ("ADDED", ("ns", "a"), "101")
            server.cluster.put("widgets", "ns", "b", blob="x" * 3_000_000)
            second = await anext(events)
            assert len(second.object["blob"]) == 3_000_000
        await until(lambda: server.open_connections == 0, within_seconds=5)


async def test_a_watch_ends_when_the_server_ends_it(make, server):
    async with make(Access(server.url)) as transport:
        watch = Client(transport).watch(WIDGETS, resource_version="100", timeout_seconds=1)
        async with watch as events:
            assert [event.type async for event in events] == ["BOOKMARK"]


@pytest.mark.parametrize("tail", [b'5\r\n{"typ', b"zz\r\n"], ids=["cut within a chunk", "no chunk"])
async def test_a_broken_stream_is_unreachable(make, server, tail):
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\n{}\n\r\n"
    server.script.append(head + tail)
    async with make(Access(server.url)) as transport:
        with pytest.raises(Unreachable, match="broke"):
            await _read_all(transport)


async def _read_all(transport):
    async with transport.stream(PATH) as pieces:
        return [piece async for piece in pieces]


async def test_a_silent_stream_is_left_after_its_time(make, server):
    async with make(Access(server.url)) as transport:
        watch = Client(transport).watch(WIDGETS, resource_version="100", silence_seconds=0.2)
        async with watch as events:
            with pytest.raises(Unreachable, match=r"nothing came for 0\.2 s"):
                await anext(events)
        await until(lambda: server.open_connections == 0, within_seconds=5)


async def test_a_peer_that_the_kernel_gave_up_on_is_unreachable(server):
    async def pieces():
        yield b"one"
        raise TimeoutError(110, "Connection timed out")

    transport = LightTransport(Access(server.url))
    with pytest.raises(Unreachable, match="nothing came for long"):
        assert [piece async for piece in transport._pieces(pieces(), PATH, None)]


async def test_a_refused_stream_is_the_servers_status(make, server):
    server.script.append(status_answer(403, "Forbidden", "no watching"))
    async with make(Access(server.url)) as transport:
        with pytest.raises(ApiError, match="no watching"):
            async with transport.stream(PATH):
                pass


async def test_a_rotated_token_is_read_again_when_the_old_one_is_refused(make, server, tmp_path):
    path = tmp_path / "token"
    path.write_text("old\n")
    server.tokens = {"old"}
    credentials = TokenFile(path)
    async with make(Access(server.url), credentials=credentials) as transport:
        client = Client(transport, retry=RetryPolicy(attempts=1))
        await client.create(WIDGETS, {"metadata": {"namespace": "ns", "name": "a"}})
        server.tokens = {"new"}
        with pytest.raises(Unauthorized):
            await client.get(WIDGETS, "ns", "a")
        path.write_text("new\n")
        await client.create(WIDGETS, {"metadata": {"namespace": "ns", "name": "b"}})
        async with client.watch(WIDGETS, resource_version="100") as events:
            assert (await anext(events)).key == ("ns", "a")


async def test_a_refused_credential_is_renewed_and_even_a_create_is_sent_again(make, server):
    class Renewing:
        def __init__(self, *tokens):
            self.tokens = list(tokens)

        async def current(self):
            return Credential(f"Bearer {self.tokens[0]}")

        async def rejected(self, credential):
            assert credential == await self.current()
            if len(self.tokens) > 1:
                self.tokens.pop(0)
                return True
            return False

    server.tokens = {"new"}
    async with make(Access(server.url), credentials=Renewing("old", "new")) as transport:
        await Client(transport).create(WIDGETS, {"metadata": {"namespace": "ns", "name": "a"}})
    async with make(Access(server.url), credentials=Renewing("old", "new")) as transport:
        async with Client(transport).watch(WIDGETS, resource_version="100") as events:
            assert (await anext(events)).key == ("ns", "a")
    async with make(Access(server.url), credentials=Renewing("old")) as transport:
        with pytest.raises(Unauthorized):
            await transport.request("GET", PATH)
    assert len(server.seen) == 5


async def test_tls_trusts_the_clusters_authority_only(make, authority):
    server = FakeHttpServer(FakeCluster(), authority.server_context())
    async with server, make(Access(server.url, ca_pem=authority.pem)) as transport:
        with pytest.raises(NotFound):
            await transport.request("GET", f"{PATH}/w")
    async with server, make(Access(server.url)) as transport:
        with pytest.raises(ConfigError, match="not to be trusted"):
            await transport.request("GET", PATH)
        with pytest.raises(ConfigError, match="not to be trusted"):
            async with transport.stream(PATH):
                pass
    async with server, make(Access(server.url, insecure_skip_tls_verify=True)) as transport:
        with pytest.raises(NotFound):
            await transport.request("GET", f"{PATH}/w")


async def test_tls_checks_the_name_and_can_be_told_another(make, authority):
    server = FakeHttpServer(FakeCluster(), authority.server_context())
    access = Access("", ca_pem=authority.pem, tls_server_name="api.example.org")
    async with server, make(replace(access, server=server.url)) as transport:
        with pytest.raises(NotFound):
            await transport.request("GET", f"{PATH}/w")
    access = Access("", ca_pem=authority.pem, tls_server_name="wrong.example.org")
    async with server, make(replace(access, server=server.url)) as transport:
        with pytest.raises(ConfigError, match="not to be trusted"):
            await transport.request("GET", f"{PATH}/w")


async def test_a_client_certificate_is_shown_to_the_server(make, authority):
    certificate, key = authority.issue("alice")
    server = FakeHttpServer(FakeCluster(), authority.server_context(ask_client=True))
    async with server:
        access = Access(
            server.url,
            ca_pem=authority.pem,
            client_certificate_pem=certificate,
            client_key_pem=key,
        )
        async with make(access) as transport:
            with pytest.raises(NotFound):
                await transport.request("GET", f"{PATH}/w")
    assert server.seen[0].client_subject == "alice"


async def test_a_new_certificate_from_a_plugin_replaces_the_old_one(make, authority):
    class Rotating:
        def __init__(self):
            self.credential = Credential(None, *authority.issue("first"))

        async def current(self):
            return self.credential

        async def rejected(self, _):
            return False

    source = Rotating()
    server = FakeHttpServer(FakeCluster(), authority.server_context(ask_client=True))
    server.cluster.put("widgets", "ns", "w")
    async with server:
        async with make(Access(server.url, ca_pem=authority.pem), credentials=source) as transport:
            await transport.request("GET", f"{PATH}/w")
            source.credential = Credential(None, *authority.issue("second"))
            await transport.request("GET", f"{PATH}/w")
    assert [seen.client_subject for seen in server.seen] == ["first", "second"]


async def test_a_key_that_does_not_fit_its_certificate_is_a_configuration_error(make, authority):
    certificate, _ = authority.issue("alice")
    _, other_key = authority.issue("bob")
    server = FakeHttpServer(FakeCluster(), authority.server_context())
    async with server:
        access = Access(
            server.url,
            ca_pem=authority.pem,
            client_certificate_pem=certificate,
            client_key_pem=other_key,
        )
        async with make(access) as transport:
            with pytest.raises(ConfigError, match="cannot be used together"):
                await transport.request("GET", PATH)


async def test_a_reflector_over_tls_follows_the_server(make, authority):
    server = FakeHttpServer(FakeCluster(), authority.server_context())
    for number in range(25):
        server.cluster.put("widgets", "ns", f"w{number}", n=number)
    async with server, make(Access(server.url, ca_pem=authority.pem)) as transport:
        store = Store()
        reflector = Reflector(Client(transport), WIDGETS, store, lambda o: o["n"], page_size=10)
        task = asyncio.create_task(reflector.run())
        await reflector.wait_synced(10)
        server.cluster.put("widgets", "ns", "w3", n=300)
        server.cluster.remove("widgets", "ns", "w4")
        await until(lambda: store.get(("ns", "w3")) == 300 and len(store) == 24, within_seconds=10)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.mark.parametrize("transport", TRANSPORTS.values())
def test_a_token_never_goes_over_plain_http_to_another_machine(transport):
    with pytest.raises(ConfigError, match="in the clear"):
        transport(Access("http://10.0.0.1:8080", token="t"))
    transport(Access("http://10.0.0.1:8080"))
    transport(Access("http://[::1]:8080", token="t"))


async def test_a_closed_transport_says_so(make, server):
    async with make(Access(server.url)) as transport:
        pass
    with pytest.raises(Unreachable, match="closed by this program"):
        await transport.request("GET", PATH)
