"""The entry point: all verbs in their sections, and one place where errors become messages and exit codes.

Composes; decides nothing. Every module it imports here is light; what a verb needs is imported when it runs.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from apportion.adapters.cli import (
    archives,
    auditing,
    budgets,
    checks,
    comparing,
    events,
    forecasting,
    importing,
    jobs,
    local,
    nodes,
    plans,
    policies,
    proving,
    querying,
    queue,
    services,
    sharing,
    statements,
    status,
    usage,
    what_fits,
    what_if,
    writes,
)
from apportion.adapters.cli.failure import FAILED, INTERRUPTED, USAGE, Failure
from apportion.adapters.cli.output import show_failure
from apportion.adapters.cli.verbs import silence_stdout

SECTIONS = ("Look", "Act", "Budgets and members", "Nodes", "Check and replay", "Run it", "Help")


class Sections(TyperGroup):
    """The help of the whole program: verbs under headings, in the order people meet them."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write one block per heading."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        shown = [(name, command) for name, command in commands if command is not None and not command.hidden]
        for heading in SECTIONS:
            rows = [
                (name, (command.help or "").strip().split("\n")[0])
                for name, command in shown
                if getattr(command, "rich_help_panel", None) == heading
            ]
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows, col_max=20)


app = typer.Typer(
    name="apportion",
    cls=Sections,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    help="Budgets of GPU time for shared clusters: submit work, see why it waits, who burned what, and prove it.",
    epilog="Start with `apportion up` or `apportion demo`. All reads take --json, --csv, --at TIME and --seq N.",
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"apportion {version('apportion')}")
        raise typer.Exit


@app.callback()
def _root(
    directory: Annotated[
        str | None, typer.Option("--dir", metavar="DIR", help="The installation's directory, for any verb")
    ] = None,
    _shown: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version and exit")
    ] = False,
) -> None:
    if directory is not None:
        os.environ["APPORTION_DIR"] = directory


MODULES = (
    status, queue, usage, querying, what_fits, sharing, plans, jobs, services, writes, budgets, statements, nodes, policies,
    events, proving, checks, archives, auditing, importing, comparing, what_if, local, forecasting,
)  # in the order of the help
for module in MODULES:
    module.add_to(app)


@functools.cache
def command() -> Any:
    """Return the whole program as one command."""
    return typer.main.get_command(app)


def run(arguments: Sequence[str]) -> int:
    """Run one command line and return its exit code; nothing is raised for a user's error."""
    as_json = "--json" in arguments
    try:
        result = command()(list(arguments), prog_name="apportion", standalone_mode=False)
        sys.stdout.flush()
    except KeyboardInterrupt:
        show_failure(Failure(INTERRUPTED, "interrupted"), as_json=as_json)
        return INTERRUPTED
    except BrokenPipeError:
        silence_stdout()
        return 0
    except Failure as failure:
        show_failure(failure, as_json=as_json)
        return failure.code
    except typer.Abort:
        return FAILED
    except Exception as error:  # usage errors of the parser, and errors our own packages explain in words
        failure_of = explained(error)
        if failure_of is None:
            raise
        show_failure(failure_of, as_json=as_json)
        return failure_of.code
    if result == INTERRUPTED:  # the parser has caught it
        show_failure(Failure(INTERRUPTED, "interrupted"), as_json=as_json)
    return result if isinstance(result, int) else 0


def explained(error: Exception) -> Failure | None:
    """Return an error that needs no traceback as a failure, or None."""
    from apportion.core.errors import ApportionError

    if hasattr(error, "format_message") and hasattr(error, "exit_code"):
        context = getattr(error, "ctx", None)
        if type(error).__name__ == "NoArgsIsHelpError":
            return Failure(USAGE, f"a verb is missing\n\n{error.format_message()}".rstrip())
        do = f"`{context.command_path} --help`" if context is not None else "`apportion --help`"
        return Failure(int(error.exit_code), str(error.format_message()), do)
    if isinstance(error, ApportionError):
        return Failure(FAILED, str(error))
    return None


def main() -> int:
    """Run the command line of this process and return its exit code.

    Whoever is told to end ends as one who is interrupted, so that a server that was started for a question does not stay.
    Processes that run on have handlers of their own.
    """
    signal.signal(signal.SIGTERM, _interrupt)
    code = run(sys.argv[1:])
    if code == INTERRUPTED:
        from apportion.adapters.cli.interrupting import leave

        leave()
    return code


def _interrupt(_number: int, _frame: object) -> None:
    if not callable(signal.getsignal(signal.SIGINT)):  # it is ignored, as that of a command in the background is
        raise KeyboardInterrupt
    signal.raise_signal(signal.SIGINT)


if __name__ == "__main__":
    sys.exit(main())
