"""Parts of the server by themselves: templates, loading, a failing engine, the thread."""
# ruff: noqa: E402 - what needs torch is imported after the check for it

import asyncio
import shlex
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from support.kv_models import parameters
from support.serving_client import byte_model, loaded, running

from clusterops import train
from rlhf import building
from rlhf.config.resolve import dump, read_resolved, resolve
from rlhf.engine import PagedEngine
from rlhf.engine_requests import DuplicateSample
from rlhf.model.building import build
from rlhf.run_folder import RunFolder
from rlhf.serving import key
from rlhf.serving.chat import Message, PlainTemplate, TokenizerTemplate
from rlhf.serving.command import Address
from rlhf.serving.engine_thread import EngineStopped, EngineThread, Sample
from rlhf.serving.fields import ApiError
from rlhf.serving.gate import LOOPBACK_NAMES, Gate
from rlhf.serving.loading import NoModel, load
from rlhf.serving.run import ServeConfig
from rlhf.tasks.vocabulary import Bytes, Characters
from rlhf.weights import Snapshots

BYTES = Bytes()


def test_one_message_is_the_prompt_and_more_are_a_transcript() -> None:
    template = PlainTemplate()
    assert template.ids([Message("user", "12=")], BYTES) == BYTES.encode("12=")
    turns = [Message("system", "be brief"), Message("user", "hi")]
    expected = "system: be brief\nuser: hi\nassistant:"
    assert template.ids(turns, BYTES) == BYTES.encode(expected)
    with pytest.raises(ValueError, match="the alphabet lacks"):
        template.ids(turns, Characters("0123456789"))


def test_a_tokenizer_writes_conversations_its_own_way() -> None:
    seen = []

    def apply_chat_template(turns, **more):
        seen.append((turns, more))
        return [7, 8]

    template = TokenizerTemplate(SimpleNamespace(apply_chat_template=apply_chat_template))
    assert template.ids([Message("user", "hi")], BYTES) == [7, 8]
    (turns, more) = seen[0]
    assert turns == [{"role": "user", "content": "hi"}]
    assert more == {"add_generation_prompt": True, "tokenize": True, "return_dict": False}


@pytest.fixture
def run_folder(tmp_path):
    """The folder of a run that has published versions 0 and 3."""
    config = resolve(None, ["name=digits", "model.width=16"]).config
    folder = RunFolder(tmp_path / "digits")
    folder.path.mkdir()
    folder.config.write_text(dump(config))
    vocabulary = building.task(config).vocabulary
    for version in (0, 3):
        state = build(config.model, vocabulary.size, seed=version).state_dict()
        Snapshots(folder.weights).publish(version, state)
    return folder


def test_a_runs_newest_policy_is_served_or_the_one_that_is_named(run_folder) -> None:
    newest, named = load(run_folder.path), load(Snapshots(run_folder.weights).path(0))
    assert (newest.name, newest.version, named.version) == ("digits", 3, 0)
    engine = PagedEngine(newest.model, newest.version)
    engine.submit("p", 0, newest.vocabulary.encode("12"), parameters(3))
    assert not torch.equal(newest.model.embed_tokens.weight, named.model.embed_tokens.weight)


def test_what_only_training_needs_may_be_gone(run_folder) -> None:
    """The device, the weights that it began with; and what is tried first is in its vocabulary."""
    config = read_resolved(run_folder.config)
    changed = {"device": "cuda", "start": Path("gone.safetensors"), "threads": 2}
    model = config.model.model_copy(update=changed)
    run_folder.config.write_text(dump(config.model_copy(update={"model": model})))
    found = load(run_folder.path)
    assert found.threads == 2
    assert found.vocabulary.decode(found.vocabulary.encode(found.example.prompt))
    assert found.example.max_tokens == config.rollout.max_new_tokens
    if not torch.cuda.is_available():
        assert found.model.device.type == "cpu"


def test_a_checkpoint_of_a_run_is_served_also_where_its_folder_is_the_jobs(tmp_path) -> None:
    config = resolve(None, ["name=digits", "model.width=16"]).config
    vocabulary = building.task(config).vocabulary
    for folder, checkpoints in (("own", "own/checkpoints"), ("job", "job")):
        run = RunFolder(tmp_path / folder)
        run.path.mkdir()
        run.config.write_text(dump(config))
        policy = build(config.model, vocabulary.size, seed=9)
        with train.session(
            total_steps=1, checkpoint_dir=tmp_path / checkpoints, save_every_steps=1
        ) as session:
            session.resume(policy=policy)
            for _ in session.steps():
                session.report()
        (checkpoint,) = (tmp_path / checkpoints).glob("step_*")
        found = load(checkpoint)
        assert (found.name, found.version) == ("digits", 1)
        assert torch.equal(found.model.embed_tokens.weight, policy.embed_tokens.weight)
        shard = next(checkpoint.glob("*.safetensors"))
        shard.write_bytes(shard.read_bytes()[:-1])
        with pytest.raises(NoModel, match="instead of"):
            load(checkpoint)


def test_where_there_is_no_model_it_is_said(run_folder, tmp_path) -> None:
    with pytest.raises(NoModel, match="neither the folder of a run"):
        load(tmp_path)
    (run_folder.path / "other.bin").write_text("x")
    with pytest.raises(NoModel, match="neither the folder of a run"):
        load(run_folder.path / "other.bin")
    (run_folder.weights / "other.bin").write_text("x")
    with pytest.raises(NoModel, match="no weights file"):
        load(run_folder.weights / "other.bin")
    (run_folder.weights / "other.bin").unlink()
    with pytest.raises(NoModel, match="does not exist"):
        load(tmp_path / "gone")
    damaged = Snapshots(run_folder.weights).path(3)
    damaged.write_bytes(damaged.read_bytes()[:-4])
    with pytest.raises(NoModel, match="version_00000003"):
        load(run_folder.path)
    for file in run_folder.weights.iterdir():
        file.unlink()
    with pytest.raises(NoModel, match="no weights yet"):
        load(run_folder.path)


def test_a_server_of_this_machine_answers_to_its_own_names_and_one_for_others_to_any() -> None:
    headers = {"host": "gpu-7.example:8000", "authorization": f"Bearer {'k' * 16}"}
    Gate("k" * 16, None, 1).check(headers)
    for wrong in (headers, {"host": "[::1"}, {"host": "127.0.0.1", "origin": "http://[::1"}):
        with pytest.raises(ApiError) as refused:
            Gate(None, LOOPBACK_NAMES, 1).check(wrong)
        assert refused.value.status == 403
    with pytest.raises(ApiError):
        Gate("k" * 16, None, 1).check({"host": "gpu-7.example"})
    with pytest.raises(ValueError, match="needs a key"):
        Gate(None, None, 1)


def sample(number: int, new: int = 3) -> Sample:
    return Sample("p", number, [65, 66], parameters(new, number))


async def test_choices_are_handed_in_all_or_none() -> None:
    engine = PagedEngine(byte_model())
    thread = EngineThread(engine)
    thread.start()
    with pytest.raises(DuplicateSample):
        await thread.submit([sample(0), sample(1), sample(0)])
    report = await thread.report()
    assert (report.waiting, report.running) == (0, 0)
    ticket = await thread.submit([sample(0), sample(1)])
    news = [await ticket.events.get() for _ in range(8)]
    assert sorted(event.choice for event in news) == [0] * 4 + [1] * 4
    await thread.stop(10)
    with pytest.raises(EngineStopped, match="shutting down"):
        await thread.submit([sample(0)])


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_when_the_engine_fails_everybody_is_told_and_nobody_waits() -> None:
    engine = PagedEngine(byte_model())
    thread = EngineThread(engine)
    thread.start()
    ticket = await thread.submit([sample(0, new=200), sample(1, new=200)])
    await ticket.events.get()

    def fail():
        raise MemoryError("no room")

    engine._scheduler.plan = fail  # type: ignore[method-assign]
    stopped = []
    async with asyncio.timeout(30):
        while len(stopped) < 2:
            _, news = await ticket.events.get()
            if isinstance(news, EngineStopped):
                stopped.append(str(news))
    assert stopped == ["the engine failed: MemoryError: no room"] * 2
    assert thread.failed
    with pytest.raises(EngineStopped, match="no room"):
        await thread.submit([sample(2)])
    await thread.stop(10)


async def test_the_line_that_is_shown_to_try_it_is_answered(tmp_path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("there is no curl here")
    file = key.ensure(tmp_path / "a folder" / "key")
    assert key.ensure(file).read_text() == file.read_text()
    async with running(key_file=file) as (client, *_):
        address = Address(ServeConfig().url(client.port), loaded(), file)
        lines = "\n".join(address.lines())
        assert shlex.split(address.curl())[0] == "curl"
        assert file.read_text().strip() not in lines
        done = await asyncio.to_thread(
            subprocess.run, ["sh", "-c", f"{address.curl()} -s"], capture_output=True, timeout=60
        )
    assert b'"finish_reason"' in done.stdout, done
