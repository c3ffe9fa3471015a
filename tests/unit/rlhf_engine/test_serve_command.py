"""`clusterops rlhf serve` as people use it: the command in a process, OpenAI's own client before it."""
# ruff: noqa: E402 - what needs torch is imported after the check for it

import stat
import time
from pathlib import Path
from urllib.request import Request, urlopen

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")
openai = pytest.importorskip("openai")

from support.kv_models import parameters
from support.serving_process import CONTEXT, NAME, SECONDS, Served, command, run_of_letters, serving

from rlhf.generation import PlainEngine, drain
from rlhf.run_policy import policy_of
from rlhf.tasks.vocabulary import Bytes

BYTES = Bytes()
# Keeps a response from ending by itself.
GO_ON = {"256": -100}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return run_of_letters(tmp_path_factory.mktemp("runs") / NAME)


@pytest.fixture(scope="module")
def server(run, tmp_path_factory):
    with serving(tmp_path_factory.mktemp("home") / "state", run.path, "--most", "8") as made:
        yield made


@pytest.fixture
def client(server):
    with server.client() as made:
        yield made


def greedy(run, prompt: str, new: int) -> str:
    policy = policy_of(run.path)
    plain = PlainEngine(policy.model)
    plain.submit("p", 0, BYTES.encode(prompt), parameters(new, stop_tokens=BYTES.stop_tokens))
    return BYTES.decode(drain(plain)[0].tokens)


def metrics(server) -> str:
    url = server.said["url"].removesuffix("/v1")
    wanted = Request(f"{url}/metrics", headers={"Authorization": f"Bearer {server.key}"})
    with urlopen(wanted, timeout=SECONDS) as reply:
        return reply.read().decode()


def test_it_says_where_it_is_what_it_serves_and_with_which_key(server, client) -> None:
    said = server.said
    assert said["url"].startswith("http://127.0.0.1:")
    assert (said["model"], said["policyVersion"], said["context"]) == (NAME, 4, CONTEXT)
    key_file = Path(said["keyFile"])
    assert stat.S_IMODE(key_file.stat().st_mode) == 0o600
    assert stat.S_IMODE(key_file.parent.stat().st_mode) == 0o700
    assert [one.id for one in client.models.list()] == [NAME]


def test_completions_are_what_the_newest_policy_writes(run, client) -> None:
    made = client.completions.create(model=NAME, prompt="hello", max_tokens=12, temperature=0)
    assert made.choices[0].text == greedy(run, "hello", 12)
    assert made.usage.prompt_tokens == 5


def test_a_chat_is_answered_whole_and_in_pieces(run, client) -> None:
    asked = {
        "model": NAME,
        "messages": [{"role": "user", "content": "hello"}],
        "max_completion_tokens": 20,
        "temperature": 0,
    }
    whole = client.chat.completions.create(**asked, logprobs=True, top_logprobs=2)
    assert whole.choices[0].message.content == greedy(run, "hello", 20)
    assert len(whole.choices[0].logprobs.content[0].top_logprobs) == 2
    with client.chat.completions.create(
        **asked, stream=True, stream_options={"include_usage": True}
    ) as stream:
        pieces = list(stream)
    texts = [one.delta.content or "" for piece in pieces for one in piece.choices]
    assert "".join(texts) == whole.choices[0].message.content
    assert pieces[-1].usage == whole.usage


def test_the_same_seed_gives_the_same_texts(client) -> None:
    asked = {"model": NAME, "prompt": ["a", "b"], "n": 2, "max_tokens": 16}
    texts = [
        [one.text for one in client.completions.create(**asked, seed=seed).choices]
        for seed in (7, 7, 8)
    ]
    assert texts[0] == texts[1] != texts[2]


def test_a_client_that_leaves_in_mid_stream_leaves_nothing_behind(server, client) -> None:
    with client.completions.create(
        model=NAME, prompt="a", max_tokens=CONTEXT - 2, stream=True, logit_bias=GO_ON
    ) as stream:
        next(iter(stream))
    deadline = time.monotonic() + SECONDS
    while "finished_total" not in (text := metrics(server)) or "requests_running 0.0" not in text:
        assert time.monotonic() < deadline, text
    assert "kv_reserved_tokens 0.0" in metrics(server)


@pytest.mark.parametrize(
    ("asked", "error", "words"),
    [
        ({"model": "other"}, openai.NotFoundError, "there is no model 'other'"),
        ({"max_tokens": CONTEXT}, openai.BadRequestError, "exceed the model's context"),
        ({"prompt": "x" * CONTEXT}, openai.BadRequestError, f"context is {CONTEXT}"),
        ({"prompt": ""}, openai.BadRequestError, "prompt is empty"),
        ({"n": 9}, openai.RateLimitError, "responses are under way"),
    ],
)
def test_what_cannot_be_answered_is_the_clients_own_kind_of_error(
    client, asked, error, words
) -> None:
    with pytest.raises(error, match=words):
        client.completions.create(**({"model": NAME, "prompt": "a"} | asked))


def test_without_the_key_nobody_is_answered(server) -> None:
    with server.client(api_key="wrong-wrong-wrong") as other:
        with pytest.raises(openai.AuthenticationError, match="missing or wrong"):
            other.completions.create(model=NAME, prompt="a")


def test_started_by_a_person_it_shows_a_line_to_try_and_told_to_stop_it_finishes_what_is_under_way(
    run, tmp_path
) -> None:
    """Of a weights file and under another name; the key is shown by its file alone."""
    weights = run.weights / "version_00000003.safetensors"
    words = ["serve", str(weights), "--port", "0", "--name", "mine"]
    process = command(tmp_path / "home", *words)
    try:
        lines = [process.stderr.readline().strip() for _ in range(7)]
        assert "serving 'mine', policy version 3" in lines[1], lines
        key_file = tmp_path / "home/rlhf-serve.key"
        assert lines[3].startswith("curl http://127.0.0.1:")
        assert '"prompt": "Hello"' in lines[3]
        assert str(key_file) in lines[3]
        made = Served(process, {"url": lines[1].split()[-1], "keyFile": str(key_file)})
        assert made.key not in "".join(lines)
        asked = {"model": "mine", "prompt": "a", "max_tokens": 400, "logit_bias": GO_ON}
        with made.client() as client:
            with client.completions.create(**asked, stream=True) as stream:
                pieces = [next(iter(stream))]
                made.stop()
                pieces += list(stream)
            assert pieces[-1].choices[0].finish_reason == "length"
            with pytest.raises((openai.InternalServerError, openai.APIConnectionError)):
                client.completions.create(**asked)
        code, told = made.ended()
    finally:
        if process.poll() is None:
            process.kill()
            process.communicate()
    assert code == 0, told
    assert "Traceback" not in told


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["serve", "{here}/none"], 3, "none does not exist"),
        (["serve", "{here}", "--no-key"], 3, "neither the folder of a run"),
        (["serve", "{here}", "--key-file", "{here}/open"], 1, "others may read"),
        (["serve", "{here}", "--host", "0.0.0.0"], 1, "without TLS"),
        (["serve", "{here}", "--key-file", "{here}/open", "--no-key"], 2, "not both"),
    ],
)
def test_what_keeps_it_from_starting_is_said(tmp_path, capsys, monkeypatch, words, code, said):
    """In this process: the words of the command line are the same."""
    from clusterops.api.names import ENV_HOME
    from clusterops.cli.main import main

    monkeypatch.setenv(ENV_HOME, str(tmp_path / "home"))
    (tmp_path / "open").write_text("k" * 32)
    (tmp_path / "open").chmod(0o644)
    port = ["--port", "0"]
    assert main(["rlhf", *[word.format(here=tmp_path) for word in words], *port]) == code
    assert said in capsys.readouterr().err
    own_key = not {"--no-key", "--key-file"} & set(words)
    assert (tmp_path / "home/rlhf-serve.key").exists() == own_key
