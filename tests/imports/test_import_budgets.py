"""Share trees of other schedulers: each rule of each format, files that cannot be understood, and published files of peers."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from apportion.adapters.imports.budgets import formats
from apportion.adapters.imports.budgets.tree import BadTree, Branch, Member, Tree, commands, events, lines
from apportion.core.events import BudgetSet, MemberGranted
from apportion.core.units import PPM
from tests.imports.reading import DATA


def shares(text: str, form: str = "", by: str = "auto") -> dict[str, int]:
    """Return path -> share of its parent."""
    return {line.path: line.share_ppm for line in lines(formats.parse(text, form, by))}


def notes(text: str) -> dict[int, str]:
    """Return the notes by line."""
    tree = formats.parse(text)
    lines(tree)
    return {note.line: note.what for note in tree.notes}


# -- shares and events -------------------------------------------------------------------------------------------------------


@given(st.lists(st.decimals(0, 1_000, places=3), min_size=1, max_size=12), st.decimals(0, 50, places=2))
def test_siblings_and_what_stands_beside_them_add_up_to_the_whole(weights: list[Decimal], beside: Decimal) -> None:
    root = Branch("", 1, children=[Branch(f"b{at}", at, weight) for at, weight in enumerate(weights)], beside=beside)
    found = [line.share_ppm for line in lines(Tree("test", root))]
    total = sum(weights) + beside

    if not total:
        assert set(found) == {0}
    else:
        assert all(abs(share * total - PPM * weight) < total for share, weight in zip(found, weights, strict=True))
        assert sum(found) == PPM if not beside else sum(found) <= PPM


def test_events_make_parents_first_and_carry_members_by_weight() -> None:
    leaf = Branch(
        "b c",
        3,
        members=[Member("ana", "charge", Decimal(5_000), 4), Member("d.e", "administer", Decimal(10_000), 5)],
        users="weighted",
    )
    tree = Tree("test", Branch("", 1, children=[Branch("a", 2, children=[leaf])]))
    budgets = lines(tree, "lab")
    made = list(events(budgets, "h100"))

    assert [(event.budget, event.share_ppm, event.users) for event in made if isinstance(event, BudgetSet)] == [
        ("lab/a", PPM, None),
        ("lab/a/b-c", PPM, "weighted"),
    ]
    assert [(event.member, event.role, event.weight_milli) for event in made if isinstance(event, MemberGranted)] == [
        ("ana", "charge", 500_000), ("d-e", "administer", 1_000_000)
    ]  # fmt: skip
    assert commands(budgets, "h100")[-1] == "apportion member grant lab/a/b-c d-e --role administer --weight 1000"
    assert [note.what for note in tree.notes] == [
        "'b c' becomes 'b-c': a budget's name has letters, digits, '-', '_' and '.'"
    ]


def test_two_names_that_become_one_are_refused() -> None:
    with pytest.raises(BadTree, match="line 3: a-b is there already, from line 2"):
        lines(Tree("test", Branch("", 1, children=[Branch("a b", 2), Branch("a-b", 3)])))


# -- Slurm -------------------------------------------------------------------------------------------------------------------

DUMP = """# comment
Cluster - 'hpc':Fairshare=1:QOS='normal'
Parent - 'root'
User - 'root':DefaultAccount='root':AdminLevel='Administrator':Fairshare=1
Account - 'sci':Description='a: b':Organization='x':Fairshare=59
Account - 'eng':Fairshare=40:GrpTRES=gres/gpu=64
Parent - 'sci'
Account - 'phy':Fairshare=3
User - 'head':Fairshare=1
Parent - 'phy'
User - 'ana':Fairshare=1
User - 'ben':Fairshare=2
Parent - 'eng'
User - 'cy':Fairshare=parent
User - 'di':Fairshare=parent
"""


def test_slurm_accounts_share_with_the_users_beside_them() -> None:
    found = {line.path: line for line in lines(formats.parse(DUMP))}

    assert {path: line.share_ppm for path, line in found.items()} == {
        "sci": 590_000,
        "sci/phy": 750_000,
        "eng": 400_000,
    }
    assert (found["sci/phy"].users, found["eng"].users, found["sci"].users) == ("weighted", "none", None)
    assert [member.name for member in found["sci"].members] == ["head"]
    assert set(notes(DUMP)) == {2, 4, 6, 9}


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("Account - 'sci':Fairshare=5", "line 16: account sci is there twice, also from line 5"),
        ("Parent - 'gone'", "line 16: account gone is a parent before it is there"),
        ("Account - 'x':Fairshare=many", "line 16: Fairshare is 'many', not a number"),
        ("Account: x", "line 16: 'Account: x' is no line of a sacctmgr dump"),
        ("Cluster - 'two':Fairshare=1", "line 16: a second cluster"),
        ("Account - '':Fairshare=1", "line 16: the account has no name"),
    ],
)
def test_slurm_lines_that_cannot_be_understood_are_named(line: str, what: str) -> None:
    with pytest.raises(BadTree, match=what):
        shares(DUMP + line)


def test_users_without_a_parent_line_are_refused() -> None:
    with pytest.raises(BadTree, match="line 1: user ana stands below no Parent line"):
        shares("User - 'ana':Fairshare=1", "slurm")


# -- YARN --------------------------------------------------------------------------------------------------------------------


def test_yarn_queues_share_by_weight_and_root_is_no_budget() -> None:
    text = """<?xml version="1.0"?>
<allocations>
  <queue name="root">
    <queue name="a"><weight>2.5</weight><aclSubmitApps>ana,ben staff</aclSubmitApps>
      <queue name="x"/><pool name="y"><weight>3</weight></pool>
    </queue>
    <queue name="b"><minResources>1024 mb,1 vcores</minResources><weight>1</weight><weight>7.5</weight></queue>
  </queue>
  <queuePlacementPolicy><rule name="default"/></queuePlacementPolicy>
</allocations>"""
    found = {line.path: line for line in lines(formats.parse(text))}

    assert {path: line.share_ppm for path, line in found.items()} == {
        "a": 250_000,
        "a/x": 250_000,
        "a/y": 750_000,
        "b": 750_000,
    }
    assert [(member.name, member.role) for member in found["a"].members] == [("ana", "charge"), ("ben", "charge")]
    assert set(notes(text)) == {4, 7, 9}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("<allocations>\n<queue name='a'>\n</allocations>", "line 3: the XML is broken: mismatched tag"),
        (
            "<allocations>\n<queue name='a'><weight>much</weight></queue></allocations>",
            "line 2: the weight of queue a is 'much'",
        ),
        ("<allocations>\n\n<queue/></allocations>", "line 3: a <queue> without a name"),
        ("<allocations><queue name='a.b'/></allocations>", "a dot in its name"),
        ("<configuration/>", "begins with <configuration>"),
        ("<allocations>\n<queue name='a'/><queue name='a'/></allocations>", "line 2: a is there already"),
        ("<!DOCTYPE x [<!ENTITY a 'b'>]>\n<allocations/>", "line 1: the file declares a document type"),
        ("<allocations>" + "<queue name='a'>" * 100, "more than 64"),
        ("<", "the XML is broken"),
    ],
)
def test_yarn_files_that_cannot_be_understood_are_named(text: str, what: str) -> None:
    with pytest.raises(BadTree, match=what):
        shares(text)


# -- Kueue and KAI -----------------------------------------------------------------------------------------------------------


def cluster_queue(name: str, cohort: str = "", gpus: str = "", weight: str = "") -> str:
    quota = (
        f"\n  resourceGroups: [{{flavors: [{{name: f, resources: [{{name: nvidia.com/gpu, nominalQuota: {gpus}}}]}}]}}]"
        if gpus
        else ""
    )
    fair = f"\n  fairSharing: {{weight: {weight}}}" if weight else ""
    above = f"\n  cohort: {cohort}" if cohort else ""
    head = f"---\napiVersion: kueue.x-k8s.io/v1beta1\nkind: ClusterQueue\nmetadata: {{name: {name}}}\nspec:"
    return f"{head}\n  namespaceSelector: {{}}{above}{fair}{quota}\n"


def cohort(name: str, parent: str = "") -> str:
    above = f"spec: {{parentName: {parent}}}" if parent else "spec: {}"
    return f"---\napiVersion: kueue.x-k8s.io/v1beta2\nkind: Cohort\nmetadata: {{name: {name}}}\n{above}\n"


def test_kueue_shares_by_guaranteed_gpus_else_by_weight() -> None:
    text = (
        cluster_queue("a", "org", gpus="6")
        + cluster_queue("b", "org", gpus="2")
        + cluster_queue("c", "lab", weight="3")
        + cluster_queue("d", "lab")
    )

    assert shares(text) == {
        "org": PPM,
        "org/a": 750_000,
        "org/b": 250_000,
        "lab": 0,
        "lab/c": 750_000,
        "lab/d": 250_000,
    }
    assert shares(text, by="weight") == {
        "org": 500_000,
        "org/a": 500_000,
        "org/b": 500_000,
        "lab": 500_000,
        "lab/c": 750_000,
        "lab/d": 250_000,
    }


def test_kueue_cohorts_stand_inside_cohorts_and_need_not_be_declared() -> None:
    text = cohort("res", "org") + cohort("eng", "org") + cluster_queue("a", "res") + cluster_queue("alone")

    assert shares(text) == {"alone": 500_000, "org": 500_000, "org/res": 500_000, "org/res/a": PPM, "org/eng": 500_000}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (cohort("a", "b") + cohort("b", "a"), "is below itself"),
        (cluster_queue("a") + cluster_queue("a"), "ClusterQueue a is there twice, also from line 2"),
        (cluster_queue("a", gpus="many"), "a quantity is 'many', not a number"),
        ("apiVersion: kueue.x-k8s.io/v1beta2\nkind: ClusterQueue\nspec: {}", "has no metadata.name"),
        (
            "apiVersion: kueue.x-k8s.io/v1beta2\nkind: ResourceFlavor\nmetadata: {name: f}",
            "no ClusterQueue and no Cohort",
        ),
        ("a: [1\nb: 2", "line 2: the YAML is broken"),
        ("a: &x [1]\nb: *x", r"line 2: the alias \*x"),
        ("a: 1\na: 2", "line 2: 'a' is there twice"),
        ("kind: Pod\nmetadata: {name: x}", "it holds Pod and no queue"),
        ("name: {{ .Name }}", "line 1: this is a template"),
        ("a: \x00", "a character that YAML does not allow"),
        ("a: 1\nb: " + "[" * 20_000, "line 2: nested too deeply"),
        ("".join(f"{' ' * depth}a:\n" for depth in range(200)), "line 6[45]: nested too deeply"),
        ("just words", "no share tree"),
        ("", "no share tree"),
    ],
)
def test_yaml_that_cannot_be_understood_is_named(text: str, what: str) -> None:
    with pytest.raises(BadTree, match=what):
        shares(text)


def kai_queue(name: str, parent: str = "", quota: str = "0", weight: str = "1") -> str:
    above = f"  parentQueue: {parent}\n" if parent else ""
    gpu = f"    gpu: {{quota: {quota}, overQuotaWeight: {weight}, limit: -1}}\n"
    return f"---\napiVersion: scheduling.run.ai/v2\nkind: Queue\nmetadata:\n  name: {name}\nspec:\n{above}  resources:\n{gpu}"


def test_kai_shares_by_quota_else_by_weight() -> None:
    text = (
        kai_queue("dep")
        + kai_queue("a", "dep", "1.5")
        + kai_queue("b", "dep", "0.5")
        + kai_queue("x", "a", weight="3")
        + kai_queue("y", "a")
    )

    assert shares(text) == {"dep": PPM, "dep/a": 750_000, "dep/a/x": 750_000, "dep/a/y": 250_000, "dep/b": 250_000}


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (kai_queue("a", "gone"), "line 7: queue a is below gone, which is not in the file"),
        (kai_queue("a", "b") + kai_queue("b", "a"), "is below itself"),
        (kai_queue("a") + kai_queue("a"), "queue a is there twice"),
        (kai_queue("a", quota="-3"), "quota of queue a is -3"),
    ],
)
def test_kai_queues_that_cannot_be_understood_are_named(text: str, what: str) -> None:
    with pytest.raises(BadTree, match=what):
        shares(text)


@settings(deadline=None)
@given(
    st.sampled_from(
        [
            DUMP,
            cluster_queue("a", "o", "3") + cohort("o"),
            kai_queue("a") + kai_queue("b", "a"),
            "<allocations><queue name='a'/></allocations>",
        ]
    ),
    st.data(),
)
def test_no_text_ends_in_anything_but_a_tree_or_a_reason(text: str, data: st.DataObject) -> None:
    for _ in range(data.draw(st.integers(0, 6))):
        at = data.draw(st.integers(0, len(text)))
        cut = data.draw(st.integers(0, 12))
        text = text[:at] + data.draw(st.text(max_size=4)) + text[at + cut :]
    for form in ("", *formats.FORMATS):
        try:
            found = lines(formats.parse(text, form))
        except BadTree:
            continue
        assert all(0 <= line.share_ppm <= PPM for line in found)


# -- published files of peers ------------------------------------------------------------------------------------------------

THIRD, HALF = (
    {"ai-for-humanity-foundation": 333_334, "orphan-cohort-for-testing": 333_333, "organization": 333_333},
    500_000,
)
DEPARTMENT = {"training-department": PPM, "training-department/team-a": HALF, "training-department/team-b": HALF}
PEERS: dict[str, dict[str, int] | str] = {
    "conf-hadoop-fair/zhengxle.xml": {"azkaban": 200_000, "zeepelin": 700_000, "default": 100_000},
    "conf-hadoop-fair/rjeka.xml": {"Marketing": HALF, "Engineering": HALF},
    "conf-hadoop-fair/chali.xml": {},
    "conf-hadoop-fair/sy0218.xml": {},
    "conf-hadoop-fair/cmri-mr1.xml": dict.fromkeys(("default", "1_LoadQueue", "2_QueryQueue", "3_MaintainQueue"), 250_000),
    "conf-hadoop-fair/codingcat-mr1.xml": {"queue1": HALF, "queue2": HALF},
    "conf-hadoop-fair/steidsen-mr1.xml": "the XML is broken",
    "conf-kai/docs-default-queues.yaml": {"default-parent-queue": PPM, "default-parent-queue/default-queue": PPM},
    "conf-kai/examples-default-queues.yaml": {"default-parent-queue": PPM, "default-parent-queue/default-queue": PPM},
    "conf-kai/tbf/queues.yaml": DEPARTMENT,
    "conf-kai/tbf/simulation-config.yaml": DEPARTMENT,
    "conf-kai/tbf/example_config.yaml": {"default": PPM, "default/team-a": HALF, "default/team-b": HALF},
    "conf-kai/tbf/jobs.yaml": "it holds Pod and no queue",
    "conf-kai/scheduling.run.ai_queues.yaml": "it holds CustomResourceDefinition and no queue",
    "conf-kai/base_kwok_managed_nodepool.yaml": "it holds NodePool and no queue",
    "conf-kai/fairshare-simulator-example.http": "line 2: the YAML is broken",
    "conf-kueue/01.5-cohorts.yaml": {**THIRD, "organization/research": HALF, "organization/engineering": HALF},
    "conf-kueue/single-clusterqueue-setup.yaml": {"cluster-queue": PPM},
    "conf-kueue/podgroups-cluster-queue.yaml": "line 4: this is a template",
    **{f"conf-kueue/perf/{name}.yaml": "no share tree" for name in (
        "baseline-generator", "baseline-rangespec", "large-scale-generator", "large-scale-rangespec",
        "tas-generator", "tas-rangespec"
    )},
    "conf-slurm/vpenso/accounts.sacctmgr-dump.conf": {"borg": 99_990, "klingon": 99_990, "ufp": 799_920},
    "conf-slurm/ohn/user_settings.conf": "settings for a script",
    "conf-slurm/deepops/slurm.conf.j2": "line 11: this is a template",
    "conf-slurm/deepops/gres.conf": "this is a template",
    **{f"conf-slurm/{name}": "holds no share" for name in (
        "vpenso/slurm.conf", "power9/slurm.conf", "elcapitan/slurm.conf", "schedmd/slurm.conf.example"
    )},
}  # fmt: skip


@pytest.mark.parametrize("name", PEERS)
def test_published_files_are_the_tree_their_reader_expects_or_a_reason(name: str) -> None:
    path, expected = DATA / name, PEERS[name]
    if not path.is_file():
        pytest.skip(f"{path} is not at hand")
    text = path.read_text(encoding="utf-8")
    if isinstance(expected, str):
        with pytest.raises(BadTree, match=expected):
            shares(text)
    else:
        assert shares(text) == expected


@pytest.mark.skipif(not (DATA / "conf-kueue").is_dir(), reason="the published files are no part of the project")
def test_a_published_slip_is_understood_as_written_and_asked_about() -> None:
    """Its GPU quota is ``1Gi``, 1,073,741,824 GPUs as Kubernetes reads it: by quota that queue has all."""
    text = (DATA / "conf-kueue" / "01-cluster-queues.yaml").read_text(encoding="utf-8")
    foundation = "ai-for-humanity-foundation"

    assert shares(text)[f"{foundation}/emergency-cluster-queue"] == PPM
    by_weight = shares(text, by="weight")
    assert [by_weight[f"{foundation}/{name}-cluster-queue"] for name in ("emergency", "agi", "llm")] == [
        333_334,
        333_333,
        333_333,
    ]
    assert "1,073,741,824 GPUs; is that meant?" in notes(text)[31]


@pytest.mark.skipif(not (DATA / "conf-kai").is_dir(), reason="the published files are no part of the project")
def test_any_other_published_file_is_a_tree_or_a_reason_too() -> None:
    for folder in ("conf-hadoop-fair", "conf-kai", "conf-kueue", "conf-slurm"):
        for path in sorted((DATA / folder).rglob("*")):
            if path.is_file():
                try:
                    found = shares(path.read_text(encoding="utf-8"))
                except BadTree:
                    continue
                assert all(0 <= share <= PPM for share in found.values()), path


def test_every_path_is_one_the_core_takes(tmp_path: Path) -> None:
    text = "<allocations><queue name='-ä b/c '/><queue name='ok'/></allocations>"
    made = list(events(lines(formats.parse(text)), "p"))

    import msgspec

    assert [msgspec.convert(msgspec.to_builtins(event), type(event)) for event in made] == made
