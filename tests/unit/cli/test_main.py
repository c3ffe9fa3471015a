"""The command line as a whole: what it loads, what it refuses, how it ends."""

import json
import os
import re
import subprocess
import sys

import pytest
import typer

from clusterops.cli import errors, main

HEAVY = ("asyncio", "pydantic", "rich", "kubernetes", "msgspec", "yaml", "uvicorn", "torch", "ssl")


def loaded_after(*words: str, environment: dict[str, str] | None = None) -> list[str]:
    """The modules that a fresh interpreter has after one command line."""
    code = (
        "import json, sys\nfrom clusterops.cli.main import main\n"
        f"try:\n    main({list(words)!r})\nexcept SystemExit:\n    pass\n"
        "print('\\n' + json.dumps(sorted(sys.modules)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
        env={**os.environ, **(environment or {})},
    )
    return json.loads(result.stdout.splitlines()[-1])


def test_help_loads_nothing_heavy_and_no_command() -> None:
    modules = loaded_after("--help")
    assert [name for name in HEAVY if name in modules] == []
    assert [row.module for row in main.COMMANDS if row.module in modules] == []


@pytest.mark.parametrize(
    "words", ["clusterops ", "clusterops su", "clusterops submit --", "clusterops queue --st"]
)
def test_completion_loads_nothing_heavy(words: str) -> None:
    count = str(len(words.split()) - (0 if words.endswith(" ") else 1))
    environment = {
        "_CLUSTEROPS_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": count,
    }
    modules = loaded_after(environment=environment)
    assert [name for name in HEAVY if name in modules] == []


def test_completion_knows_commands_and_options() -> None:
    def completed(words: str, position: int) -> str:
        environment = {
            **os.environ,
            "_CLUSTEROPS_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(position),
        }
        command = [sys.executable, "-m", "clusterops.cli"]
        run = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
        return run.stdout

    assert "submit" in completed("clusterops su", 1).split()
    assert "--dry-run" in completed("clusterops submit --d", 2).split()
    assert "apiserver" not in completed("clusterops ap", 1).split()


@pytest.mark.parametrize(
    "row", [row for row in main.COMMANDS if not row.hidden], ids=lambda r: r.name
)
def test_every_command_can_be_loaded_and_explains_itself(row, capsys) -> None:
    assert main.main([row.name, "--help"]) == errors.DONE
    assert "Usage" in capsys.readouterr().out


def test_help_names_every_command_that_is_not_hidden(capsys) -> None:
    assert main.main(["--help"]) == errors.DONE
    text = capsys.readouterr().out
    for row in main.COMMANDS:
        assert (f"  {row.name} " in text) is not row.hidden


def test_the_version_is_said_without_a_cluster_or_a_command(capsys) -> None:
    assert main.main(["--version"]) == errors.DONE
    assert re.fullmatch(r"clusterops \d+\.\d+\S*\n", capsys.readouterr().out)


def test_a_misspelt_command_is_refused_with_what_was_meant(capsys) -> None:
    assert main.main(["sumbit"]) == errors.USAGE
    assert "Did you mean 'submit'" in capsys.readouterr().err


def test_no_command_prints_help_and_is_a_usage_error(capsys) -> None:
    assert main.main([]) == errors.USAGE
    assert "Commands:" in capsys.readouterr().out


@pytest.mark.parametrize(
    "words",
    [
        ["queue", "--nonsense"],
        ["submit"],
        ["submit", "a.yaml", "--", "python"],
        ["submit", "a.yaml", "--gpus", "2"],
        ["submit", "--gpus", "x", "--", "python"],
        ["submit", "--env", "novalue", "--queue", "q", "--image", "i", "--", "python"],
        ["logs", "a", "-f", "--attempt", "1"],
        ["logs", "a", "--rank", "0", "--all-ranks"],
        ["queue", "--state", "Runing"],
        ["queue", "-o", "yaml"],
    ],
)
def test_wrong_usage_ends_with_2_and_says_what_to_do(words, capsys, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CLUSTEROPS_HOME", str(tmp_path / "none"))
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path)))
    (tmp_path / "a.yaml").write_text("kind: x")
    assert main.main(words) == errors.USAGE
    said = capsys.readouterr()
    assert said.err.startswith("error: ")
    assert "Traceback" not in said.err


def kubeconfig(folder):
    """A kubeconfig of a server that nobody serves."""
    file = folder / "kubeconfig"
    file.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n"
        "clusters: [{name: k, cluster: {server: 'https://127.0.0.1:1'}}]\n"
        "users: [{name: u, user: {token: t}}]\n"
        "contexts: [{name: c, context: {cluster: k, user: u}}]\n"
    )
    return file


def test_an_absent_file_is_not_found(capsys, tmp_path) -> None:
    assert main.main(["submit", str(tmp_path / "absent.yaml")]) == errors.NOT_FOUND
    assert "there is no file" in capsys.readouterr().err


def test_a_broken_manifest_is_refused_without_a_cluster(capsys, tmp_path, job_file) -> None:
    job_file.write_text(job_file.read_text().replace("queueName", "queueNmae"))
    assert main.main(["submit", str(job_file)]) == errors.USAGE
    said = capsys.readouterr().err
    assert "1 problem in the manifest, nothing was created" in said
    assert f'{job_file}:7: spec.queueNmae: unknown field (did you mean "queueName"?)' in said


def test_no_cluster_at_all_says_how_to_get_one(capsys, tmp_path, monkeypatch) -> None:
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("CLUSTEROPS_HOME", str(tmp_path / "none"))
    assert main.main(["queue"]) == errors.UNREACHABLE
    assert "clusterops up" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("raised", "code"),
    [
        (typer.Exit(7), 7),
        (typer.Abort(), errors.INTERRUPTED),
        (KeyboardInterrupt(), errors.INTERRUPTED),
        (TimeoutError("too slow"), errors.TIMED_OUT),
        (errors.CommandError("no", code=errors.CONFLICT), errors.CONFLICT),
        (RuntimeError("boom"), errors.FAILED),
    ],
)
def test_every_way_to_end_has_its_code(raised, code, capsys) -> None:
    def command() -> None:
        raise raised

    assert errors.guarded(command) == code
    assert "Traceback" not in capsys.readouterr().err


def test_debug_shows_the_traceback(capsys) -> None:
    def command() -> None:
        raise RuntimeError("boom")

    assert errors.guarded(command, debug=True) == errors.FAILED
    assert "Traceback" in capsys.readouterr().err


def test_a_reader_that_had_enough_is_no_error() -> None:
    program = (
        "import sys\nfrom clusterops.cli import errors\n"
        "def command():\n    for n in range(100000): print('line', n)\n"
        "sys.exit(errors.guarded(command))"
    )
    writer = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert writer.stdout is not None
    assert writer.stderr is not None
    writer.stdout.readline()
    writer.stdout.close()
    assert writer.wait(30) == 0
    assert writer.stderr.read() == b""
    writer.stderr.close()


@pytest.mark.parametrize("messages", ["apart", "in the same pipe"])
@pytest.mark.parametrize("words", [["--help"], ["manifests"], ["health", "--help"]])
def test_a_reader_that_left_while_a_command_writes_is_no_error(words, messages) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        ended = subprocess.run(
            [sys.executable, "-m", "clusterops.cli", *words],
            stdout=writing,
            stderr=subprocess.PIPE if messages == "apart" else writing,
            timeout=60,
            check=False,
        )
    finally:
        os.close(writing)
    assert (ended.returncode, ended.stderr or b"") == (errors.DONE, b"")


def test_output_that_the_caller_closed_is_no_error() -> None:
    command = f"exec {sys.executable} -m clusterops.cli --help >&-"
    ended = subprocess.run(["sh", "-c", command], stderr=subprocess.PIPE, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (errors.DONE, b"")
