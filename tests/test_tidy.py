"""Rules of the tree: what a reader may rely on in every file. Each failure names the place and the reason for the rule.

Determinism of the core has its own file, ``test_tidy_core.py``; who may import whom is in ``pyproject.toml``.
"""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
import warnings
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("core", "adapters", "projections")
TOP_LEVEL = {
    ".ci", ".gitignore", ".ns", "CHANGELOG.md", "LICENSE", "Makefile", "README.md", "adapters", "constraints.txt",
    "core", "deploy", "projections", "pyproject.toml", "tests",
}  # fmt: skip
TEXT = {
    ".py",
    ".toml",
    ".md",
    ".txt",
    ".sql",
    ".json",
    ".conf",
    ".sh",
    ".yml",
    ".yaml",
    ".service",
    ".html",
    ".css",
    "",
}
VAGUE_NAMES = {"util", "utils", "helper", "helpers", "common", "misc", "base", "stuff", "tools", "manager"}
LINES_WARN, LINES_MAX, FUNCTION_MAX = 300, 450, 100

# Modules that may be longer than LINES_MAX, each with the reason why two files would read worse.
LONG_MODULES: dict[str, str] = {
    "core/kernels/effects.py": "half of it names columns; money, queue and rows call each other in every function",
    "core/kernels/reports.py": "a kernel and its helpers stay in one file: reading, key index and fold meet in its loop",
    "core/kernels/horizon.py": "the search places, bends curves and undoes in its inner loop, so what it calls stays in its file",
}
# Functions that may be longer than FUNCTION_MAX, each with its reason: "path:function".
LONG_FUNCTIONS = {"adapters/cli/writes.py:submit": "the options of a verb are its signature, one a line"}


@cache
def places() -> tuple[Path, ...]:
    """Return everything that belongs to the project: tracked, or new and not ignored; all outside a checkout."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    if listed.returncode == 0:
        names = sorted(name for name in listed.stdout.split("\0") if name)
    else:
        hidden = (".venv", ".git", "__pycache__", "dist", "build", ".apportion", ".kernels")
        names = sorted(str(path.relative_to(ROOT)) for path in ROOT.rglob("*") if not set(hidden) & set(path.parts))
    return tuple(ROOT / name for name in names)


@cache
def files() -> tuple[Path, ...]:
    """Return every file of it."""
    return tuple(path for path in places() if path.is_file() and not path.is_symlink())


def python_files(*tops: str) -> list[Path]:
    return [path for path in files() if path.suffix == ".py" and path.relative_to(ROOT).parts[0] in tops]


@cache
def source(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(source(path), str(path))


def place(path: Path, line: int = 0) -> str:
    return f"{path.relative_to(ROOT)}:{line}" if line else str(path.relative_to(ROOT))


def text_lines() -> list[tuple[Path, int, str]]:
    return [
        (path, number, line)
        for path in files()
        if path.suffix in TEXT
        for number, line in enumerate(source(path).splitlines(), start=1)
    ]


def test_the_top_level_is_the_agreed_one() -> None:
    extra = sorted({path.relative_to(ROOT).parts[0] for path in files()} - TOP_LEVEL)

    assert not extra, (
        f"{extra}: the top level is fixed, so that a newcomer finds things; put it into one of the folders"
    )


def test_nothing_is_a_link_but_the_three_rooms_of_the_namespace() -> None:
    """A link to a folder inside itself makes a wheel that cannot be built; the files of a room are files."""
    links = {str(path.relative_to(ROOT)) for path in places() if path.is_symlink()}

    assert links <= {f".ns/apportion/{room}" for room in PACKAGES}


def test_every_module_tells_what_it_is() -> None:
    short = []
    for path in python_files(*PACKAGES, "tests"):
        lines = [line for line in (ast.get_docstring(tree(path)) or "").splitlines() if line.strip()]
        if len(lines) < (1 if path.is_relative_to(ROOT / "tests") else 2):
            short.append(place(path))

    assert not short, (
        "no docstring that tells what the module decides, of what it is a pure function, who applies the result and "
        "what it must never do (two lines or more; one is enough for tests):\n" + "\n".join(short)
    )


def test_a_module_is_named_after_one_noun() -> None:
    vague = [place(path) for path in python_files(*PACKAGES) if {path.stem, path.parent.name} & VAGUE_NAMES]

    assert not vague, f"{vague}: such a name says nothing and attracts everything; name the noun it is about"


def test_modules_stay_readable_in_one_sitting() -> None:
    lengths = {place(path): len(source(path).splitlines()) for path in python_files(*PACKAGES)}
    too_long = {name: count for name, count in lengths.items() if count > LINES_MAX and name not in LONG_MODULES}
    needless = [name for name in LONG_MODULES if lengths.get(name, 0) <= LINES_MAX]
    for name, count in lengths.items():
        if LINES_WARN < count <= LINES_MAX:
            warnings.warn(f"{name} has {count} lines; would two nouns read better apart?", stacklevel=1)

    assert not too_long, f"{too_long} lines: split by noun, or give the reason in LONG_MODULES (limit {LINES_MAX})"
    assert not needless, f"{needless}: no longer above {LINES_MAX} lines; take the entry out of LONG_MODULES"


def test_functions_fit_on_a_screen_or_two() -> None:
    lengths = {
        f"{place(path)}:{node.name}": (node.end_lineno or node.lineno) - node.lineno + 1
        for path in python_files(*PACKAGES, "tests")
        for node in ast.walk(tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    too_long = {name: count for name, count in lengths.items() if count > FUNCTION_MAX and name not in LONG_FUNCTIONS}
    needless = [name for name in LONG_FUNCTIONS if lengths.get(name, 0) <= FUNCTION_MAX]

    assert not too_long, (
        f"{too_long} lines: move leaves out, or give the reason in LONG_FUNCTIONS (limit {FUNCTION_MAX})"
    )
    assert not needless, f"{needless}: no longer above {FUNCTION_MAX} lines; take the entry out of LONG_FUNCTIONS"


def test_nothing_is_left_for_later_in_a_comment() -> None:
    later = re.compile(r"\b(TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b")
    found = [f"{place(path, number)}: {line.strip()}" for path, number, line in text_lines() if later.search(line)]

    assert not found, "do it now, or open an issue; a note in the code is read by nobody:\n" + "\n".join(found)


def test_waits_hear_that_they_are_cancelled() -> None:
    calls = [
        place(path, node.lineno)
        for path in python_files(*PACKAGES)
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "asyncio.wait_for"
    ]

    assert not calls, f"{calls}: asyncio.wait_for of Python 3.11 drops cancellations; use `async with asyncio.timeout(..)`"


def test_no_addresses_of_machines_or_package_indexes() -> None:
    patterns = {
        "an index address; where packages come from is the machine's setting": re.compile(
            r"index[-_]url|find[-_]links|trusted[-]host|/simp[l]e/|pythonhost[e]d|registry[.]npm|deb[.]debian",
            re.IGNORECASE,
        ),
        "a path of one machine; take it from the environment or the test's own directory": re.compile(
            r"(^|[^\w.$}/-])/(work|tmp|home|root|Users|mnt)/[A-Za-z0-9_.]"
        ),
    }
    found = [
        f"{place(path, number)}: {why}: {line.strip()[:120]}"
        for path, number, line in text_lines()
        for why, pattern in patterns.items()
        if pattern.search(line)
    ]

    assert not found, "\n".join(found)


def test_text_files_are_clean() -> None:
    found = [f"{place(path, number)}: space at the end" for path, number, line in text_lines() if line != line.rstrip()]
    for path in files():
        if path.suffix in TEXT and (text := source(path)) and not text.endswith("\n"):
            found.append(f"{place(path)}: no newline at the end")

    assert not found, "differences should show meaning alone:\n" + "\n".join(found)


def test_every_answer_of_the_core_is_explained_beside_it() -> None:
    """Whoever meets ``never_fits`` in a table finds in ``reasons.py`` what it means and which numbers come with it."""
    path = ROOT / "core" / "reasons.py"
    lines = source(path).splitlines()
    comments = [
        token
        for token in tokenize.generate_tokens(io.StringIO(source(path)).readline)
        if token.type == tokenize.COMMENT
    ]
    beside = {token.start[0] for token in comments}
    above = {token.start[0] + 1 for token in comments if lines[token.start[0] - 1].lstrip().startswith("#")}
    silent = [
        f"{place(path, member.lineno)} {enum.name}.{ast.unparse(member.targets[0])}"
        for enum in tree(path).body
        if isinstance(enum, ast.ClassDef)
        for member in enum.body
        if isinstance(member, ast.Assign) and member.lineno not in beside | above
    ]

    assert not silent, (
        "say in a comment what it means, when a person meets it, which numbers come with it:\n" + "\n".join(silent)
    )


def test_every_query_asks_its_question_first() -> None:
    found = [
        place(path)
        for path in files()
        if path.suffix == ".sql" and not re.match(r"-- \S.{8,}", source(path).split("\n", 1)[0])
    ]

    assert not found, f"{found}: the first line of an SQL file is a comment with the question it answers"


def test_every_exception_from_a_check_has_its_reason() -> None:
    """``# noqa`` and ``# type: ignore`` name the rule, and say in a few words why it does not hold here."""
    mark = re.compile(
        r"#\s*(noqa|type:\s*ignore)(?P<rule>(:\s*[A-Z]+[0-9]+(,\s*[A-Z]+[0-9]+)*|\[[\w, -]+\]))?(?P<why>.*)"
    )
    found = []
    for path in python_files(*PACKAGES):
        for token in tokenize.generate_tokens(io.StringIO(source(path)).readline):
            match = mark.match(token.string) if token.type == tokenize.COMMENT else None
            if match and (not match["rule"] or len(match["why"].strip(" #-:;")) < 8):
                found.append(f"{place(path, token.start[0])}: {token.string}")

    assert not found, "name the rule and the reason:\n" + "\n".join(found)


def test_every_skip_has_its_reason() -> None:
    found = [
        place(path, node.lineno)
        for path in python_files("tests")
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Attribute) and ast.unparse(node) in {"pytest.mark.skip", "pytest.mark.xfail"}
        if not any(
            isinstance(call, ast.Call) and call.func is node and any(word.arg == "reason" for word in call.keywords)
            for call in ast.walk(tree(path))
        )
    ]

    assert not found, f"{found}: a test that does not run must say why, and what would let it run"


def test_every_test_can_fail() -> None:
    """A test's body, or a function of its file that it calls, asserts, expects an error, or checks."""
    says = re.compile(
        r"\bassert\b|\braises\b|\bwarns\b|\bcheck|\bverify|\bexpect|\bfail\(|\bassert_|\brun_state_machine"
    )
    found = []
    for path in python_files("tests"):
        bodies = {
            node.name: ast.unparse(node)
            for node in ast.walk(tree(path))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        }
        asserting = {name for name, body in bodies.items() if says.search(body.split("\n", 1)[-1])}
        for name, body in bodies.items():
            if name.startswith("test_") and name not in asserting:
                called = set(re.findall(r"\b(\w+)\(", body.split("\n", 1)[-1]))
                if not called & asserting:
                    found.append(f"{place(path)}: {name}")

    assert not found, "nothing in these tests can fail:\n" + "\n".join(found)


def test_every_event_has_a_golden_sample() -> None:
    from apportion.core.events import EVENTS

    missing = [
        f"tests/golden/events/{name}.v{version}.json"
        for name, version in EVENTS
        if not (ROOT / "tests" / "golden" / "events" / f"{name}.v{version}.json").is_file()
    ]

    assert not missing, f"{missing}: write one record as a producer would, and never change it once it was shipped"


@pytest.mark.parametrize("name", PACKAGES)
def test_type_information_ships(name: str) -> None:
    assert (ROOT / name / "py.typed").is_file(), (
        f"{name}/py.typed is missing: checkers of other projects would see nothing"
    )
    assert (ROOT / ".ns" / "apportion" / name).is_symlink(), f".ns/apportion/{name} must be a link to ../../{name}"
