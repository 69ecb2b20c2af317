"""The doctor: its examinations, and its advice for each problem."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.child import run_child

import acl
from acl.tools import doctor
from acl.tools.doctor import checks as doctor_checks
from acl.tools.doctor import machine as doctor_machine


def examined(**environment: str) -> tuple[int, dict[str, dict[str, object]]]:
    """Run the doctor; return its exit code and its findings by name."""
    done = run_child("-m", "aclpool", "doctor", "--json", **environment)  # type: ignore[arg-type]
    assert done.stderr == ""
    told = json.loads(done.stdout)
    assert told["healthy"] == (done.returncode == 0)
    rows = {row["what"]: row for row in told["findings"]}
    for row in rows.values():
        assert row["verdict"] == "ok" or row["advice"], row
    return done.returncode, rows


def test_doctor_checks_everything_and_times_its_self_tests() -> None:
    code, rows = examined()
    assert code == 0
    assert set(rows) >= {
        "python", "aclpool", "import acl", "CANN's acl", "environment", "packages", "library", "functions",
        "libraries", "driver", "devices", "device 0", "chip", "virtual memory", "allocator registration", "streams",
        "events", "locked memory", "mappings", "allocate", "copy", "launch", "pool", "register", "self-test"}
    for name, key in (("allocate", "allocate_us"), ("copy", "to_host_us"), ("launch", "operator_us"),
                      ("pool", "hit_us"), ("register", "register_us")):
        assert rows[name]["times"][key] > 0  # type: ignore[index]
    assert "took" in str(rows["register"]["value"]) and "took 0" not in str(rows["register"]["value"])
    assert "granularity: minimum 2048 KiB" in str(rows["virtual memory"]["value"])


def test_doctor_names_the_pool_variables_and_writes_no_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    record = str(tmp_path / "run.npz")
    code, rows = examined(ACL_POOL_RECORD=record, ACL_POOL_LEAKS="1", ACL_POOL_DEBUG="sample:9")
    assert code == 0 and not list(tmp_path.iterdir())
    assert f"ACL_POOL_RECORD={record}" in str(rows["environment"]["value"])
    assert "ACL_POOL_LEAKS=1" in str(rows["environment"]["value"])
    code, rows = examined(ACL_POOL_RECORD="run.txt")
    assert code == 1 and "FILE must end in .npz" in str(rows["ACL_POOL_RECORD"]["advice"])


def test_doctor_reports_files_that_cannot_be_written_as_a_note(tmp_path: Path) -> None:
    """The doctor warns if a report could not be written, or if a socket would refuse every client."""
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    code, rows = examined(
        ACL_POOL_RECORD=f"{tmp_path}/no/run.npz,capacity=9", ACL_POOL_LEAKS=f"{tmp_path}/no/leaks.txt",
        ACL_POOL_TOP="1", ACL_POOL_TOP_DIR=str(open_to_all))
    assert code == 0
    for name, text in (("ACL_POOL_RECORD", "make "), ("ACL_POOL_LEAKS", "make "), ("ACL_POOL_TOP", "mode 777")):
        assert rows[name]["verdict"] == "note" and text in str(rows[name]["advice"])
    code, rows = examined(
        ACL_POOL_RECORD=f"{tmp_path}/run.npz", ACL_POOL_LEAKS=f"{tmp_path}/leaks.txt", ACL_POOL_TOP="1",
        ACL_POOL_TOP_DIR=f"{tmp_path}/new/socket")
    assert code == 0 and not {"ACL_POOL_RECORD", "ACL_POOL_LEAKS", "ACL_POOL_TOP"} & set(rows)


@pytest.mark.parametrize(
    "environment, name, text",
    [
        ({"ACL_SIM_SOC": "Ascend910A"}, "virtual memory", "segments"),
        ({"ACL_SIM_SOC": "Ascend910A"}, "pool", "segments"),
        ({"ACL_SIM_ALLOCATORS": "0"}, "allocator registration", "GE's own allocator"),
        ({"ACL_SIM_ALLOCATORS": "0"}, "register", "GE's own allocator"),
        ({"ACL_WITHOUT": "aclrtAllocatorRegister"}, "allocator registration", "CANN 7.0"),
        ({"ACL_SIM_FAULTS": "aclopCompileAndExecuteV2:code=500001"}, "launch", "operator packages"),
    ],
)
def test_missing_optional_part_is_a_note_with_advice(environment: dict[str, str], name: str, text: str) -> None:
    code, rows = examined(**environment)
    assert code == 0
    assert rows[name]["verdict"] == "note"
    assert text in str(rows[name]["advice"])


@pytest.mark.parametrize(
    "function, name",
    [
        ("aclrtMalloc", "allocate"),
        ("aclrtMemcpyAsync", "copy"),
        ("aclrtLaunchHostFunc", "launch"),
        ("aclrtMapMem", "pool"),
        ("aclrtAllocatorRegister", "register"),
    ],
)
def test_failing_doctor_check_is_bad_and_the_other_checks_still_run(function: str, name: str) -> None:
    code, rows = examined(ACL_SIM_FAULTS=f"{function}:code=507899")
    assert code == 1
    assert rows[name]["verdict"] == "bad"
    assert name in str(rows["self-test"]["value"])
    assert len([row for row in rows.values() if row["times"]]) >= 1


def test_doctor_reports_changed_bytes_as_bad(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(acl, "copy_async", lambda *arguments, **named: None)
    finding = doctor_checks.check_copy()
    assert (finding.verdict, finding.value) == ("bad", "copied bytes came back changed")
    assert finding.advice


def test_doctor_reports_a_wrong_operator_result_as_bad(monkeypatch: pytest.MonkeyPatch) -> None:

    def op(kind: str) -> object:
        def call(*inputs: object, stream: acl.Stream) -> tuple[acl.Array]:
            buffer = acl.Buffer(32, stream=stream)
            acl.fill(buffer, 0)
            return (acl.Array.of(buffer, (8,), "float32"),)

        return call

    monkeypatch.setattr(acl, "Op", op)
    (finding,) = [found for found in doctor.self_tests() if found.what == "launch"]
    assert finding.verdict == "bad" and "1 + 1 is not 2" in finding.value


def test_doctor_reports_a_second_runtime_in_the_process_as_bad(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_machine, "mapped_libraries", lambda: ["/a/libascendcl.so", "/b/libascendcl.so"])
    (finding,) = doctor_machine.find_libraries()
    assert finding.verdict == "bad" and "ACL_LIBRARY" in finding.advice


@pytest.fixture
def cann(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(acl, "backend", lambda: "cann")
    yield


def test_missing_device_node_is_bad_on_a_real_backend(cann: None) -> None:
    (finding,) = doctor_machine.find_driver()
    assert finding.verdict == "bad" and "install the driver" in finding.advice


def test_versions_of_the_driver_are_read(tmp_path: Path) -> None:
    path = tmp_path / "version.info"
    path.write_text("package_name=Ascend-driver\nVersion=24.1.rc3\n")
    assert doctor_machine.version_of(path) == "24.1.rc3"
    path.write_text("nothing\n")
    assert doctor_machine.version_of(path) == "of unknown version"


def test_low_limit_of_locked_memory_is_a_note(cann: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_machine, "locked_limit", lambda: 65536)
    finding = doctor_machine.locked_memory()
    assert finding.verdict == "note" and "ulimit -l" in finding.advice


@pytest.mark.parametrize("error", [acl.NotSupportedError(207000, "aclopExecuteV2", "missing"), MemoryError()])
def test_doctor_reports_operators_that_cannot_be_made_as_a_note(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    from acl.tools.doctor import checks as doctor_checks

    def refuse(*of: object, **how: object) -> None:
        raise error

    monkeypatch.setattr(acl, "Op", refuse)
    assert doctor_checks.check_launch().verdict == "note"
    assert doctor_checks.check_register().verdict == "ok"
