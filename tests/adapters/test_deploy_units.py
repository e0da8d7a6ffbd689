"""What is deployed calls the program as it is: verbs and options that exist, files that are there, one name per secret."""

from __future__ import annotations

import re
import shlex
from configparser import RawConfigParser
from pathlib import Path

import pytest
from typer.testing import CliRunner

from apportion.adapters.cli.main import app

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
PROGRAM = "/opt/apportion/.venv/bin/apportion"


def commands() -> list[tuple[str, list[str]]]:
    """Return every command line of the program in units and compose file, with the place it stands in."""
    found = []
    for unit in UNITS:
        line = option(unit, "Service", "ExecStart")
        if line.startswith(PROGRAM + " "):
            found.append((unit.name, shlex.split(line)[1:]))
    compose = (DEPLOY / "compose.yaml").read_text()
    services = re.findall(r"image: apportion\n\s+command: \[(.*)\]", compose)
    return found + [("compose.yaml", [part.strip(' "') for part in line.split(",")]) for line in services]


def option(unit: Path, section: str, name: str) -> str:
    parser = RawConfigParser(strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # keys keep their case
    parser.read(unit)
    return parser.get(section, name)


@pytest.mark.parametrize(("place", "command"), commands())
def test_every_command_exists_with_its_options(place: str, command: list[str]) -> None:
    shown = CliRunner().invoke(app, [command[0], "--help"])

    assert shown.exit_code == 0, f"{place}: no verb {command[0]}"
    for word in command[1:]:
        if word.startswith("--"):
            assert word in shown.output, f"{place}: {command[0]} has no option {word}"


def test_every_process_is_deployed() -> None:
    verbs = {command[0] for _place, command in commands()}

    assert verbs == {"serve", "project", "ingress", "agent"}
    assert sum("--standby" in command for _place, command in commands()) == 2


@pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.name)
def test_every_unit_is_restarted_for_ever_and_tells_what_it_is(unit: Path) -> None:
    assert unit.read_text().startswith("# ")
    assert option(unit, "Service", "Restart") == "always"
    assert option(unit, "Install", "WantedBy") == "multi-user.target"


def test_runs_outlive_their_agent() -> None:
    assert option(DEPLOY / "systemd" / "apportion-agent.service", "Service", "KillMode") == "process"


def test_every_value_of_the_environment_is_listed() -> None:
    listed = set(re.findall(r"^(APPORTION_\w+)=", (DEPLOY / "nats.env.example").read_text(), re.MULTILINE))
    conf = set(re.findall(r"\$(APPORTION_\w+)", (DEPLOY / "nats.conf").read_text()))
    compose = set(re.findall(r"\$\{(APPORTION_\w+)\}", (DEPLOY / "compose.yaml").read_text()))

    assert conf == listed
    assert compose <= listed
