"""The engine in the place of the plain one in a run's rollout, and replays from a run's folder."""
# ruff: noqa: E402 - what needs torch is imported after the check for it

import json

import pytest

pytestmark = pytest.mark.torch
torch = pytest.importorskip("torch")

from support.kv_models import llama_like, small_model

from clusterops.cli.main import main
from rlhf import building, journal
from rlhf.config.resolve import dump, resolve
from rlhf.engine import PagedEngine
from rlhf.engine_choice import engine_for
from rlhf.engine_replay_run import NotReplayable, find, parse, replay_sample
from rlhf.generation import PlainEngine
from rlhf.identity import Shape
from rlhf.journal import JournalWriter
from rlhf.journal_records import Started, Submitted
from rlhf.messages import Generate
from rlhf.model.building import build
from rlhf.responses import Response, pack
from rlhf.rollout import Piece, requests_of
from rlhf.rollout_worker import Worker
from rlhf.run_folder import RunFolder
from rlhf.weights import Snapshots

SHAPE = Shape("run", 5, batch_size=16, group_size=4)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a run with three policies, of weights large enough to write different digits."""
    config = resolve(None, ["rollout.batch=16", "rollout.group=4", "model.width=32"]).config
    folder = RunFolder(tmp_path_factory.mktemp("runs") / "digits")
    folder.path.mkdir()
    folder.config.write_text(dump(config))
    size = building.task(config).vocabulary.size
    for version in range(3):
        model = build(config.model, size, seed=version)
        generator = torch.Generator().manual_seed(version)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.dim() > 1:
                    parameter.normal_(std=0.1, generator=generator)
        Snapshots(folder.weights).publish(version, model.state_dict())
    return config, folder


def worker(run, kind) -> Worker:
    config, folder = run
    return Worker(config, folder, lambda model, version, _settings: kind(model, version))


def asked(run, first: int, version: int) -> Generate:
    return requests_of(Piece(first, 16, 0, version), SHAPE, building.task(run[0]))


def test_rollout_gives_the_same_batches_with_either_engine_also_when_a_version_comes_back(
    run,
) -> None:
    """Versions go forth and, for a redraw, back; the tokens are those of the plain engine."""
    plain, paged = worker(run, PlainEngine), worker(run, PagedEngine)
    for first, version in ((0, 0), (16, 0), (32, 1), (48, 2), (16, 0), (64, 2)):
        wanted = asked(run, first, version)
        one, other = plain.generate(wanted), paged.generate(wanted)
        assert [each.seq for each in one.responses] == [each.seq for each in other.responses]
        for mine, theirs in zip(one.responses, other.responses, strict=True):
            assert (mine.tokens, mine.finish_reason) == (theirs.tokens, theirs.finish_reason)
            assert mine.logprobs == pytest.approx(theirs.logprobs, abs=1e-5)
    texts = {tuple(each.tokens) for each in one.responses}
    assert len(texts) > 10


@pytest.fixture(scope="module")
def journalled(run):
    """The run's journal, with the responses of batch 2 and of one redraw."""
    config, folder = run
    paged = worker(run, PagedEngine)
    records = [Started(SHAPE)]
    for piece in (Piece(32, 16, 0, 1), Piece(36, 4, 1, 1)):
        wanted = requests_of(piece, SHAPE, building.task(config))
        for request, made in zip(wanted.requests, paged.generate(wanted).responses, strict=True):
            response = Response(
                request.prompt_ids,
                made.tokens,
                logprobs=made.logprobs,
                finish_reason=made.finish_reason,
            )
            digest = response.digests()
            records.append(
                Submitted(
                    made.seq, piece.draw, digest.prompt, digest.response, 0.0, 1.0, pack(response)
                )
            )
    with JournalWriter(journal.path_in(folder.path)) as writer:
        writer.extend(records)
        writer.sync()
    return folder


@pytest.mark.parametrize("rollout", ["s32", "47", "s36", "s36/0", "s36/1", "s38/draw 1"])
def test_any_rollout_of_a_run_comes_out_again(journalled, rollout) -> None:
    found, _, outcome = replay_sample(journalled.path, rollout)
    assert found.version == 1
    assert outcome.same, outcome.sentence


def test_a_rollout_of_other_weights_does_not(journalled) -> None:
    snapshots = Snapshots(journalled.weights)
    right = snapshots.load(1)
    snapshots.publish(1, snapshots.load(2))
    _, _, outcome = replay_sample(journalled.path, "s33")
    snapshots.publish(1, right)
    assert not outcome.same


def test_a_rollout_of_several_policies_is_refused_as_such(journalled, tmp_path) -> None:
    folder = RunFolder(tmp_path)
    response = Response([1, 2], [3, 4], logprobs=[-1.0, -1.0], versions=[1, 2])
    digest = response.digests()
    with JournalWriter(journal.path_in(folder.path)) as writer:
        writer.extend(
            [
                Started(SHAPE),
                Submitted(7, 0, digest.prompt, digest.response, 0.0, 1.0, pack(response)),
            ]
        )
        writer.sync()
    assert find(tmp_path, 7).version == 1
    with pytest.raises(NotReplayable, match="versions 1 to 2 in turn"):
        replay_sample(tmp_path, "s7")


def test_the_last_draw_is_meant_where_none_is_named(journalled) -> None:
    assert (find(journalled.path, 36).draw, find(journalled.path, 35).draw) == (1, 0)
    assert find(journalled.path, 36, 0).draw == 0


@pytest.mark.parametrize(
    ("rollout", "words"),
    [("s99", "no response of slot 99"), ("s32/3", "slot 32, draw 3"), ("x", "names no rollout")],
)
def test_what_cannot_be_replayed_is_said(journalled, rollout, words) -> None:
    with pytest.raises(NotReplayable, match=words):
        replay_sample(journalled.path, rollout)


def test_weights_that_are_gone_are_named(journalled, tmp_path) -> None:
    path = Snapshots(journalled.weights).path(1)
    aside = tmp_path / path.name
    path.rename(aside)
    with pytest.raises(NotReplayable, match="1 is not there"):
        replay_sample(journalled.path, "s32")
    aside.rename(path)
    with pytest.raises(NotReplayable, match="no run's folder"):
        replay_sample(tmp_path, "s32")


def test_the_command_shows_tokens_side_by_side_and_its_exit_code_says_whether_they_differ(
    journalled, capsys
) -> None:
    run = str(journalled.path)
    assert main(["rlhf", "replay", run, "s33"]) == 0
    first, *lines = capsys.readouterr().out.splitlines()
    assert "s33, policy version 1: all" in first
    recorded, again = (line.split(maxsplit=1)[1] for line in lines[1:3])
    assert recorded == again
    assert len(lines) == 4 + len(find(journalled.path, 33).response.response_ids)
    snapshots = Snapshots(journalled.weights)
    right = snapshots.load(1)
    snapshots.publish(1, snapshots.load(2))
    assert main(["rlhf", "replay", run, "s33"]) == 1
    assert "<- differs" in capsys.readouterr().out
    assert main(["rlhf", "replay", run, "s33", "-o", "json"]) == 1
    found = json.loads(capsys.readouterr().out)
    snapshots.publish(1, right)
    assert not found["same"]
    assert found["recorded"]["tokens"] == find(journalled.path, 33).response.response_ids
    assert found["again"]["tokens"] != found["recorded"]["tokens"]
    assert len(found["again"]["logprobs"]) == len(found["again"]["tokens"])


def test_the_command_names_what_can_be_replayed_where_the_one_asked_for_cannot(
    journalled, tmp_path, capsys
) -> None:
    assert main(["rlhf", "replay", str(journalled.path), "s99"]) == 3
    assert "slots 32 to 47 can be replayed" in capsys.readouterr().err
    path = Snapshots(journalled.weights).path(1)
    aside = tmp_path / path.name
    path.rename(aside)
    assert main(["rlhf", "replay", str(journalled.path), "s32"]) == 3
    told = capsys.readouterr().err
    aside.rename(path)
    assert "1 is not there" in told
    assert "no rollout of this run can be replayed any more" in told


def test_rollouts_are_named_by_slot_and_draw() -> None:
    assert parse("s12") == parse("12") == (12, None)
    assert parse("s12/2") == parse("s12/draw 2") == (12, 2)


def test_models_that_the_paged_engine_does_not_know_get_the_plain_one() -> None:
    assert isinstance(engine_for(small_model(), 0), PagedEngine)
    assert isinstance(engine_for(llama_like("gemma2"), 0), PlainEngine)
