"""The questions in their order, the loop that asks them one after the other, and the report."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from acl.inside._text import write_replaced
from acl.tools.doctor.deep.answers import Answer, Question, Say, ask

__all__ = ["QUESTIONS", "add_arguments", "chosen", "examine", "machine", "meant_for_deep", "run", "text"]

HERE = "acl.tools.doctor.deep"
QUESTIONS = (
    Question("machine", f"{HERE}.report:machine", 90, "library, chip, driver, and the short self-tests"),
    Question("addresses", f"{HERE}.memory:ask_addresses", 30, "one handle at two addresses: copies, tasks, kernels"),
    Question("granularity", f"{HERE}.memory:ask_granularity", 30, "the units of physical memory"),
    Question("pages", f"{HERE}.memory:ask_pages", 30, "page sizes of the host, of pinned memory, of pools"),
    Question("prices", f"{HERE}.memory:ask_prices", 60, "what the driver's calls take"),
    Question("streams", f"{HERE}.order:ask_streams", 40, "which stream's allocator serves whom"),
    Question("captures", f"{HERE}.order:ask_captures", 40, "graphs, and memory inside them"),
    Question("cores", f"{HERE}.order:ask_cores", 70, "MAX_RUNTIME_CORE_NUMBER"),
    Question("chip", f"{HERE}.order:ask_chip", 90, "the refusal of allocators by 310-class chips"),
    Question("exits", f"{HERE}.order:ask_exits", 110, "how processes end"),
    Question("demo", f"{HERE}.demand:ask_demo", 90, "the demo's memory: no allocator, the pool, torch_npu's"),
    Question("probes", f"{HERE}.probing:ask_probes", 260, "555 probes against the runtime's own answers"),
)
MINUTES = 10.0
FOLDER = "aclpool-deep"
WRONG = {"bad", "failed", "crashed", "hung"}
REHEARSAL = ("REHEARSAL on the simulator: these are the simulator's rules, and the prices are those of this host. "
             "Nothing here was observed on a device.")


def machine(say: Say) -> Answer:
    """Question: what does `aclpool doctor` find, and about which library?"""
    import acl
    from acl.tools import doctor

    findings = doctor.examine()
    bad = [f"{finding.what}: {finding.value}" for finding in findings if finding.verdict == "bad"]
    facts: dict[str, Any] = {"backend": acl.backend(), "library": acl.library(), "cann": acl.cann_version(),
                             "aclpool": acl.__version__, "findings": [asdict(finding) for finding in findings]}
    chip = next((finding.value for finding in findings if finding.what == "devices"), "no device")
    text = f"{facts['library']} ({facts['backend']}, CANN {facts['cann'] or 'unknown'}), {chip}"
    return Answer("bad" if bad else "ok", "; ".join([text, *bad]), facts)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of `aclpool doctor` that belong to --deep."""
    group = parser.add_argument_group("questions that only a device answers (docs/hardware_day.md)")
    group.add_argument("--deep", action="store_true",
                       help="ask them, each in a process of its own; at most ten minutes")
    group.add_argument("--output", metavar="FOLDER",
                       help="where --deep puts report.txt, report.json, latency.json and probes.patch (default: "
                            f"{FOLDER})")
    group.add_argument("--only", metavar="LIST",
                       help=f"some of {','.join(question.name for question in QUESTIONS)}")
    group.add_argument("--library", metavar="FILE", help="another libascendcl.so")
    group.add_argument("--minutes", type=float, metavar="N",
                       help=f"what is not asked by then is skipped (default: {MINUTES:g})")


def meant_for_deep(arguments: argparse.Namespace) -> list[str]:
    """Return the given options that have no meaning without --deep."""
    return [f"--{name}" for name in ("output", "only", "library", "minutes") if getattr(arguments, name) is not None]


def chosen(names: str) -> tuple[Question, ...]:
    """Return the questions that a list of names chooses, and `machine`; all questions if the list is empty.

    Raises
    ------
    ValueError
        A name is not that of a question.
    """
    wanted = {name.strip() for name in names.split(",") if name.strip()}
    known = {question.name for question in QUESTIONS}
    if wanted - known:
        raise ValueError(f"--only has {', '.join(sorted(wanted - known))}; expected some of "
                         f"{', '.join(question.name for question in QUESTIONS)}")
    return tuple(question for question in QUESTIONS if not wanted or question.name in wanted | {"machine"})


def examine(questions: Sequence[Question], seconds: float, say: Say) -> dict[str, Answer]:
    """Ask the questions one after the other, at most `seconds` together; return the answers by name."""
    deadline = time.monotonic() + seconds
    answers: dict[str, Answer] = {}
    for number, question in enumerate(questions, 1):
        head = f"[{number}/{len(questions)}] {question.name}"
        left = deadline - time.monotonic()
        if left < 1:
            answers[question.name] = Answer("skipped", f"the {seconds / 60:g} minutes were over")
            continue
        say(f"{head}: {question.about}")
        found = ask(question, min(question.limit, left), lambda text, head=head: say(f"{head}: {text}"))  # type: ignore[misc]
        say(f"{head}: {found.verdict} in {found.seconds:.1f} s")
        answers[question.name] = found
    return answers


def text(document: dict[str, Any]) -> str:
    """Return the report as text for people."""
    lines = [f"aclpool doctor --deep, {document['time']}, {document['seconds']:.0f} s"]
    lines += [REHEARSAL] if document["rehearsal"] else []
    for name, row in document["answers"].items():
        lines += ["", f"{row['verdict']:8} {name} ({row['about']}; {row['seconds']:.1f} s)", f"         {row['text']}"]
        lines += [f"         | {line}" for line in row["output"].splitlines()[-12:]]
    return "\n".join(lines)


def run(arguments: argparse.Namespace) -> int:
    """Ask the questions, write the files, print the report, and return the exit status.

    It is 1 if an answer is bad or a question got no answer (`WRONG`), 2 if an option is wrong, else 0.
    """
    folder = Path(arguments.output or FOLDER)
    minutes = MINUTES if arguments.minutes is None else arguments.minutes
    try:
        questions = chosen(arguments.only or "")
        if minutes <= 0:
            raise ValueError(f"--minutes must be above 0, not {minutes:g}")
        if arguments.library and not Path(arguments.library).is_file():
            raise ValueError(f"--library: {arguments.library} is not a file; expected a libascendcl.so")
        folder.mkdir(parents=True, exist_ok=True)
    except (ValueError, OSError) as error:
        print(f"aclpool doctor: {error}", file=sys.stderr)
        return 2
    if arguments.library:
        os.environ["ACL_LIBRARY"] = str(Path(arguments.library).resolve())
    started = time.monotonic()
    answers = examine(questions, minutes * 60, lambda text: print(text, file=sys.stderr, flush=True))
    return conclude(questions, answers, folder, time.monotonic() - started, arguments.json)


def conclude(questions: Sequence[Question], answers: dict[str, Answer], folder: Path, seconds: float,
             as_json: bool) -> int:
    """Write the files and print the report; return the exit status."""
    about = {question.name: question.about for question in questions}
    document: dict[str, Any] = {
        "time": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"), "seconds": round(seconds, 1),
        "rehearsal": answers["machine"].facts.get("backend") == "sim",
        "answers": {name: {**asdict(answer), "about": about[name]} for name, answer in answers.items()},
    }
    for answer in answers.values():
        for name, content in answer.files.items():
            write_replaced(str(folder / name), content)
    for row in document["answers"].values():
        del row["files"]
    write_replaced(str(folder / "report.json"), json.dumps(document, indent=2) + "\n")
    write_replaced(str(folder / "report.txt"), text(document) + "\n")
    print(json.dumps(document, indent=2) if as_json else text(document))
    print(f"send in the folder {folder}", file=sys.stderr)
    return 1 if any(answer.verdict in WRONG for answer in answers.values()) else 0
