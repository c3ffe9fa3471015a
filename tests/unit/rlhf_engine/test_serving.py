"""The server over HTTP, with the wire format that OpenAI's clients speak."""
# ruff: noqa: E402 - what needs torch is imported after the check for it

import asyncio
import json
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from support.kv_models import parameters, rescored
from support.serving_client import NAME, byte_model, running

from rlhf.generation import PlainEngine, drain
from rlhf.serving.run import CannotServe, ServeConfig, opened
from rlhf.tasks.vocabulary import Bytes

BYTES = Bytes()
KEY = "k" * 32
# So that every token is a letter, and nothing ends a response. What is reported stays the model's.
ASCII = {str(token): -100 for token in range(128, 258)}


@pytest.fixture(scope="module")
def model():
    return byte_model()


def greedy(model, prompt: str, new: int) -> list[int]:
    plain = PlainEngine(model)
    plain.submit("p", 0, BYTES.encode(prompt), parameters(new, stop_tokens=BYTES.stop_tokens))
    return drain(plain)[0].tokens


async def test_a_completion_is_what_the_model_writes(model) -> None:
    async with running() as (client, *_):
        reply = await client.complete(max_tokens=12, temperature=0)
    tokens = greedy(model, "hello", 12)
    assert reply.status == 200
    body = reply.json
    assert body["object"] == "text_completion"
    assert body["model"] == NAME
    assert body["id"].startswith("cmpl-")
    assert isinstance(body["created"], int)
    assert body["choices"] == [
        {
            "index": 0,
            "text": BYTES.decode(tokens),
            "logprobs": None,
            "finish_reason": "length" if len(tokens) == 12 else "stop",
        }
    ]
    assert body["usage"] == {
        "prompt_tokens": 5,
        "completion_tokens": len(tokens),
        "total_tokens": 5 + len(tokens),
    }


async def test_a_chat_is_answered_by_the_assistant(model) -> None:
    async with running() as (client, *_):
        reply = await client.chat("hello", max_tokens=12, temperature=0)
        parts = await client.chat([{"type": "text", "text": "hello"}], max_tokens=12, temperature=0)
    body = reply.json
    assert body["object"] == "chat.completion"
    (choice,) = body["choices"]
    text = BYTES.decode(greedy(model, "hello", 12))
    assert choice["message"] == {"role": "assistant", "content": text, "refusal": None}
    assert choice["finish_reason"] in ("length", "stop")
    assert choice["logprobs"] is None
    assert parts.json["choices"] == body["choices"]


@pytest.mark.parametrize("chat", [True, False])
async def test_the_pieces_of_a_stream_make_up_the_whole(chat: bool) -> None:
    wanted = {"max_tokens": 20, "seed": 5, "n": 2, "temperature": 1.3}
    async with running() as (client, *_):
        ask = client.chat if chat else client.complete
        whole = (await ask(**wanted)).json
        reply = await ask(**wanted, stream=True, stream_options={"include_usage": True})
    assert reply.headers["content-type"].startswith("text/event-stream")
    *events, last, done = reply.events
    assert done == "[DONE]"
    assert last["choices"] == []
    assert last["usage"] == whole["usage"]
    assert {event["id"] for event in events} == {events[0]["id"]}
    assert all(event["usage"] is None for event in events)
    texts, reasons = ["", ""], ["", ""]
    for event in events:
        (choice,) = event["choices"]
        delta = choice["delta"].get("content", "") if chat else choice["text"]
        assert not reasons[choice["index"]], "something came after the end"
        texts[choice["index"]] += delta
        reasons[choice["index"]] = choice["finish_reason"] or ""
    if chat:
        assert events[0]["object"] == "chat.completion.chunk"
        assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
    expected = [one["message"]["content"] if chat else one["text"] for one in whole["choices"]]
    assert texts == expected
    assert reasons == [one["finish_reason"] for one in whole["choices"]]


async def test_the_same_seed_gives_the_same_texts_and_choices_differ() -> None:
    async with running() as (client, *_):
        ask = {"n": 3, "max_tokens": 24, "temperature": 1.2}
        one, two, other = await asyncio.gather(
            client.complete(**ask, seed=7),
            client.complete(**ask, seed=7),
            client.complete(**ask, seed=8),
        )
    texts = [[choice["text"] for choice in reply.json["choices"]] for reply in (one, two, other)]
    assert texts[0] == texts[1]
    assert len({*texts[0], *texts[2]}) == 6


async def test_several_prompts_give_choices_in_their_order(model) -> None:
    async with running() as (client, *_):
        prompts = ["hello", "good day", "yes"]
        reply = await client.complete(prompt=prompts, n=2, max_tokens=8, temperature=0)
        ids = await client.complete(
            prompt=[BYTES.encode(one) for one in prompts], n=2, max_tokens=8, temperature=0
        )
        single = await client.complete(prompt=BYTES.encode("yes"), max_tokens=8, temperature=0)
    texts = [choice["text"] for choice in reply.json["choices"]]
    expected = [BYTES.decode(greedy(model, one, 8)) for one in prompts for _ in range(2)]
    assert texts == expected
    assert [choice["index"] for choice in reply.json["choices"]] == list(range(6))
    assert reply.json["usage"]["prompt_tokens"] == 5 + 8 + 3
    assert ids.json["choices"] == reply.json["choices"]
    assert single.json["choices"][0]["text"] == texts[-1]


async def test_logprobs_are_the_models(model) -> None:
    async with running() as (client, *_):
        ask = {"max_tokens": 10, "temperature": 0.7, "seed": 3, "logit_bias": ASCII}
        legacy = (await client.complete(**ask, logprobs=2)).json["choices"][0]
        chat = (await client.chat(**ask, logprobs=True, top_logprobs=2)).json["choices"][0]
        stream = (await client.chat(**ask, logprobs=True, stream=True)).events
    listed = legacy["logprobs"]
    assert "".join(listed["tokens"]) == legacy["text"]
    assert listed["text_offset"] == list(range(10))
    assert all(len(top) <= 2 for top in listed["top_logprobs"])
    content = chat["logprobs"]["content"]
    assert [one["logprob"] for one in content] == listed["token_logprobs"]
    assert all(len(one["top_logprobs"]) == 2 for one in content)
    pieces = [
        one
        for event in stream[:-1]
        if (found := event["choices"][0]["logprobs"])
        for one in found["content"]
    ]
    assert [one["logprob"] for one in pieces] == [one["logprob"] for one in content]
    tokens = [one["bytes"][0] for one in content]
    scored = rescored(model, BYTES.encode("hello"), tokens, 0.7)
    assert listed["token_logprobs"] == pytest.approx(scored, abs=1e-4)


async def test_stop_strings_end_the_text_before_them(model) -> None:
    text = BYTES.decode(greedy(model, "hello", 30))
    stop = text[6:8]
    async with running() as (client, *_):
        whole = await client.complete(max_tokens=30, temperature=0, stop=[stop, "not there"])
        stream = await client.complete(max_tokens=30, temperature=0, stop=stop, stream=True)
    (choice,) = whole.json["choices"]
    assert (choice["text"], choice["finish_reason"]) == (text[: text.index(stop)], "stop")
    pieces = [event["choices"][0]["text"] for event in stream.events[:-1]]
    assert "".join(pieces) == choice["text"]


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"model": "other"}, "model", "there is no model 'other'"),
        ({"model": None}, "model", "model is missing"),
        ({"prompt": ""}, "prompt", "empty"),
        ({"prompt": []}, "prompt", "empty"),
        ({"prompt": [[]]}, "prompt", "empty"),
        ({"prompt": [999]}, "prompt", "token ids"),
        ({"prompt": {"a": 1}}, "prompt", "a string"),
        ({"max_tokens": 0}, "max_tokens", "integer of 1"),
        ({"max_tokens": True}, "max_tokens", "integer of 1"),
        ({"max_tokens": 300}, "max_tokens", "exceed the model's context"),
        ({"prompt": "x" * 256}, None, "context is 256"),
        ({"temperature": 2.5}, "temperature", "0 to 2"),
        ({"temperature": "hot"}, "temperature", "0 to 2"),
        ({"top_p": 0}, "top_p", "above 0"),
        ({"n": 0}, "n", "integer of 1"),
        ({"n": 100, "prompt": ["a", "b"]}, "n", "at most 128"),
        ({"best_of": 3}, "best_of", "not supported"),
        ({"echo": True}, "echo", "not supported"),
        ({"stop": [""]}, "stop", "none of them empty"),
        ({"stop": ["x"] * 17}, "stop", "at most 16"),
        ({"logit_bias": {"5": 101}}, "logit_bias", "-100 to 100"),
        ({"logit_bias": {"x": 1}}, "logit_bias", "token ids"),
        ({"presence_penalty": 1}, "presence_penalty", "not supported"),
        ({"stream": "yes"}, "stream", "neither true nor false"),
        ({"temprature": 1}, "temprature", "unknown field 'temprature'"),
    ],
)
async def test_a_wrong_field_is_named(fields, param, words, one_server) -> None:
    reply = await one_server.complete(**fields)
    error = reply.json["error"]
    assert reply.status == (404 if fields.get("model") else 400)
    assert error["param"] == param
    assert words in error["message"]
    assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([], "at least one message"),
        ("hi", "at least one message"),
        ([{"content": "x"}], "no object with a role"),
        ([{"role": "tool", "content": "x"}], "role is not supported"),
        ([{"role": "user", "content": [{"type": "image_url"}]}], "content is no text"),
        ([{"role": "user", "content": ""}], "empty"),
    ],
)
async def test_wrong_messages_are_named(messages, words, one_server) -> None:
    body = {"model": NAME, "messages": messages}
    reply = await one_server.post("/v1/chat/completions", body)
    assert reply.status == 400
    assert words in reply.json["error"]["message"]


@pytest.mark.parametrize(
    ("body", "status", "words"),
    [
        (b"{", 400, "no JSON"),
        (b"[1]", 400, "no JSON object"),
        (b"[" * 100_000, 400, "no JSON"),
        (b'"' + b"x" * (5 << 20) + b'"', 413, "larger than"),
    ],
)
async def test_a_body_that_is_none_is_refused(body, status, words, one_server) -> None:
    reply = await one_server.post("/v1/completions", body)
    assert reply.status == status
    assert words in reply.json["error"]["message"]


@pytest.fixture
async def one_server():
    async with running() as (client, *_):
        yield client


async def test_models_health_metrics_and_unknown_paths(one_server) -> None:
    assert (await one_server.get("/health")).json == {"status": "ok"}
    models = (await one_server.get("/v1/models")).json
    assert [one["id"] for one in models["data"]] == [NAME]
    assert (await one_server.get(f"/v1/models/{NAME}")).json["id"] == NAME
    assert (await one_server.get("/v1/models/other")).status == 404
    assert (await one_server.get("/v1/nothing")).json["error"]["message"].startswith("there is no")
    assert (await one_server.get("/v1/completions")).status == 405
    await one_server.complete(max_tokens=5)
    text = (await one_server.get("/metrics")).body.decode()
    assert "clusterops_rollout_tokens_generated_total 5.0" in text
    assert 'clusterops_rollout_finished_total{reason="length"} 1.0' in text
    assert "clusterops_rollout_kv_reserved_tokens 0.0" in text


async def test_without_the_key_nobody_is_answered(tmp_path) -> None:
    file = tmp_path / "key"
    file.write_text(KEY)
    file.chmod(0o600)
    async with running(key=KEY, key_file=file) as (client, *_):
        assert (await client.complete(max_tokens=1)).status == 200
        for given in ("wrong", "", KEY + "x"):
            client.key = given
            reply = await client.complete(max_tokens=1)
            assert reply.status == 401
            assert reply.json["error"]["code"] == "invalid_api_key"
            assert (await client.get("/metrics")).status == 401
        assert (await client.get("/health")).status == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "evil.example"}, 403),
        ({"Host": "localhost:1"}, 200),
        ({"Origin": "https://evil.example"}, 403),
        ({"Origin": "http://localhost:3000"}, 200),
    ],
)
async def test_pages_of_other_sites_cannot_use_the_server(headers, status, one_server) -> None:
    body = {"model": NAME, "prompt": "a", "max_tokens": 1}
    assert (await one_server.post("/v1/completions", body, **headers)).status == status


async def wait_until(condition, what: str, seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not await condition():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        await asyncio.sleep(0.02)


async def gauge(client, name: str) -> float:
    text = (await client.get("/metrics")).body.decode()
    return float(next(line.split()[1] for line in text.splitlines() if line.startswith(name)))


@pytest.mark.parametrize("stream", [True, False])
async def test_when_the_client_goes_its_response_ends_and_its_blocks_come_back(
    stream: bool,
) -> None:
    """Biased away from the end token, so that it would go on to the end of the context."""
    async with running(context=4096) as (client, *_):
        body = {"model": NAME, "prompt": "a", "max_tokens": 1500, "stream": stream}
        body["logit_bias"] = {"256": -100}

        def go_away() -> None:
            connection = client.open()
            connection.request("POST", "/v1/completions", json.dumps(body), client.headers({}))
            if stream:
                connection.getresponse().readline()
            else:
                deadline = time.monotonic() + 30
                while "reserved_tokens 0.0" in client.call("GET", "/metrics").body.decode():
                    assert time.monotonic() < deadline
            connection.close()

        await asyncio.to_thread(go_away)

        async def aborted() -> bool:
            text = (await client.get("/metrics")).body.decode()
            return 'finished_total{reason="aborted"} 1.0' in text

        await wait_until(aborted, "the response is aborted")
        assert await gauge(client, "clusterops_rollout_kv_reserved_tokens") == 0
        assert (await client.complete(max_tokens=2)).status == 200


async def test_more_than_may_be_under_way_is_told_to_come_back() -> None:
    async with running(most_under_way=2) as (client, *_):
        reply = await client.complete(max_tokens=2, n=3)
        assert reply.status == 429
        assert reply.headers["retry-after"] == "1"
        assert reply.json["error"]["type"] == "rate_limit_error"
        assert (await client.complete(max_tokens=2, n=2)).status == 200
        assert (await client.complete(max_tokens=2, n=2)).status == 200


async def test_what_takes_too_long_is_ended() -> None:
    async with running(context=4096, response_seconds=0.05) as (client, *_):
        ask = {"max_tokens": 1500, "logit_bias": {"256": -100}}
        assert (await client.complete(**ask)).status == 504
        events = (await client.complete(**ask, stream=True)).events
        assert "within 0.05 s" in events[-1]["error"]["message"]


async def test_at_the_end_what_is_under_way_is_answered_and_nothing_new_is_taken() -> None:
    async with running(context=4096) as (client, stop, task, _):
        going = asyncio.create_task(client.complete(max_tokens=500, logit_bias={"256": -100}))

        async def reserved() -> bool:
            return await gauge(client, "clusterops_rollout_kv_reserved_tokens") > 0

        await wait_until(reserved, "the response is under way")
        stop.set()

        async def draining() -> bool:
            return (await client.get("/health")).json["status"] == "draining"

        await wait_until(draining, "the server drains")
        refused = await client.complete(max_tokens=1)
        reply = await going
        assert reply.status == 200
        assert reply.json["usage"]["completion_tokens"] == 500
        assert refused.status == 503
        await asyncio.wait([task], timeout=30)
        assert task.done()


async def test_what_does_not_end_in_time_at_the_end_is_told() -> None:
    async with running(context=4096, drain_seconds=0.1) as (client, stop, task, _):
        going = asyncio.create_task(client.complete(max_tokens=1500, logit_bias={"256": -100}))

        async def reserved() -> bool:
            return await gauge(client, "clusterops_rollout_kv_reserved_tokens") > 0

        await wait_until(reserved, "the response is under way")
        stop.set()
        reply = await going
        assert reply.status == 503
        assert "shutting down" in reply.json["error"]["message"]
        await asyncio.wait([task], timeout=30)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"host": "0.0.0.0"}, "without a key"),
        ({"host": "0.0.0.0", "key_file": "key"}, "without TLS"),
        ({"key_file": "missing"}, "cannot be read"),
        ({"key_file": "open"}, "others may read"),
        ({"key_file": "short"}, "fewer than 16"),
        ({"tls_certificate": "key", "tls_key": "key"}, "cannot be used for TLS"),
        ({"tls_certificate": "key"}, "without --tls-key cannot be used"),
        ({"tls_key": "key"}, "of no use without --tls-certificate"),
    ],
)
async def test_a_server_that_would_be_open_or_broken_does_not_start(more, words, tmp_path) -> None:
    for name, text, mode in (("key", KEY, 0o600), ("open", KEY, 0o644), ("short", "abc", 0o600)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(mode)
    settings = {key: tmp_path / value if key != "host" else value for key, value in more.items()}
    with pytest.raises(CannotServe, match=words):
        async with running(**settings):
            pass


async def test_a_port_that_is_taken_is_said() -> None:
    async with running() as (client, *_):
        assert ServeConfig().local
        with pytest.raises(CannotServe, match="cannot listen"):
            with opened(ServeConfig(port=client.port)):
                pass


async def test_told_to_hurry_the_server_waits_for_nobody() -> None:
    async with running(context=4096) as (client, stop, task, hurry):
        going = asyncio.create_task(client.complete(max_tokens=1500, logit_bias={"256": -100}))

        async def reserved() -> bool:
            return await gauge(client, "clusterops_rollout_kv_reserved_tokens") > 0

        await wait_until(reserved, "the response is under way")
        stop.set()
        hurry.set()
        assert (await going).status == 503
        await asyncio.wait([task], timeout=30)
        assert task.done()


def test_urls_are_those_that_clients_type() -> None:
    assert ServeConfig().url(80) == "http://127.0.0.1:80/v1"
    assert ServeConfig(host="::1", tls_certificate=Path("c")).url(80) == "https://[::1]:80/v1"
