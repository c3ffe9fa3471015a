"""Configuration: strict keys with the nearest name, origins, derived limits; impossible is refused."""

import subprocess
import sys

import pytest
import yaml

from rlhf.config.limits import derived, queue_limits, stream_shape
from rlhf.config.resolve import DEFAULT, ConfigurationInvalid, dump, resolve, values
from rlhf.config.sections import RunConfig
from rlhf.missing import Reason, Then


def refused(*overrides: str, file=None) -> str:
    with pytest.raises(ConfigurationInvalid) as raised:
        resolve(file, overrides)
    return str(raised.value)


def test_nothing_said_is_all_defaults():
    resolved = resolve(None)
    assert resolved.config == RunConfig()
    assert set(resolved.origins.values()) == {DEFAULT}
    assert set(resolved.origins) == set(values(resolved.config))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("run.yaml", "seed: 7\nppo: {epochs: 2}\noptimizer:\n  lr: 3e-5\n"),
        ("run.toml", "seed = 7\n[ppo]\nepochs = 2\n[optimizer]\nlr = 3e-5\n"),
    ],
)
def test_a_file_is_read_and_the_command_line_wins(tmp_path, name, text):
    file = tmp_path / name
    file.write_text(text)
    config, origins = resolve(file, ["ppo.epochs=3", "kl.target=6", "ppo.value_clip=null"])
    assert (config.seed, config.ppo.epochs, config.kl.target) == (7, 3, 6.0)
    assert config.optimizer.lr == pytest.approx(3e-5)
    assert config.ppo.value_clip is None
    assert origins["seed"] == str(file)
    assert origins["ppo.epochs"] == "command line: ppo.epochs=3"
    assert origins["ppo.gamma"] == DEFAULT


def test_what_is_dumped_resolves_to_the_same(tmp_path):
    config = resolve(None, ["optimizer.lr=1e-4", "kl.target=6", "rollout.batch=64"]).config
    file = tmp_path / "again.yaml"
    file.write_text(dump(config))
    assert resolve(file).config == config
    assert yaml.safe_load(dump(config, run_id="x"))["run_id"] == "x"


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("ppo.epoch=3", "ppo.epochs"),
        ("rolout.batch=3", "rollout.batch"),
        ("stepps=3", "steps"),
        ("ppo.beta=3", "kl.beta"),
        ("optimiser.lr=3", "optimizer.lr"),
    ],
)
def test_an_unknown_key_names_the_nearest(word, meant):
    told = refused(word)
    assert f"did you mean {meant}?" in told
    assert word in told


def test_all_unknown_keys_are_told_at_once_with_their_place(tmp_path):
    file = tmp_path / "run.yaml"
    file.write_text("sed: 3\nppo: {lamda: 0.9}\n")
    told = refused("kl.beta=0.1", file=file)
    assert "unknown key sed" in told
    assert "unknown key ppo.lamda" in told
    assert str(file) in told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["rollout.batch=10", "rollout.group=4"], "no multiple of rollout.group"),
        (["ppo.estimator=grpo"], "rollout.group must be at least 2"),
        (["ppo.estimator=gea"], "ppo.estimator"),
        (["steps=0"], "steps"),
        (["steps=many"], "not 'many'"),
        (["optimizer.lr=-1"], "optimizer.lr"),
        (["optimizer.lr=.nan"], "optimizer.lr"),
        (["optimizer.betas=[0.9,1]"], "optimizer.betas"),
        (["ppo.clip_low=1.5"], "clip_low must be below 1"),
        (["model.width=30"], "multiple of 2 x model.heads"),
        (["rollout.max_new_tokens=128"], "no room for a prompt"),
        (["task.name=jsonl"], "task.prompts"),
        (["task.name=jsonl", "task.prompts=x.jsonl"], "no reward of its own"),
        (["grader.kind=http"], "grader.url"),
        (["grader.function=a:b"], "grader.function"),
        (["model.kind=huggingface"], "model.name"),
        (["checkpoints.every_steps=1", "checkpoints.every_seconds=1"], "not both"),
        (["ppo.minibatches=300"], "more than rollout.batch"),
        (["queue.lag=-1"], "queue.lag"),
        (["queue.grading_seconds=0"], "queue.grading_seconds"),
        (["queue.grading_seconds=.inf"], "queue.grading_seconds"),
        (["checkpoints.keep=1"], "checkpoints.keep"),
        (["ppo=3"], "ppo"),
        (["rollout.max_version_lag=1"], "needs rollout.deterministic=false"),
        (["queue.take_seconds=30"], "would give up before anybody is late"),
        (["grader.kind=composite"], "grader.parts"),
        (["grader.parts.x.kind=helpful-harmless"], "grader.parts"),
        (["grader.kind=composite", "grader.parts.x.function=a:b"], "grader.function"),
        (["grader.kind=composite", "grader.parts.x.kind=composite"], "not one itself"),
        (["grader.kind=composite", "grader.parts.x.wait=1"], "grader.parts.x.wait: unknown key"),
        (["grader.kind=composite", "grader.parts.x.weight=0"], "grader.parts.x.weight"),
        (["queue.missing.Late.retries=1"], "queue.missing.Late"),
        (["name=Not A Name"], "name"),
        (["novalue"], "write it as a.b=value"),
        ([".x=1"], "write it as a.b=value"),
        (["a..b=1"], "write it as a.b=value"),
        (["seed=[1"], "seed=[1"),
    ],
)
def test_the_impossible_is_refused_by_name(words, told):
    assert told in refused(*words)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.yaml", "a: [1"),
        ("a.toml", "a = ["),
        ("a.yaml", "- 1"),
        ("a.yaml", "\x00"),
        ("none", None),
    ],
)
def test_a_file_that_is_none_is_refused_by_name(tmp_path, name, text):
    file = tmp_path / name
    if text is not None:
        file.write_text(text)
    assert str(file) in refused(file=file)


def test_an_empty_file_is_all_defaults(tmp_path):
    file = tmp_path / "empty.yaml"
    file.write_text("")
    assert resolve(file).config == RunConfig()


def test_limits_follow_from_the_settings():
    config = resolve(
        None, ["rollout.batch=32", "queue.lag=2", "queue.retries=1", "queue.then=Fail"]
    ).config
    shape = stream_shape(config, "run")
    assert shape.capacity == 96
    assert shape.version_of(5) == 3
    missing = queue_limits(config).missing
    assert missing.decide(Reason.TIMED_OUT, 0) is Then.RETRY
    assert missing.decide(Reason.TIMED_OUT, 1) is Then.FAIL
    assert missing.decide(Reason.REFUSED, 0) is Then.FAIL
    told = {one.name: one.value for one in derived(config)}
    assert told["queue capacity"] == "96 samples"
    assert told["a slot's longest wait for its reward"] == "360 s"


def test_a_reason_may_have_a_rule_of_its_own():
    config = resolve(
        None,
        [
            "queue.retries=1",
            "queue.missing.TimedOut.retries=5",
            "queue.missing.Refused.then=Fail",
            "queue.missing.InvalidAnswer.then=Fail",
        ],
    ).config
    missing = queue_limits(config).missing
    assert missing.decide(Reason.TIMED_OUT, 4) is Then.RETRY
    assert missing.decide(Reason.TIMED_OUT, 5) is Then.REDRAW
    assert missing.decide(Reason.REFUSED, 0) is Then.FAIL
    assert missing.decide(Reason.INVALID_ANSWER, 0) is Then.RETRY
    assert missing.decide(Reason.INVALID_ANSWER, 1) is Then.FAIL
    assert missing.decide(Reason.GRADER_ERROR, 1) is Then.REDRAW


def test_parts_of_a_reward_are_named_by_the_user(tmp_path):
    file = tmp_path / "run.yaml"
    file.write_text(
        "grader:\n  kind: composite\n  parts:\n"
        "    right: {kind: task, weight: 2}\n"
        "    short: {kind: function, function: 'a:b', pure: true, floor: 0.25}\n"
    )
    config, origins = resolve(file, ["grader.parts.right.weight=3"])
    assert list(config.grader.parts) == ["right", "short"]
    assert (config.grader.parts["right"].weight, config.grader.parts["short"].floor) == (3.0, 0.25)
    assert origins["grader.parts.short.floor"] == str(file)
    assert origins["grader.parts.right.weight"].startswith("command line")
    assert origins["grader.parts.right.floor"] == DEFAULT
    again = tmp_path / "again.yaml"
    again.write_text(dump(config))
    assert resolve(again).config == config


def test_configuration_loads_neither_torch_nor_ray():
    code = (
        "import sys; import rlhf.config.resolve, rlhf.config.limits; "
        "sys.exit(1 if {'torch', 'ray', 'numpy'} & set(sys.modules) else 0)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0
