"""deploy/nats.conf with its archivist uncommented: that user cuts the log, agents find what is kept, nobody else may do either."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from apportion.adapters.archiving.cutting.plan import plan
from apportion.adapters.archiving.writing import write
from apportion.adapters.bus import topology
from apportion.adapters.bus.connection import Connection
from apportion.adapters.bus.kept import kept_record
from apportion.adapters.bus.local import Bus
from apportion.adapters.cli.main import run
from tests.adapters.test_deploy_nats import DEPLOY, ROLES, allowed, serving
from tests.archived import played

EVERYBODY = '{ user: "filler", password: "secret-APPORTION_FILLER_PASSWORD" }'  # plays all principals of a history


def uncommented(text: str) -> str:
    """Return the configuration with the archivist, and with a user for the test."""
    block = re.search(r"^      # \{\n(      # .*\n)*?      # \}\n", text, re.MULTILINE)
    assert block is not None
    plain = re.sub(r"^      # ", "      ", block.group(0), flags=re.MULTILINE)
    return text.replace(block.group(0), plain + EVERYBODY + "\n")


def test_the_archivist_cuts_and_agents_find_what_is_kept(tmp_path: Path, run_async: Any, capfd: pytest.CaptureFixture[str]) -> None:
    configuration = tmp_path / "nats.conf"
    configuration.write_text(uncommented((DEPLOY / "nats.conf").read_text()))
    history, archive = played(7, rough=False, hours=76), tmp_path / "archive"

    async def fill(url: str, admin: str) -> tuple[int, int]:
        async with await Connection.open(admin, name="admin") as connection:
            await topology.create(connection, max_file_bytes=64 * 1024**2)
        async with await Bus.open(url) as bus:
            await bus.publisher.send_many((record.subject, record.body, f"r{record.seq}") for record in history.records)
            await bus.publisher.flush()
            for batch in history.batches:
                await bus.decisions.commit(batch.body, batch.input_seq, batch.seq - 1)
            await write(bus.events, bus.decisions, archive)
            wanted = await plan(bus.connection, archive, 2)
            assert wanted is not None
            return wanted.events.cut_seq, wanted.open.seqs[0]

    async def look(agent: str, seq: int) -> tuple[int, bytes | None]:
        async with await Connection.open(agent, name="agent") as connection:
            state = (await topology.stream_info(connection, "EVENTS")).state
            return state.first_seq, await kept_record(connection, seq)

    with serving(tmp_path, configuration) as url_of:
        cut_seq, kept_seq = run_async(fill(url_of("filler"), url_of("admin")), 240.0)
        assert run(["archive", "cut", str(archive), "--keep", "2", "--server", url_of("archivist"), "--json"]) == 0
        assert json.loads(capfd.readouterr().out)["cut_seq"] == cut_seq
        found: Any = run_async(look(url_of("agent-node-1"), kept_seq))
        assert found == (cut_seq + 1, history.records[kept_seq - 1].body)
        for role in ROLES:
            for subject in ("$JS.API.STREAM.UPDATE.EVENTS", "$JS.API.STREAM.PURGE.KEPT", "ap.kept.record.1"):
                assert not run_async(allowed(url_of(role), subject)), (role, subject)
        for subject in ("$JS.API.STREAM.DELETE.EVENTS", "$JS.API.STREAM.PURGE.EVENTS", "ap.ev.ops.note.made", "ap.dec.cycle"):
            assert not run_async(allowed(url_of("archivist"), subject)), subject
