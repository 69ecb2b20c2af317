"""`aclpool sim run -- PROGRAM ARGS`: run any program, C or Python, on the simulator.

The program is executed with the simulator's folder as the first one on the loader's path.  So it gets the simulator's
`libascendcl.so` if it links against CANN's libraries or opens them by name, and so do programs that it starts.
Nothing is preloaded, because frameworks behave differently when LD_PRELOAD is set.  The options become `ACL_SIM_*`
variables, which the library reads.  A variable whose option is not given is not changed.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import shutil
import sys
from pathlib import Path

from acl import sim
from acl.tools import sim_check, sim_faults, sim_trace
from acl.tools.outputs import check_output

__all__ = ["add_parser", "environment", "folder", "main", "run"]

# For each option: its name, its variable, its metavar and its text in the help.
SETTINGS = [
    ("devices", "ACL_SIM_DEVICES", "N", "how many devices there are (default 2)"),
    ("capacity", "ACL_SIM_MEMORY", "SIZE", "memory of each device, as 8GiB or 512M; 8G,4G for one after another"),
    ("pinned", "ACL_SIM_PINNED", "SIZE", "the most pinned host memory of a process, as 8GiB (default: no limit)"),
    ("soc", "ACL_SIM_SOC", "NAME", "the chip, as Ascend910B1 or Ascend310P3"),
    ("cann", "ACL_SIM_VERSION", "VERSION", "the version of CANN to report"),
    ("latency", "ACL_SIM_LATENCY", "PRESET", "how long driver calls take: off, pcie (copies too), pcie:RATE or memory"),
    ("faults", "ACL_SIM_FAULTS", "SPEC", "calls that fail, as aclrtMalloc:nth=3:code=207001 (see acl.sim.fault)"),
    ("shared", "ACL_SIM_SHARED", "FILE", "programs that name the same file share the devices' memory"),
    ("trace", "ACL_SIM_TRACE", "FILE", "write each call with its result to a file (%%p: the process's number)"),
    ("json", "ACL_SIM_RACES_JSON", "FILE", "with --races: add each finding, a JSON object a line ('-': to stderr)"),
    ("counters", "ACL_SIM_COUNTERS", "FILE", "at exit, add how often each function was called ('-': to stderr)"),
    ("coverage", "ACL_SIM_COVERAGE", "FILE", "at exit, add which statuses each function gave ('-': to stderr)"),
]
FILES = ("shared", "trace", "json", "counters", "coverage")
SWITCHES = [
    ("races", "ACL_SIM_RACES", "report accesses of streams that nothing orders; ends with 1 if there are any"),
    ("strict", "ACL_SIM_STRICT", "the host must not touch device memory outside copies"),
    ("strict-allocators", "ACL_SIM_STRICT_ALLOCATORS",
     "refuse to register an allocator with a function missing or on a dead stream"),
    ("reuse-handles", "ACL_SIM_REUSE_HANDLES",
     "give a destroyed handle's value to the next object of its kind at once"),
]


def environment(options: argparse.Namespace, base: dict[str, str]) -> dict[str, str]:
    """Return the environment in which a program runs on the simulator.

    Parameters
    ----------
    options : argparse.Namespace
        The parsed options of `aclpool sim run`.
    base : dict
        The environment to start from; it is not changed.

    Returns
    -------
    dict
        All variables of the environment.

    Raises
    ------
    ValueError
        If an option has a wrong value; the message names the option.
    """
    made = dict(base)
    folder = sim.library_dir()
    rest = [part for part in base.get("LD_LIBRARY_PATH", "").split(":") if part and part != folder]
    made["LD_LIBRARY_PATH"] = ":".join([folder, *rest])
    made["ACL_BACKEND"] = "sim"
    made.pop("ACL_LIBRARY", None)
    for option, variable, _, _ in SETTINGS:
        value = getattr(options, option)
        if option == "devices" and value is not None and not (value.isascii() and value.isdigit()):
            raise ValueError(f"--devices: expected a number, got {value!r}")
        if value is not None:
            tried(option, value)
            made[variable] = setting(option, value)
    for option, variable, _ in SWITCHES:
        if getattr(options, option.replace("-", "_")):
            made[variable] = "1"
    if options.json is not None and not options.races:
        raise ValueError("--json: expected with --races")
    if options.races:
        made["ACL_SIM_RACES_FAIL"] = "1"
    return made


def setting(option: str, value: str) -> str:
    """Return the value of an option's variable: the option's value, in the form that the library reads.

    Sizes are written in bytes.  File names are made absolute, because the program may change its folder.
    """
    if option in ("capacity", "pinned"):
        return value if value == "unlimited" else sim.parse_sizes(value, option)
    return os.path.abspath(value) if option in FILES and value != "-" else value


def tried(option: str, value: str) -> None:
    """Raise ValueError if the simulator in this process refuses a value, or if an output file cannot be written."""
    if option in FILES and option != "shared":
        check_output(f"--{option}", value)
    try:
        if option in ("devices", "capacity", "pinned", "soc", "cann", "latency"):
            sim.configure(**{option: value})
        elif option == "faults":
            for rule in filter(None, value.split(",")):
                sim.Fault(rule).remove()
    except ValueError as error:
        raise ValueError(f"--{option}: {error}") from None


def command(program: list[str]) -> list[str]:
    """Return the command that starts the program: a Python script is started by this interpreter."""
    if program[0].endswith(".py") and not os.access(program[0], os.X_OK) and Path(program[0]).is_file():
        return [sys.executable, *program]
    return program


def started(options: argparse.Namespace, verb: str) -> tuple[str, list[str], dict[str, str]] | int:
    """Return the program's path, command line and environment; if it cannot be started, print why, return the status.

    The files that the program's processes append to are emptied first.
    """
    program = options.program[1:] if options.program[:1] == ["--"] else options.program
    if not program:
        print(f"aclpool sim {verb}: which program? (aclpool sim {verb} -- PROGRAM ARGS)", file=sys.stderr)
        return 2
    try:
        env = environment(options, dict(os.environ))
    except ValueError as error:
        print(f"aclpool sim {verb}: {error}", file=sys.stderr)
        return 2
    line = command(program)
    path = shutil.which(line[0], path=env.get("PATH"))
    if path is None:
        print(f"aclpool sim {verb}: {line[0]}: not found, or not executable", file=sys.stderr)
        return 127
    for file in filter(None, (options.trace, options.counters, options.coverage, options.json)):
        for old in existing(file):
            old.write_bytes(b"")             # empty old files, because the processes append to them
    return path, line, env


def existing(file: str) -> list[Path]:
    """Return the existing files with this name; a "%p" in it matches any process id."""
    try:
        return sim_trace.files([file])
    except ValueError:
        return []


def run(options: argparse.Namespace) -> int:
    """Replace this process by the program; returns only if that fails."""
    ready = started(options, "run")
    if isinstance(ready, int):
        return ready
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(*ready)


def check(options: argparse.Namespace) -> int:
    """Run the program under the checker, and report."""
    try:
        sim_check.look(options)
    except ValueError as error:
        print(f"aclpool sim check: {error}", file=sys.stderr)
        return 2
    ready = started(options, "check")
    return ready if isinstance(ready, int) else sim_check.run(*ready, options)


def faults(options: argparse.Namespace) -> int:
    """Run the program many times, each time with another call that fails, and report."""
    wanted, options.json = options.json, None        # `started` would take `json` for the option of the order checker
    try:
        sim_faults.look(argparse.Namespace(**{**vars(options), "json": wanted}))
    except ValueError as error:
        print(f"aclpool sim faults: {error}", file=sys.stderr)
        return 2
    ready = started(options, "faults")
    options.json = wanted
    return ready if isinstance(ready, int) else sim_faults.sweep(*ready, options)


def folder(options: argparse.Namespace) -> int:
    """Lay out the simulator in a folder as CANN's toolkit is."""
    from acl.sim.cann_layout import lay_out

    mindspore = None
    if options.mindspore:
        found = importlib.util.find_spec("mindspore")
        if found is None or found.origin is None:
            print("aclpool sim folder: MindSpore is not installed in this Python", file=sys.stderr)
            return 2
        mindspore = Path(found.origin).parent
    try:
        made = lay_out(options.folder, mindspore, options.cann)
    except OSError as error:
        print(f"aclpool sim folder: {error}", file=sys.stderr)
        return 1
    print(f"LD_LIBRARY_PATH={made}")
    return 0


def add_arguments(parser: argparse.ArgumentParser, without: tuple[str, ...] = ()) -> None:
    """Add the options of `aclpool sim run`, except those in `without`."""
    for option, _, what, text in SETTINGS:
        if option not in without:
            parser.add_argument(f"--{option}", metavar=what, help=text)
    for option, _, text in SWITCHES:
        if option not in without:
            parser.add_argument(f"--{option}", action="store_true", help=text)
    parser.add_argument("program", nargs=argparse.REMAINDER, metavar="-- PROGRAM ARGS", help="what to run")


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `sim`, with its verbs, to the `aclpool` command."""
    parser = subparsers.add_parser("sim", help="run programs on the simulator", description=__doc__,
                                   formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    verb = verbs.add_parser("run", help="run a program, C or Python, on the simulator",
                            formatter_class=argparse.RawDescriptionHelpFormatter, description=__doc__)
    add_arguments(verb)
    verb.set_defaults(run=run)
    verb = verbs.add_parser("check", help="run a program and report its misuse of memory, streams and handles",
                            formatter_class=argparse.RawDescriptionHelpFormatter, description=sim_check.__doc__)
    add_arguments(verb, without=("json", "races", "strict"))
    sim_check.add_arguments(verb)
    verb.set_defaults(run=check, json=None, races=False, strict=False)
    verb = verbs.add_parser("faults", help="let each call of a program fail once; list what crashed, hung or leaked",
                            formatter_class=argparse.RawDescriptionHelpFormatter, description=sim_faults.__doc__)
    without = ("json", "races", "faults", "trace", "counters", "coverage")
    add_arguments(verb, without=without)
    sim_faults.add_arguments(verb)
    verb.set_defaults(run=faults, races=False, **dict.fromkeys(without[2:]))
    verb = verbs.add_parser("trace", help="merge traces of processes; for people, as JSON, or for chrome://tracing",
                            description=sim_trace.__doc__)
    verb.add_argument("files", nargs="+", metavar="FILE", help="what --trace wrote")
    verb.add_argument("--chrome", metavar="OUT", help="write a file for chrome://tracing and Perfetto")
    verb.add_argument("--json", action="store_true", help="write JSON to standard output")
    verb.set_defaults(run=sim_trace.trace_run)
    verb = verbs.add_parser("coverage", help="which functions were called, and which statuses they gave",
                            description=sim_trace.__doc__)
    verb.add_argument("files", nargs="+", metavar="FILE", help="what --coverage or --counters wrote")
    verb.add_argument("--missing", action="store_true", help="list the functions that were never called, too")
    verb.add_argument("--json", action="store_true", help="write JSON to standard output")
    verb.set_defaults(run=sim_trace.coverage_run)
    verb = verbs.add_parser("folder", help="make a tree like CANN's toolkit, for projects that build against one")
    verb.add_argument("folder", metavar="DIR", help="DIR/latest is made: include, lib64, set_env.sh, a CMake package")
    verb.add_argument("--cann", metavar="VERSION", help="the version of CANN in the version files")
    verb.add_argument("--mindspore", action="store_true", help="with what the installed MindSpore is linked against")
    verb.set_defaults(run=folder)


def main(argv: list[str] | None = None) -> int:
    """Run `python -m acl.tools.sim [OPTIONS] -- PROGRAM ARGS`."""
    parser = argparse.ArgumentParser(prog="aclpool sim run", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser)
    return run(parser.parse_args(argv))


if __name__ == "__main__":
    sys.exit(main())
