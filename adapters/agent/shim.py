r"""The supervisor of one run: a small process that starts the command, outlives the agent, and keeps its exit status.

It decides nothing but when the processes of its run are gone. Run as ``python -I -S shim.py RUN_DIR``; it imports
nothing of this package, so that it starts in a few milliseconds and an upgrade of the agent cannot break a running
one. The agent reads its files; nobody else acts on them::

    run.json      written by the agent before: command, env, cwd, grace_ms
    lock          held (flock) as long as this process lives
    control       FIFO; a reader on it means: the supervisor lives. The agent writes "stop <grace_ms>\n"
    started.json  pid of the command and its start time, on disk before the command may run
    exit.json     exit code, on disk after the last process of the run is gone

It must never start the command twice (``lock``, then ``started.json``), never signal a process that is not of the run,
and never report an end while one of them is alive: as the subreaper of its descendants it also ends those that left
the command's session, which launchers of distributed training do.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

LEFTOVER_GRACE_MS = 2_000  # what helpers of a command that ended by itself get before SIGKILL
KILL_AGAIN_S = 0.1  # doubled each time: a process in an uninterruptible wait can take its time
KILL_AGAIN_MAX_S = 2.0
WRITE_TRIES = 60  # one a second, for a disk that is full for a while
PR_SET_CHILD_SUBREAPER = 36


def write_durably(path: str, data: bytes) -> None:
    """Write a file so that after a crash it is as before, or whole."""
    temporary = path + ".tmp"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        written = 0
        while written < len(data):
            written += os.write(descriptor, data[written:])
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.rename(temporary, path)
    folder = os.open(os.path.dirname(path), os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def start_ticks(pid: int) -> int:
    """Return the start time of a living process in clock ticks since boot; 0 when it is gone or a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            fields = stat.read().rpartition(b")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] == b"Z" else int(fields[19])


def boot_id() -> str:
    """Return what names this boot of the machine; empty where the system does not tell."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as source:
            return source.read().strip()
    except OSError:
        return ""


def become_subreaper() -> bool:
    """Let orphaned descendants become our children instead of init's; return False where the system cannot."""
    try:
        import ctypes

        return bool(ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0)
    except Exception:  # another system or libc: still right for commands that stay in their group
        return False


def refusal(spec: dict[str, Any]) -> str:
    """Say why the command cannot be started, as far as can be known before trying; empty when it seems possible."""
    command, cwd, env = spec["command"], spec["cwd"], spec["env"]
    if not command or not command[0]:
        return "the workload has no command; submit it with one: apportion submit ... -- COMMAND"
    if any("\0" in part for part in command) or any("\0" in k + v or "=" in k or not k for k, v in env.items()):
        return "the command or its environment holds a NUL character or a variable name with '='"
    if not os.path.isdir(cwd):
        return f"the working directory {cwd!r} does not exist on this node; submit from one that does"
    if not os.access(cwd, os.X_OK):
        return f"the working directory {cwd!r} may not be entered by the agent's user"
    return ""


class Supervisor:
    """Starts one command and watches over its processes to the last."""

    def __init__(self, run_dir: str, spec: dict[str, Any]) -> None:
        self.run_dir = run_dir
        self.spec = spec
        self.pid = 0
        self.status: int | None = None  # of the command itself
        self.signalled = False  # SIGTERM was sent while the command still ran
        self.killed = False
        self.kill_at: float | None = None
        self.kill_again_s = KILL_AGAIN_S
        self.asked = False  # somebody sent this process SIGTERM
        self.begun = time.monotonic()
        self.is_reaper = become_subreaper()
        self.control = self._open_control()
        self.wake, wake_w = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wake_w, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for ending in (signal.SIGTERM, signal.SIGINT):  # a shutdown of the machine asks: same as an order
            signal.signal(ending, self._on_asked)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)

    def _on_asked(self, *_: object) -> None:
        self.asked = True

    def _open_control(self) -> int:
        path = os.path.join(self.run_dir, "control")
        with contextlib.suppress(FileExistsError):
            os.mkfifo(path, 0o600)
        return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)  # our own writer: it never reads as closed

    def start(self) -> str:
        """Start the command; return an empty text, or why it could not be started."""
        go_r, go_w = os.pipe2(os.O_CLOEXEC)
        error_r, error_w = os.pipe2(os.O_CLOEXEC)
        self.pid = os.fork()
        if self.pid == 0:
            os.close(go_w)
            self._become_command(go_r, error_w)
        os.close(go_r)
        os.close(error_w)
        started = {"pid": self.pid, "start": start_ticks(self.pid), "boot": boot_id(), "shim_pid": os.getpid()}
        write_durably(os.path.join(self.run_dir, "started.json"), json.dumps(started).encode())
        os.write(go_w, b"g")
        os.close(go_w)
        failure = b""
        while chunk := os.read(error_r, 4_096):
            failure += chunk
        os.close(error_r)
        if failure:
            os.waitpid(self.pid, 0)
            where, _, number = failure.decode().rpartition(" ")
            return f"{where} failed: {os.strerror(int(number))} ({self.spec['command'][0]!r} in {self.spec['cwd']!r})"
        return ""

    def _become_command(self, go: int, error: int) -> None:
        """In the child: own session, output to files, wait for the word, become the command. Never returns."""
        step = "preparing"
        try:
            os.setsid()
            for name, descriptor in (("stdout", 1), ("stderr", 2)):
                path = os.path.join(self.run_dir, name)
                output = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
                os.dup2(output, descriptor)
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
            signal.set_wakeup_fd(-1)
            for changed in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
                signal.signal(changed, signal.SIG_DFL)
            if os.read(go, 1) != b"g":  # the supervisor died before the pid was on disk: this run was never started
                os._exit(125)
            step = "entering the working directory"
            os.chdir(self.spec["cwd"])
            step = "starting the command"
            os.execvpe(self.spec["command"][0], self.spec["command"], self.spec["env"])
        except OSError as failure:
            os.write(error, f"{step} {failure.errno or errno.EINVAL}".encode())
        finally:
            os._exit(127)

    def stop(self, grace_ms: int) -> None:
        """SIGTERM to the command's group now, SIGKILL after ``grace_ms``. Repeats only ever bring the end nearer."""
        deadline = time.monotonic() + grace_ms / 1_000
        if self.kill_at is None:
            self.reap()
            if self.status is None:
                self.signalled = True
            self._signal_group(signal.SIGTERM)
        self.kill_at = deadline if self.kill_at is None else min(self.kill_at, deadline)

    def watch(self) -> None:
        """Return when the last process of the run is gone."""
        poll = select.poll()
        poll.register(self.control, select.POLLIN)
        poll.register(self.wake, select.POLLIN)
        while not self.reap():
            if self.asked and self.kill_at is None:
                self.stop(int(self.spec["grace_ms"]))
            if self.status is not None and self.kill_at is None:  # the command ended, helpers of it did not
                self._signal_all(signal.SIGTERM)
                self.kill_at = time.monotonic() + LEFTOVER_GRACE_MS / 1_000
            timeout_s: float | None = None
            if self.kill_at is not None:
                timeout_s = self.kill_at - time.monotonic()
                if timeout_s <= 0:
                    self.killed = self.killed or self.status is None
                    self._signal_all(signal.SIGKILL)
                    timeout_s = self.kill_again_s  # descendants of the killed become ours, and are killed next time
                    self.kill_again_s = min(KILL_AGAIN_MAX_S, 2 * timeout_s)
            for descriptor, _events in poll.poll(None if timeout_s is None else timeout_s * 1_000 + 1):
                self._read(descriptor)

    def reap(self) -> bool:
        """Collect ended children; return True when none is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return self.is_reaper or not self._group_alive()
            if pid == 0:
                return False
            if pid == self.pid:
                self.status = os.waitstatus_to_exitcode(status)

    def _read(self, descriptor: int) -> None:
        try:
            text = os.read(descriptor, 4_096)
        except BlockingIOError:
            return
        if descriptor != self.control:
            return
        for line in text.decode("ascii", "replace").splitlines():
            verb, _, number = line.partition(" ")
            if verb == "stop" and number.isdigit():
                self.stop(int(number))

    def _group_alive(self) -> bool:
        try:
            os.killpg(self.pid, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True

    def _signal_group(self, how: signal.Signals) -> None:
        try:
            os.killpg(self.pid, how)
        except (ProcessLookupError, PermissionError):
            return

    def _signal_all(self, how: signal.Signals) -> None:
        """Signal the command's group and every descendant that left it."""
        if self.status is None or not self.is_reaper:  # once reaped, the number of the group is not ours any more
            self._signal_group(how)
        for pid, start in descendants(os.getpid()):
            signal_verified(pid, start, how)


def signal_verified(pid: int, start: int, how: signal.Signals) -> bool:
    """Signal a process only if it is still the one that started at ``start``; a recycled pid is left alone."""
    try:
        handle = os.pidfd_open(pid)  # from here on the handle means one process, whatever becomes of the number
    except OSError:
        return False
    try:
        if start_ticks(pid) != start:
            return False
        signal.pidfd_send_signal(handle, how)
    except (ProcessLookupError, PermissionError):
        return False
    finally:
        os.close(handle)
    return True


def living() -> Iterator[tuple[int, list[bytes]]]:
    """Yield each living process, no zombies: its pid, and the fields of its ``stat`` after the name; nothing without /proc."""
    try:
        names = os.listdir("/proc")
    except OSError:
        return
    for name in names:
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as stat:
                fields = stat.read().rpartition(b")")[2].split()
        except OSError:
            continue
        if fields[0] != b"Z":
            yield int(name), fields


def descendants(root: int) -> list[tuple[int, int]]:
    """Return ``(pid, start ticks)`` of the living descendants of ``root`` from one reading of /proc; [] without it."""
    children: dict[int, list[tuple[int, int]]] = {}
    for pid, fields in living():
        children.setdefault(int(fields[1]), []).append((pid, int(fields[19])))
    found: list[tuple[int, int]] = []
    ahead = [root]
    while ahead:
        below = children.get(ahead.pop(), [])
        found.extend(below)
        ahead.extend(pid for pid, _start in below)
    return found


def main(run_dir: str, ready: Callable[[], None] = lambda: None) -> int:
    """Supervise the run described in ``run_dir``; call ``ready`` when it is known whether the command started."""
    run_dir = os.path.abspath(run_dir)
    lock = os.open(os.path.join(run_dir, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return 0  # another supervisor has this run
    with open(os.path.join(run_dir, "run.json"), encoding="utf-8") as source:
        spec = json.load(source)
    exit_path = os.path.join(run_dir, "exit.json")
    if os.path.exists(exit_path) or os.path.exists(os.path.join(run_dir, "started.json")):
        return 0  # it was started before; what became of it is not ours to know
    refused = refusal(spec)
    if not refused:
        supervisor = Supervisor(run_dir, spec)
        refused = supervisor.start()
    if refused:
        write_exit(exit_path, {"exit_code": 0, "refused": refused})
        ready()
        return 0
    ready()
    supervisor.watch()
    write_exit(
        exit_path,
        {
            "exit_code": supervisor.status if supervisor.status is not None else 0,
            "refused": "",
            "signalled": supervisor.signalled,
            "killed": supervisor.killed,
            "ran_ms": int((time.monotonic() - supervisor.begun) * 1_000),
        },
    )
    return 0


def write_exit(path: str, value: dict[str, Any]) -> None:
    """Write the exit status; a full disk is given a minute, then the run will be known as lost."""
    for left in reversed(range(WRITE_TRIES)):
        try:
            write_durably(path, json.dumps(value).encode())
            return
        except OSError:
            if left == 0:
                raise
            time.sleep(1.0)


def close_ready() -> None:
    """Close the pipe on which the agent waits (our standard output)."""
    nothing = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nothing, 1)
    os.close(nothing)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], close_ready))
