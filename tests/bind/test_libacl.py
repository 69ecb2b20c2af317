"""The generated C API: late binding, the loader's choices, and the results of missing functions."""

import ctypes
import json
import shutil
import subprocess
from pathlib import Path

import pytest
from support.child import run_python

import acl
import acl.sim
from acl.bind.generated import _libacl

ROOT = Path(__file__).parents[2]
TABLE = json.loads((ROOT / "tools/generate/acl_api.json").read_text())

CALL = """
    import acl
    try:
        print(acl.Device.count())
    except acl.AclError as error:
        print(type(error).__name__, error.code, error.function)
        print(error)
"""


SLOT_AT_BARRIER = """
    #define _GNU_SOURCE
    #include <linux/membarrier.h>
    #include <stdarg.h>
    #include <stdio.h>
    #include <sys/syscall.h>
    #include <unistd.h>
    #include <dlfcn.h>
    void **slot;            /* of a function bound late; set by the test */
    void *stub;
    long syscall(long number, ...)
    {
        static long (*next)(long, ...);
        va_list rest;
        long given[6];
        va_start(rest, number);
        for (int i = 0; i < 6; i++) {
            given[i] = va_arg(rest, long);
        }
        va_end(rest);
        if (slot != NULL && number == SYS_membarrier && given[0] == MEMBARRIER_CMD_PRIVATE_EXPEDITED) {
            printf("barrier, slot %s\\n", *slot == stub ? "unbound" : "bound");
            fflush(stdout);
        }
        if (next == NULL) {
            next = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
        }
        return next(number, given[0], given[1], given[2], given[3], given[4], given[5]);
    }
"""


def test_function_slots_are_bound_after_a_barrier_in_all_threads(tmp_path: Path) -> None:
    """Calls read a function's slot without a barrier.

    So the binding issues a barrier in all threads before it stores the first function's address in a slot.
    """
    library = tmp_path / "barrier.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, "-xc", "-"], input=SLOT_AT_BARRIER, text=True, check=True)
    done = run_python("""
        import ctypes, os
        from acl.bind.generated import _libacl
        watch = ctypes.CDLL(os.environ["LD_PRELOAD"])
        api = ctypes.pythonapi
        api.PyCapsule_GetPointer.restype = ctypes.c_void_p
        api.PyCapsule_GetPointer.argtypes = ctypes.py_object, ctypes.c_char_p
        api.PyCapsule_GetName.restype = ctypes.c_char_p
        api.PyCapsule_GetName.argtypes = ctypes.py_object,
        capsule = _libacl.__pyx_capi__["aclrtGetDeviceCount"]
        slot = ctypes.c_void_p.from_address(api.PyCapsule_GetPointer(capsule, api.PyCapsule_GetName(capsule)))
        stub = slot.value
        ctypes.c_void_p.in_dll(watch, "stub").value = stub
        ctypes.c_void_p.in_dll(watch, "slot").value = ctypes.addressof(slot)
        _libacl.open()
        print("bound", slot.value != stub)
    """, LD_PRELOAD=str(library))
    assert done.stdout.splitlines() == ["barrier, slot unbound", "bound True"], done.stderr


@pytest.fixture(scope="session")
def tiny_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with CANN's layout: a libascendcl.so with two functions, and a companion with one."""
    folder = tmp_path_factory.mktemp("cann") / "lib64"
    folder.mkdir()
    sources = {
        "libascendcl.so": """
            int aclInit(const char *path) { (void)path; return 0; }
            int aclrtGetDeviceCount(unsigned *count) { *count = 7; return 0; }
        """,
        "libacl_op_compiler.so": "int aclopCompile(void) { return 0; }",
    }
    for name, text in sources.items():
        source = folder / (name + ".c")
        source.write_text(text)
        subprocess.run(["gcc", "-shared", "-fPIC", "-o", folder / name, source], check=True)
    return folder / "libascendcl.so"


def test_every_function_of_the_table_is_known() -> None:
    assert set(_libacl.functions()) == {row["name"] for row in TABLE["functions"]}
    assert len(TABLE["functions"]) == 690


def test_the_simulator_has_what_its_library_exports() -> None:
    library = ctypes.CDLL(acl.library())
    wrong = [
        name
        for name, there in _libacl.functions().items()
        if there != hasattr(library, name)
        and not hasattr(
            ctypes.CDLL(str(Path(acl.library()).with_name("libacl_op_compiler.so"))), name
        )
    ]
    assert wrong == []


def test_error_codes_are_those_of_the_table() -> None:
    assert _libacl.error_codes() == {row["name"]: row["value"] for row in TABLE["errors"]}


def test_import_opens_no_library() -> None:
    done = run_python("""
        import acl
        print("ascendcl" in open("/proc/self/maps").read())
        acl.backend()
        print("ascendcl" in open("/proc/self/maps").read())
    """)
    assert done.stdout.split() == ["False", "True"], done.stderr


def test_auto_falls_back_to_the_simulator_with_one_warning() -> None:
    done = run_python(
        """
        import acl
        print(acl.backend(), acl.backend(), acl.Device.count())
    """,
        ACL_BACKEND="",
        ASCEND_TOOLKIT_HOME="",
        ASCEND_HOME_PATH="",
    )
    assert done.stdout.split() == ["sim", "sim", "2"]
    assert done.stderr.count("RuntimeWarning") == 1
    assert "the simulator stands in for the device" in done.stderr


def test_call_that_opens_the_simulator_by_itself_warns() -> None:
    done = run_python("import acl; acl.Device.count()", ACL_BACKEND="auto")
    assert done.stderr.count("RuntimeWarning") == 1


def test_backend_sim_opens_the_simulator_without_a_warning() -> None:
    done = run_python(
        "import acl; print(acl.backend())", ACL_BACKEND="sim", arguments=("-W", "error")
    )
    assert (done.stdout.strip(), done.stderr) == ("sim", "")


def test_backend_cann_never_opens_the_simulator() -> None:
    done = run_python(CALL, ACL_BACKEND="cann")
    assert done.stdout.startswith("NotSupportedError 207000 aclrtGetDeviceCount")
    assert "no ACL library could be opened" in done.stdout


def test_unknown_backend_is_refused_by_name() -> None:
    done = run_python(CALL, ACL_BACKEND="gpu")
    assert "ACL_BACKEND must be cann, sim or auto" in done.stdout


def test_variable_acl_library_takes_precedence_over_the_backend(tiny_library: Path) -> None:
    done = run_python(
        "import acl; print(acl.backend(), acl.library(), acl.Device.count(), sep='\\n')",
        ACL_BACKEND="sim",
        ACL_LIBRARY=str(tiny_library),
    )
    assert done.stdout.splitlines() == ["cann", str(tiny_library), "7"], done.stderr


def test_missing_file_in_variable_acl_library_is_named() -> None:
    done = run_python(CALL, ACL_LIBRARY="/nonexistent/libascendcl.so")
    assert "/nonexistent/libascendcl.so" in done.stdout


@pytest.mark.parametrize("variable", ["ASCEND_TOOLKIT_HOME", "ASCEND_HOME_PATH"])
def test_library_of_cann_is_found_by_its_usual_variables(tiny_library: Path, variable: str) -> None:
    done = run_python(
        "import acl; print(acl.library())",
        ACL_BACKEND="auto",
        **{variable: str(tiny_library.parent.parent)},
    )
    assert (done.stdout.strip(), done.stderr) == (str(tiny_library), "")


def test_library_of_cann_is_found_by_the_path_of_the_loader(tiny_library: Path) -> None:
    done = run_python(
        "import acl; print(acl.backend(), acl.Device.count())",
        ACL_BACKEND="auto",
        LD_LIBRARY_PATH=str(tiny_library.parent),
    )
    assert done.stdout.split() == ["cann", "7"]


def test_library_that_the_process_has_open_is_used_first(
    tiny_library: Path, tmp_path: Path
) -> None:
    named = tmp_path / "libascendcl.so"
    subprocess.run(
        [
            "gcc",
            "-shared",
            "-fPIC",
            "-Wl,-soname,libascendcl.so",
            "-o",
            named,
            str(tiny_library) + ".c",
        ],
        check=True,
    )
    done = run_python(
        f"""
        import ctypes
        ctypes.CDLL({str(named)!r})
        import acl
        print(acl.library())
    """,
        ACL_BACKEND="auto",
        ASCEND_HOME_PATH=str(tiny_library.parent.parent),
    )
    assert done.stdout.strip() == str(named)


def test_companion_libraries_are_found_beside_the_library(tiny_library: Path) -> None:
    done = run_python(
        """
        from acl.bind.generated import _libacl
        print(sorted(name for name, there in _libacl.functions().items() if there))
    """,
        ACL_LIBRARY=str(tiny_library),
    )
    assert done.stdout.strip() == "['aclInit', 'aclopCompile', 'aclrtGetDeviceCount']"


def test_a_missing_function_is_named_with_the_version() -> None:
    done = run_python(CALL, ACL_WITHOUT="aclrtGetDeviceCount")
    assert done.stdout.startswith("NotSupportedError 207000 aclrtGetDeviceCount")
    assert f"CANN {acl.cann_version()}" in done.stdout
    assert "has no function aclrtGetDeviceCount" in done.stdout


def test_functions_newer_than_cann_8_1_can_be_hidden() -> None:
    done = run_python(
        """
        from acl.bind.generated import _libacl
        print(*[name for name, there in _libacl.functions().items() if there])
    """,
        ACL_WITHOUT="aclInit,newer",
    )
    newer = {row["name"] for row in TABLE["functions"] if row["since"] == "newer"}
    have = {name for name, there in _libacl.functions().items() if there}
    assert set(done.stdout.split()) == have - newer - {"aclInit"}


def test_functions_called_without_a_library_do_not_crash(tmp_path: Path) -> None:
    # Every one of the 690 pointers is called with zeros through its stub.
    done = run_python(
        """
        import ctypes, acl.bind.generated._libacl
        get = ctypes.pythonapi.PyCapsule_GetPointer
        get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        name = ctypes.pythonapi.PyCapsule_GetName
        name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
        exported = acl.bind.generated._libacl.__pyx_capi__
        answers = {}
        for function in acl.bind.generated._libacl.functions():
            capsule = exported[function]
            slot = ctypes.c_void_p.from_address(get(capsule, name(capsule)))
            answers[function] = ctypes.CFUNCTYPE(ctypes.c_int)(slot.value)(*[0] * 19)
        print(len(answers), answers["aclrtMalloc"], answers["aclmdlCreateDesc"], answers["aclGetTensorDescType"])
    """,
        ACL_LIBRARY="/nonexistent.so",
    )
    assert done.stdout.split() == ["690", "207000", "0", "-1"], done.stderr


def test_header_files_are_in_the_folder_that_include_dir_returns() -> None:
    assert (Path(acl.include_dir()) / "acl/acl.h").is_file()


@pytest.mark.parametrize("source", sorted(ROOT.glob("acl/bind/**/*.c")), ids=lambda path: path.name)
def test_library_loader_compiles_without_a_warning(source: Path) -> None:
    flags = ["-std=c11", "-Wall", "-Wextra", "-Wconversion", "-Wundef", "-Werror", "-fsyntax-only"]
    folders = [f"-I{ROOT / 'acl/include'}", f"-I{ROOT / 'acl'}"]
    subprocess.run(["gcc", *flags, *folders, source], check=True)


@pytest.mark.skipif(shutil.which("g++") is None, reason="no C++ compiler")
@pytest.mark.parametrize(
    "compiler",
    [["gcc", "-std=c11"], ["gcc", "-std=c99"], ["g++", "-std=c++11"], ["g++", "-std=c++17"]],
)
def test_each_header_compiles_without_other_headers(compiler: list[str], tmp_path: Path) -> None:
    suffix = ".cpp" if compiler[0] == "g++" else ".c"
    headers = sorted((Path(acl.include_dir()) / "acl").rglob("*.h"))
    assert len(headers) > 10
    for header in headers:
        source = tmp_path / ("alone" + suffix)
        source.write_text(f'#include "acl/{header.relative_to(Path(acl.include_dir()) / "acl")}"\n')
        subprocess.run(
            [
                *compiler,
                "-Wall",
                "-Wextra",
                "-Werror",
                "-fsyntax-only",
                "-I",
                acl.include_dir(),
                source,
            ],
            check=True,
        )
