"""Ad-hoc SQL: one question in a child process, on a published copy, with nothing else in reach.

SQL is treated like code. DuckDB's own limits do not hold (a function may run for half a minute under a limit of two seconds,
and take eight gigabytes under one of three hundred megabytes), so what holds is outside of it: a process of its own with a
limit on its address space, on files it may write (none) and on processor time, killed at the deadline; a copy opened
read-only that nobody else uses; settings locked, no file, no network, no extension; exactly one SELECT or EXPLAIN, without the
functions that tell about the machine or write; at most ``ROWS_MAX`` rows.

``run_sql`` is the parent's side. The module run as a program is the child: a request as JSON on stdin, an answer on stdout.
It authorizes nobody: who may read a copy may read all of it.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from apportion.core.errors import ApportionError

if TYPE_CHECKING:
    import duckdb

ROWS_MAX = 10_000
ANSWER_BYTES_MAX = 64 * 1024 * 1024
SQL_BYTES_MAX = 64 * 1024

# What a single SELECT could still do although external access is off and the copy is read-only: write a log or a checkpoint,
# run text as SQL (past the check below), or tell about files and settings of this machine.
_DENIED = re.compile(
    r"^(checkpoint|force_checkpoint|write_log|enable_logging|disable_logging|set_config|query|query_table|glob|sniff_csv"
    r"|read_.*|parquet_.*|pragma_.*|duckdb_(databases|settings|secrets|secret_types|logs?|log_contexts|log_entries|temporary_files"
    r"|extensions|optimizers|memory|variables|external_file_cache|connections?)|which_secret|current_setting|getenv"
    r"|add_parquet_key|load_aws_credentials|.*_scan|json_execute_serialized_sql|getvariable|storage_info|database_size)$"
)
_EXPLAIN = re.compile(r"\s*explain(\s+analyze)?\s+", re.IGNORECASE)


class SandboxRefused(ApportionError):
    """A question was not answered. ``kind``: usage (not one SELECT, or an error in it), time, memory, failed."""

    def __init__(self, kind: str, what: str) -> None:
        super().__init__(what)
        self.kind = kind


@dataclass(frozen=True)
class Limits:
    """What one question may use."""

    time_s: float = 10.0
    memory_bytes: int = 3 * 1024**3  # address space, code and all
    rows: int = ROWS_MAX


class SqlAnswer(msgspec.Struct, frozen=True):
    """Rows of an ad-hoc question, and the tick the copy stands at."""

    columns: tuple[str, ...]
    rows: list[list[Any]]
    truncated: bool
    as_of_seq: int
    as_of_ms: int

    def dicts(self) -> list[dict[str, Any]]:
        """Return the rows with their column names."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


class Request(msgspec.Struct, frozen=True):
    """What the parent asks of the child."""

    path: str
    sql: str
    rows: int
    memory_bytes: int
    time_s: float


class _Reply(msgspec.Struct, frozen=True):
    answer: SqlAnswer | None = None
    kind: str = ""
    what: str = ""


_DEFAULT = Limits()


def run_sql(copy: Path, sql: str, limits: Limits = _DEFAULT) -> SqlAnswer:
    """Answer ``sql`` from a published copy. Raises ``SandboxRefused``; blocks for at most ``limits.time_s`` and a moment."""
    if len(sql.encode("utf-8", "replace")) > SQL_BYTES_MAX:
        raise SandboxRefused("usage", f"the SQL is longer than {SQL_BYTES_MAX:,} bytes; make it shorter")
    request = Request(str(copy), sql, limits.rows, limits.memory_bytes, limits.time_s)
    child = subprocess.Popen(
        [sys.executable, "-I", "-m", "apportion.adapters.projector.sandbox"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd="/", env={"LC_ALL": "C.UTF-8"},
        start_new_session=True,
    )  # fmt: skip
    try:
        out, errors = child.communicate(msgspec.json.encode(request), timeout=limits.time_s)
    except subprocess.TimeoutExpired:
        raise SandboxRefused("time", f"it took longer than {limits.time_s:g} s and was stopped; ask for less") from None
    finally:
        _kill(child)
    if child.returncode == -signal.SIGXCPU:
        raise SandboxRefused("time", f"it used more than {limits.time_s:g} s of processor time and was stopped; ask for less")
    try:
        reply = msgspec.json.decode(out, type=_Reply)
    except msgspec.DecodeError:
        told = errors.decode(errors="replace").strip().splitlines()[-1:] or [f"exit code {child.returncode}"]
        kind = "memory" if b"alloc" in errors or b"MemoryError" in errors or child.returncode == -signal.SIGABRT else "failed"
        raise SandboxRefused(kind, f"the question ended its process: {told[0][:300]}; ask for less") from None
    if reply.answer is None:
        raise SandboxRefused(reply.kind, reply.what)
    return reply.answer


def _kill(child: subprocess.Popen[bytes]) -> None:
    """End the child and whatever it has started."""
    if child.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, signal.SIGKILL)
        child.communicate()


# -- the child ---------------------------------------------------------------------------------------------------------------


def main() -> int:
    """Answer the one request on stdin."""
    request = msgspec.json.decode(sys.stdin.buffer.read(), type=Request)
    _limit(request)
    try:
        reply = _Reply(answer=answer(request))
    except SandboxRefused as refused:
        reply = _Reply(kind=refused.kind, what=str(refused))
    except MemoryError:
        reply = _Reply(kind="memory", what="it needs more memory than a question may use; ask for less")
    body = msgspec.json.encode(reply, enc_hook=_plain)
    if len(body) > ANSWER_BYTES_MAX:
        body = msgspec.json.encode(_Reply(kind="memory", what=f"the answer is larger than {ANSWER_BYTES_MAX:,} bytes"))
    sys.stdout.buffer.write(body)
    sys.stdout.buffer.flush()
    return 0


def _limit(request: Request) -> None:
    """Bound this process from outside of DuckDB; before DuckDB is loaded."""
    import resource

    seconds = int(request.time_s) + 2
    for what, limit in (
        (resource.RLIMIT_AS, request.memory_bytes),
        (resource.RLIMIT_CPU, 2 * seconds),  # two threads
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, 64),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(what, (limit, limit))


def answer(request: Request) -> SqlAnswer:
    """Answer inside this process: the child's work, without the limits that hold."""
    import duckdb

    try:
        con = duckdb.connect(
            request.path,
            read_only=True,
            config={
                "enable_external_access": "false",
                "autoload_known_extensions": "false",
                "autoinstall_known_extensions": "false",
                "allow_community_extensions": "false",
                "allow_persistent_secrets": "false",
                "python_enable_replacements": "false",
                "memory_limit": f"{request.memory_bytes // 2}B",
                "max_temp_directory_size": "0B",
                "threads": "2",
            },
        )
    except duckdb.Error as error:
        raise SandboxRefused("failed", f"the copy {Path(request.path).name} cannot be opened: {error}") from error
    try:
        at = _as_of(con)
        _check(con, request.sql)
        con.execute("set lock_configuration = true")
        con.execute(request.sql)
        columns = tuple(column[0] for column in con.description or ())
        rows = con.fetchmany(request.rows + 1)
    except duckdb.OutOfMemoryException as error:
        raise SandboxRefused("memory", f"it needs more memory than a question may use: {_first(error)}") from error
    except duckdb.Error as error:
        raise SandboxRefused("usage", _first(error)) from error
    return SqlAnswer(columns, [list(row) for row in rows[: request.rows]], len(rows) > request.rows, int(at[0]), int(at[1]))


def _as_of(con: duckdb.DuckDBPyConnection) -> tuple[int, int]:
    """Return the tick the copy stands at; imported history stands at none."""
    if con.execute("select 1 from duckdb_tables() where schema_name = 'meta' and table_name = 'imported'").fetchone():
        return 0, 0
    at = con.execute("select seq, time_ms from fact.cycle where seq <= mart.readable_seq() order by seq desc limit 1").fetchone()
    return (at[0], at[1]) if at else (0, 0)


def _check(con: duckdb.DuckDBPyConnection, sql: str) -> None:
    """Refuse everything but one SELECT or EXPLAIN that calls nothing denied."""
    import duckdb

    statements = con.extract_statements(sql)
    if len(statements) != 1:
        raise SandboxRefused("usage", f"give exactly one statement, not {len(statements)}")
    kind = statements[0].type
    text = statements[0].query
    if kind == duckdb.StatementType.EXPLAIN:
        text = _EXPLAIN.sub("", text, count=1)
    elif kind != duckdb.StatementType.SELECT:
        raise SandboxRefused("usage", f"only SELECT and EXPLAIN are answered here, not {kind.name}; writes are events")
    found = con.execute("select json_serialize_sql(?::varchar)", [text.strip().rstrip(";")]).fetchone()
    tree = msgspec.json.decode(found[0] if found else "{}")
    if tree.get("error"):
        raise SandboxRefused("usage", f"only plain SELECT is answered here: {tree.get('error_message', 'it cannot be read')}")
    for name in _functions(tree):
        if _DENIED.match(name.lower()):
            raise SandboxRefused("usage", f"the function {name} is not available here")


def _functions(tree: Any) -> list[str]:
    """Return the names of all functions called anywhere in a serialized statement."""
    names, todo = [], [tree]
    while todo:
        node = todo.pop()
        if isinstance(node, dict):
            name = node.get("function_name")
            if isinstance(name, str):
                names.append(name)
            if node.get("type") == "SHOW_REF" or str(node.get("type", "")).startswith("PRAGMA"):
                names.append("pragma_show")
            todo.extend(node.values())
        elif isinstance(node, list):
            todo.extend(node)
    return names


def _first(error: Exception) -> str:
    """Return an error's text without the pointer into the SQL."""
    return str(error).split("\n\n")[0].strip()[:1_000]


def _plain(value: Any) -> Any:
    """Return what JSON can carry for a type that it does not know: its text."""
    return str(value)


if __name__ == "__main__":
    sys.exit(main())
