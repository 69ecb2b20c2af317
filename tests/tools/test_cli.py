"""The command `aclpool`: its tools, its exit codes."""

import json
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy
import pytest
from support.child import child_environment, run_child

import acl
from acl.tools import cli


def aclpool(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return run_child("-m", "aclpool", *arguments, **environment)


def test_aclpool_command_is_installed() -> None:
    script = Path(sys.executable).parent / "aclpool"
    done = subprocess.run([script, "--version"], capture_output=True, text=True, timeout=300)
    assert done.stdout.strip() == f"aclpool {acl.__version__}"


def test_aclpool_command_prints_version_and_help() -> None:
    assert aclpool("--version").stdout.strip() == f"aclpool {acl.__version__}"
    shown = aclpool("--help")
    assert shown.returncode == 0
    for tool in ("doctor", "sim"):
        assert tool in shown.stdout


def test_aclpool_command_refuses_a_missing_or_unknown_tool() -> None:
    assert aclpool().returncode == 2
    wrong = aclpool("nonsense")
    assert wrong.returncode == 2
    assert "nonsense" in wrong.stderr


def test_every_tool_of_the_command_has_help() -> None:
    actions = cli.parser()._subparsers._group_actions  # type: ignore[union-attr]
    for name, parser in actions[0].choices.items():  # type: ignore[union-attr, attr-defined]
        assert name in parser.format_help()
        assert callable(parser.get_default("run")), name


def test_doctor_finds_a_healthy_simulator() -> None:
    done = aclpool("doctor")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines()[-1] == "healthy"
    for part in ("Ascend910B1", "libascendcl.so", "self-test", "2 x"):
        assert part in done.stdout


def test_doctor_writes_its_findings_as_json() -> None:
    done = aclpool("doctor", "--json")
    found = json.loads(done.stdout)
    assert found["healthy"] is True
    rows = {row["what"]: row for row in found["findings"]}
    assert rows["self-test"]["verdict"] == "ok"
    assert {row["verdict"] for row in found["findings"]} <= {"ok", "note"}


def test_doctor_says_that_the_simulator_replaces_cann() -> None:
    done = aclpool("doctor", ACL_BACKEND="auto")
    assert (done.returncode, done.stderr) == (0, "")
    assert "no CANN was found" in done.stdout


def test_doctor_without_a_library_is_not_healthy() -> None:
    done = aclpool("doctor", ACL_LIBRARY="/nonexistent/libascendcl.so")
    assert done.returncode == 1
    assert "/nonexistent/libascendcl.so" in done.stdout
    assert "source its set_env.sh" in done.stdout


def test_doctor_names_missing_functions_and_the_loss() -> None:
    done = aclpool("doctor", ACL_WITHOUT="aclrtMapMem,aclrtAllocatorRegister")
    assert done.returncode == 0
    assert "aclrtMapMem" in done.stdout
    assert "the pool works in segments" in done.stdout
    assert "the pool can't serve dynamic-shape models" in done.stdout


@pytest.mark.parametrize(
    "function", ["aclrtMalloc", "aclrtMemcpyAsync", "aclrtCreateStreamWithConfig"]
)
def test_doctor_reports_a_failing_self_test(function: str) -> None:
    done = aclpool("doctor", ACL_SIM_FAULTS=f"{function}:code=507899")
    assert done.returncode == 1
    assert function in done.stdout
    assert done.stdout.splitlines()[-1] == "not healthy"


def test_doctor_without_devices_fails_and_names_npu_smi() -> None:
    done = aclpool("doctor", ACL_SIM_DEVICES="0")
    assert done.returncode == 1
    assert "npu-smi" in done.stdout


def test_doctor_finds_the_acl_module_of_the_vendor(tmp_path: Path) -> None:
    (tmp_path / "acl.py").write_text("raise SystemExit('must not be imported')")
    done = aclpool("doctor", PYTHONPATH=f"{tmp_path}:{Path(acl.__file__).parent.parent}")
    assert done.returncode == 0, done.stderr
    assert f"{tmp_path / 'acl.py'}, not this package" in done.stdout
    assert "import aclpool as acl" in done.stdout


def test_ctrl_c_prints_one_line_and_not_a_traceback() -> None:
    code = ("import aclpool, signal\n"
            "from acl.tools import cli, doctor\n"
            "doctor.examine = lambda: signal.raise_signal(signal.SIGINT)\n"
            "raise SystemExit(cli.main(['doctor']))")
    done = run_child("-c", code)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (130, "", "aclpool: interrupted")


def test_ctrl_c_during_the_import_of_the_tools_prints_one_line() -> None:
    code = ("import importlib, signal\n"
            "from acl.tools import cli\n"
            "importlib.import_module = lambda name: signal.raise_signal(signal.SIGINT)\n"
            "raise SystemExit(cli.main(['doctor']))")
    done = run_child("-c", code)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (130, "", "aclpool: interrupted")


@pytest.mark.parametrize("command", [["doctor"], ["doctor", "--json"], ["top", "--once"]])
def test_closed_pipe_on_standard_output_gives_status_1_and_no_message(command: list[str]) -> None:
    # The child's standard output is a pipe whose reading end is closed before it starts.
    code = ("import os, subprocess, sys\n"
            "end, pipe = os.pipe()\n"
            "os.close(end)\n"
            f"done = subprocess.run([sys.executable, '-m', 'aclpool', *{command!r}],\n"
            "                      stdout=pipe, stderr=subprocess.PIPE, text=True)\n"
            "print(done.returncode, done.stderr, end='')")
    assert run_child("-c", code).stdout == "1 "


@pytest.mark.parametrize(("command", "complaint"), [
    (["run", "--backend", "cann"], "aclpool run: no ACL library could be opened"),
    (["run", "--library", "{text}"], "aclpool run: no ACL library could be opened"),
    (["sim", "run", "--trace", "nowhere/t.log", "--"], "--trace: expected a file in a folder that exists"),
    (["sim", "run", "--counters", "nowhere/c.json", "--"], "--counters: expected a file in a folder that exists"),
])
def test_impossible_options_are_refused_before_the_program_starts(
    command: list[str], complaint: str, tmp_path: Path
) -> None:
    program = tmp_path / "program.py"
    program.write_text("print('started')")
    done = aclpool(*(word.format(text=program) for word in command), str(program), ACL_BACKEND="")
    assert (done.returncode, done.stdout) == (2, "")
    assert complaint in done.stderr


def test_ledger_says_in_one_line_that_the_simulator_replaces_cann() -> None:
    done = aclpool("ledger", ACL_BACKEND="")
    assert done.returncode == 0
    told = done.stderr.splitlines()
    assert len(told) <= 1 and all(line.startswith("aclpool ledger: no CANN library") for line in told)


@pytest.mark.parametrize("closed", [1, 2])
def test_closed_standard_stream_gets_no_output(closed: int, tmp_path: Path) -> None:
    trace = tmp_path / "t.npz"
    numpy.savez(trace, op=[0, 1], id=[0, 0], size=[512, 512])
    command = f'exec "$0" -m aclpool replay "$1" --runs 1 --json "$2" {closed}>&-'
    done = subprocess.run(
        ["sh", "-c", command, sys.executable, str(trace), "-" if closed == 2 else str(tmp_path / "r.json")],
        env=child_environment(), capture_output=True, text=True, timeout=300, cwd="/")
    assert done.returncode == 0, done.stderr
    document = done.stdout if closed == 2 else (tmp_path / "r.json").read_text()
    assert json.loads(document)["events"] == 2


# ---- wrong command lines


def test_a_bare_command_lists_its_tools() -> None:
    bare = aclpool()
    assert (bare.returncode, bare.stdout) == (2, "")
    for tool in cli.TOOLS:
        assert re.search(rf"^    {tool}\s", bare.stderr, re.MULTILINE)


@pytest.mark.parametrize(("arguments", "usage", "hint"), [
    (["legder"], "usage: aclpool ", "did you mean ledger?"),
    (["view", "x.npz", "--titel", "a"], "usage: aclpool view ", "did you mean --title?"),
    (["top", "--onse"], "usage: aclpool top ", "did you mean --once?"),
    (["replay", "x.npz", "--nonsense"], "usage: aclpool replay ", "unrecognized arguments: --nonsense"),
])
def test_wrong_argument_shows_the_usage_of_its_tool(
    arguments: list[str], usage: str, hint: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        cli.main(arguments)
    said = capsys.readouterr().err
    assert left.value.code == 2 and said.startswith(usage) and hint in said.splitlines()[-1], said


@pytest.mark.parametrize("backend", ["cann", "sims"])
def test_ledger_without_a_library_fails_with_a_message_and_no_traceback(backend: str) -> None:
    done = aclpool("ledger", ACL_BACKEND=backend)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr and done.stderr.startswith("aclpool ledger: "), done.stderr


@pytest.mark.parametrize("file", ["/proc/results.json", "/sys/results.json", "/nowhere/results.json", "/proc"])
def test_a_file_that_cannot_be_written_is_refused_before_the_work(file: str) -> None:
    from acl.tools.outputs import check_output

    with pytest.raises(ValueError, match=f"--json: .*{file}"):
        check_output("--json", file)


def test_view_page_can_be_made_of_a_file_whose_name_is_not_utf8(tmp_path: Path) -> None:
    import os

    with acl.Pool(0) as pool:
        with pool.record() as recording:
            pool.alloc(1000).close()
        recording.save(tmp_path / "run.npz")
    name = os.fsencode(tmp_path) + b"/caf\xe9\x1b.npz"
    os.rename(tmp_path / "run.npz", name)
    for more in (["-q"], ["--json", "-", "-q"]):
        assert aclpool("view", os.fsdecode(name), *more).returncode == 0
    latin = aclpool("view", os.fsdecode(name), "-o", "-", "-q", PYTHONIOENCODING="latin-1")
    assert latin.returncode == 0 and "</html>" in latin.stdout
    assert os.path.exists(name[:-3] + b"html")


def test_bash_completes_tools_options_and_files(tmp_path: Path) -> None:
    """Ask bash itself for the words that it offers after TAB."""
    (tmp_path / "run.npz").touch()
    script = tmp_path / "complete.sh"
    script.write_text(aclpool("completion", "bash").stdout + textwrap.dedent("""
        words() { COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _shtab_aclpool; echo "${COMPREPLY[*]}"; }
        words aclpool le
        words aclpool view --pl
        words aclpool view run
        """))
    done = subprocess.run(["bash", str(script)], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert [line.strip() for line in done.stdout.splitlines()] == ["ledger", "--plot", "run.npz"], done.stderr


@pytest.mark.parametrize("shell", ["bash", "zsh", "tcsh"])
def test_a_shells_completion_names_every_tool(shell: str) -> None:
    done = aclpool("completion", shell)
    assert done.returncode == 0, done.stderr
    assert all(tool in done.stdout for tool in cli.TOOLS)


def test_completion_without_its_package_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "shtab.py").write_text("raise ImportError\n")
    done = aclpool("completion", "bash", PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stdout) == (1, "")
    assert "pip install 'aclpool[completion]'" in done.stderr


@pytest.mark.parametrize("name", ["bench", "compare", "replay", "sim", "top", "view"])
def test_tool_started_as_a_module_shows_its_help(name: str) -> None:
    done = run_child("-m", f"acl.tools.{name}", "--help")
    assert done.returncode == 0 and done.stdout.startswith("usage:"), done.stderr
