"""The kernels of this build, compiled by one process before several need them at once.

Decides whether that is to be done: a mark beside the machine code says that it was, for this build. Whoever starts several
processes asks ``is_needed``, says so to who waits, and lets ``compile_kernels`` have it done. The compiler takes half a gibibyte
and about a minute, and each process that finds no machine code takes both; the one that ends gives its memory back.

It never compiles in the process that asks, and decides nothing of what a kernel is; a build whose kernels are in the cache loses
seconds, once. Naive would be to let the first process compile: kernels are compiled when they are first called, which is late.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from apportion.adapters.processes.build import build_id, kernels_directory
from apportion.core.errors import ApportionError

COMPILER = ("-m", "apportion.adapters.demo.rehearsal")
LAST_LINES = 8


class NotCompiled(ApportionError):
    """The process that compiles has failed; what it said is in the message."""


def is_needed(*, plans: bool = False) -> bool:
    """Tell whether the kernels of this build have to be compiled; ``plans``: those of the rolling plan too."""
    return not os.environ.get("NUMBA_DISABLE_JIT") and not _mark(plans=plans).exists()


async def compile_kernels(*, plans: bool = False) -> float:
    """Have the kernels compiled; returns the seconds that took. Whoever gives up waiting ends the process that compiles."""
    began_s = time.monotonic()
    process = await asyncio.create_subprocess_exec(
        sys.executable, *COMPILER, *(["--plans"] if plans else []),
        stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    try:
        _nothing, said = await process.communicate()
    except asyncio.CancelledError:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()
        raise
    if process.returncode:
        lines = said.decode(errors="replace").splitlines()[-LAST_LINES:]
        raise NotCompiled("\n".join([f"the kernels could not be compiled (exit code {process.returncode}):", *lines]))
    return time.monotonic() - began_s


@contextlib.contextmanager
def compiled_once(*, plans: bool) -> Iterator[bool]:
    """Hold the right to compile for this build; yields whether it is still to be done, and leaves the mark when that went well."""
    mark = _mark(plans=plans)
    mark.parent.mkdir(parents=True, exist_ok=True)
    with (mark.parent / "compiling.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # who comes second waits, and finds all done
        yield not mark.exists()
        mark.touch()


def _mark(*, plans: bool) -> Path:
    return kernels_directory() / f"compiled-{build_id()}{'-plans' if plans else ''}"
