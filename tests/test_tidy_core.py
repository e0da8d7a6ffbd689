"""Rules of determinism, read off the core's source: no floats, no sets iterated, no unstable sorts, njit as agreed.

Each rule is a function of a syntax tree; ``BAD`` and ``GOOD`` show what it must and must not see, since a checker that
stays silent is blind.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

import pytest

from tests import built_on

ROOT = Path(__file__).resolve().parent.parent
MODULES = sorted((ROOT / "core").rglob("*.py"))
KERNELS = sorted((ROOT / "core" / "kernels").rglob("*.py"))

Finding = tuple[int, str]
FLOAT_TYPES = {"float", "complex", "float16", "float32", "float64", "floating", "double", "longdouble"}
FLOAT_CODES = {"f", "d", "f2", "f4", "f8", "<f4", "<f8", "float", "float32", "float64"}
STABLE = {"stable", "mergesort"}  # njit knows the second word only; both are stable for integers
ORDER_FREE = {"sorted", "set", "frozenset", "len", "any", "all", "sum", "bool"}
ORDER_BOUND = {
    "list",
    "tuple",
    "enumerate",
    "iter",
    "next",
    "zip",
    "map",
    "filter",
    "dict",
    "array",
    "fromiter",
    "fromkeys",
    "join",
    "deque",
}
SET_METHODS = {"union", "intersection", "difference", "symmetric_difference", "copy"}
KERNEL_IMPORTS = {"__future__", "typing", "numpy", "numpy.typing", "numba", "apportion.core.units"}
INSTRUCTION = ROOT / "core" / "kernels" / "fetch.py"  # writes one that Numba has no word for, with what Numba writes its own with
COMPILER_IMPORTS = {"llvmlite", "numba.core", "numba.extending"}


def called(node: ast.Call) -> str:
    """Return the last name of what is called: ``np.argsort(x)`` -> ``argsort``."""
    return getattr(node.func, "attr", getattr(node.func, "id", ""))


def code_of(node: ast.AST) -> object:
    """Return the value of a constant: ``'f8'``."""
    return getattr(node, "value", None) if isinstance(node, ast.Constant) else None


def floats(tree: ast.AST) -> Iterator[Finding]:
    """Find everything that makes or names a float."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, float | complex):
            yield node.lineno, f"float literal {node.value}: the core counts in integers (units.py)"
        elif isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.Div):
            yield node.lineno, "true division makes a float: use // or apportion() of units.py"
        elif isinstance(node, ast.Name | ast.Attribute):
            name = node.id if isinstance(node, ast.Name) else node.attr
            if name in FLOAT_TYPES:
                yield node.lineno, f"{name}: no floats in state or in ordering keys"
        elif isinstance(node, ast.keyword) and node.arg == "dtype" and code_of(node.value) in FLOAT_CODES:
            yield node.value.lineno, "dtype of a float: no floats in state"


def sorts(tree: ast.AST) -> Iterator[Finding]:
    """Find sorts whose order of ties depends on the processor."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        name = called(node)
        if name in {"argpartition", "partition"} and not isinstance(node.func, ast.Name) and not on_text(node):
            yield node.lineno, f"{name}: the order of ties depends on the processor; use argsort(kind='stable')"
        numpy_sort = name == "sort" and getattr(getattr(node.func, "value", None), "id", "") in {"np", "numpy"}
        if name == "argsort" or numpy_sort:
            kinds = [word.value for word in node.keywords if word.arg == "kind"]
            if not kinds or not isinstance(kinds[0], ast.Constant) or kinds[0].value not in STABLE:
                yield node.lineno, f"{name} without kind='stable': the order of ties depends on the processor"


def on_text(node: ast.Call) -> bool:
    """Tell whether ``x.partition('#')`` splits text and is not NumPy's."""
    return len(node.args) == 1 and isinstance(node.args[0], ast.Constant) and isinstance(node.args[0].value, str)


def hashes(tree: ast.AST) -> Iterator[Finding]:
    """Find values that differ between processes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {"hash", "id"}:
            yield node.lineno, f"{node.func.id}() differs between processes: order by a natural key"


def names_of_sets(tree: ast.AST) -> set[str]:
    """Return names and attributes that a module annotates as, or assigns from, a set."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign) and is_set_type(node.annotation):
            names.add(name_of(node.target))
        elif isinstance(node, ast.arg) and node.annotation is not None and is_set_type(node.annotation):
            names.add(node.arg)
        elif isinstance(node, ast.Assign) and is_set(node.value, names):
            names.update(name_of(target) for target in node.targets)
    return names - {""}


def name_of(node: ast.AST) -> str:
    return getattr(node, "id", getattr(node, "attr", ""))


def is_set_type(node: ast.AST) -> bool:
    base = node.value if isinstance(node, ast.Subscript) else node
    return name_of(base) in {"set", "frozenset", "Set", "AbstractSet", "FrozenSet", "MutableSet"}


def is_set(node: ast.AST, names: set[str]) -> bool:
    """Tell whether an expression is a set, as far as its text shows."""
    if isinstance(node, ast.Set | ast.SetComp):
        return True
    if isinstance(node, ast.Name | ast.Attribute):
        return name_of(node) in names
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr | ast.BitAnd | ast.Sub | ast.BitXor):
        sides = (node.left, node.right)
        return any(is_set(side, names) or (isinstance(side, ast.Call) and called(side) == "keys") for side in sides)
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Name):
            return node.func.id in {"set", "frozenset"}
        return called(node) in SET_METHODS and is_set(getattr(node.func, "value", node.func), names)
    return False


def sets(tree: ast.AST) -> Iterator[Finding]:
    """Find places where the order of a set's members can be seen."""
    names = names_of_sets(tree)
    why = "the order of a set changes with PYTHONHASHSEED: iterate sorted(...), or keep a dict"
    free = {
        generator.iter
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and called(node) in ORDER_FREE
        for argument in node.args
        if isinstance(argument, ast.GeneratorExp | ast.ListComp)
        for generator in argument.generators
    } | {generator.iter for node in ast.walk(tree) if isinstance(node, ast.SetComp) for generator in node.generators}
    for node in ast.walk(tree):
        if isinstance(node, ast.For) and is_set(node.iter, names):
            yield node.lineno, why
        elif isinstance(node, ast.comprehension) and node.iter not in free and is_set(node.iter, names):
            yield node.iter.lineno, why
        elif isinstance(node, ast.Starred) and is_set(node.value, names):
            yield node.lineno, why
        elif isinstance(node, ast.Call):
            if called(node) in ORDER_BOUND and any(is_set(argument, names) for argument in node.args):
                yield node.lineno, why
            elif called(node) in {"min", "max"} and node.args and is_set(node.args[0], names) and node.keywords:
                yield (
                    node.lineno,
                    "min or max of a set with a key: ties go by the set's order; end the key in a unique id",
                )
            elif called(node) == "pop" and not node.args and is_set(getattr(node.func, "value", node.func), names):
                yield node.lineno, "set.pop takes any member: " + why


def jits(tree: ast.AST) -> Iterator[Finding]:
    """Find kernels compiled otherwise than ``@njit(cache=True)``."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.FunctionDef):
            continue
        for decorator in node.decorator_list:
            call = decorator if isinstance(decorator, ast.Call) else None
            name = called(call) if call else name_of(decorator)
            if name in {"jit", "vectorize", "guvectorize", "stencil", "cfunc", "generated_jit"}:
                yield decorator.lineno, f"@{name}: kernels are @njit(cache=True), so that there is one meaning of them"
            elif name == "njit":
                words = {word.arg: getattr(word.value, "value", None) for word in call.keywords} if call else {}
                if words.get("cache") is not True:
                    yield decorator.lineno, "@njit without cache=True: every start would compile again"
                for word in ("fastmath", "parallel"):
                    if words.get(word):
                        yield decorator.lineno, f"@njit({word}): results may differ between machines"


def kernel_imports(tree: ast.AST, more: Collection[str] = ()) -> Iterator[Finding]:
    """Find imports a kernel file must not have, but for these ``more``: Numba's cache does not see a change in another file.

    It may use another kernel file whose hash it tells in ``BUILT_ON``: so it changes with it, and is compiled anew.
    """
    told, above = built_on.told_in(tree), "apportion.core.kernels."
    for node in ast.walk(tree):
        modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            modules = [node.module or ""]
            if node.module == "apportion.core.kernels":
                modules = [f"{node.module}.{alias.name}" for alias in node.names]
        for module in modules:
            name = module.removeprefix(above)
            path = built_on.path_of(name)
            if module.startswith(above) and name in told and path.exists():
                if told[name] != (hashed := built_on.hash_of(path)):
                    yield (
                        node.lineno,
                        f'its BUILT_ON must say "{name}": "{hashed}", so that it is compiled anew with {name}: '
                        "python -m tests.built_on writes it",
                    )
            elif module not in KERNEL_IMPORTS and module not in more:
                yield (
                    node.lineno,
                    (
                        f"a kernel file imports {module}: its cached machine code would go stale when that changes; "
                        "keep a kernel and its helpers in one file, or tell the other file's hash in BUILT_ON"
                    ),
                )


def stale_columns(tree: ast.AST) -> Iterator[Finding]:
    """Find ``column[table.add(key)] = value``: the column is taken first, and is the old one when the table grows."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Subscript):
            for call in ast.walk(node.slice):
                if isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.func.attr == "add":
                    yield call.lineno, "a row is added inside an index: add it on a line of its own, or its column is an old one"


RULES: dict[str, Callable[[ast.AST], Iterator[Finding]]] = {
    "floats": floats,
    "sorts": sorts,
    "hashes": hashes,
    "sets": sets,
    "jits": jits,
    "stale columns": stale_columns,
}
BAD = {
    "stale columns": ["state.change.made_ms[state.change.add(key)] = 1", "x = column[table.add(key) + 1]"],
    "floats": [
        "x = 0.5",
        "x = a / b",
        "x /= 2",
        "def f(x: float): ...",
        "np.zeros(3, dtype=np.float64)",
        "np.zeros(3, dtype='f8')",
        "int(a / b)",
    ],
    "sorts": [
        "np.argsort(x)",
        "x.argsort()",
        "np.sort(x)",
        "np.argsort(x, kind='quicksort')",
        "np.argpartition(x, 3)",
        "x.partition(3)",
    ],
    "hashes": ["hash(name)", "sorted(x, key=id(x))"],
    "sets": [
        "for x in {1, 2}: ...",
        "s = set(a)\nfor x in s: ...",
        "[x for x in set(a)]",
        "{x: 1 for x in a.keys() - b}",
        "list(set(a))",
        "def f(s: set[str]):\n    return tuple(s)",
        "self.open = set()\nfor x in self.open: ...",
        "s = {1}\ns.pop()",
        "f(*set(a))",
        "max(set(a), key=len)",
        "for x in set(a) | b: ...",
        "for x in set(a).union(b): ...",
    ],
    "jits": [
        "@njit\ndef f(): ...",
        "@numba.njit(cache=False)\ndef f(): ...",
        "@njit(cache=True, fastmath=True)\ndef f(): ...",
        "@jit(cache=True)\ndef f(): ...",
        "@njit(cache=True, parallel=True)\ndef f(): ...",
    ],
}
GOOD = {
    "stale columns": ["row = table.add(key)\ntable.made_ms[row] = 1"],
    "floats": ["x = a // b", "x = 1_000", "int(3)", "np.zeros(3, dtype='i8')"],
    "sorts": [
        "np.argsort(x, kind='stable')",
        "rows.sort()",
        "sorted(x)",
        "name.partition('#')",
        "x.argsort(kind='mergesort')",
    ],
    "hashes": ["row.id"],
    "sets": [
        "for x in sorted({1, 2}): ...",
        "x in {1, 2}",
        "len(set(a))",
        "sum(x for x in set(a))",
        "sorted(x for x in set(a))",
        "{x for x in set(a)}",
        "for x in {1: 2}: ...",
        "min(set(a))",
    ],
    "jits": ["@njit(cache=True)\ndef f(): ...", "@property\ndef f(): ..."],
}


@pytest.mark.parametrize(("rule", "code"), [(rule, code) for rule, codes in BAD.items() for code in codes])
def test_the_rule_sees_what_it_is_for(rule: str, code: str) -> None:
    assert list(RULES[rule](ast.parse(code))), f"{rule} is blind to: {code}"


@pytest.mark.parametrize(("rule", "code"), [(rule, code) for rule, codes in GOOD.items() for code in codes])
def test_the_rule_leaves_good_code_alone(rule: str, code: str) -> None:
    assert not list(RULES[rule](ast.parse(code))), f"{rule} forbids good code: {code}"


@pytest.mark.parametrize("rule", RULES)
def test_the_core_is_deterministic_by_construction(rule: str) -> None:
    findings = [
        f"{module.relative_to(ROOT)}:{line}: {message}"
        for module in MODULES
        for line, message in RULES[rule](ast.parse(module.read_text(encoding="utf-8")))
    ]

    assert not findings, "\n".join(findings)


def test_a_kernel_and_its_helpers_live_in_one_file() -> None:
    findings = [
        f"{module.relative_to(ROOT)}:{line}: {message}"
        for module in KERNELS
        if module.name != "__init__.py"  # a room's door lists what its files do, and compiles nothing
        for line, message in kernel_imports(
            ast.parse(module.read_text(encoding="utf-8")), COMPILER_IMPORTS if module == INSTRUCTION else ()
        )
    ]
    doors = [module for module in KERNELS if module.name == "__init__.py"]
    assert not any("njit" in module.read_text(encoding="utf-8").replace("``@njit", "") for module in doors)
    stale = "from apportion.core.kernels import queue\nBUILT_ON = {'queue': 'an older one'}"
    room = "from apportion.core.kernels.serve.order import next_leaf\nBUILT_ON = {'serve.order': 'an older one'}"
    unsaid = ("from apportion.core.kernels.walk import depth", "from apportion.core.kernels import queue")
    for bad in (*unsaid, "from apportion.core.kernels import serve", stale, room, *(f"import {one}" for one in COMPILER_IMPORTS)):
        assert list(kernel_imports(ast.parse(bad))), "the rule is blind"

    assert not findings, "\n".join(findings)


def test_a_change_of_a_kernel_file_changes_all_that_are_built_on_it(tmp_path: Path) -> None:
    files = {
        "room/inner.py": "DEEP = 1\n",
        "room/outer.py": 'BUILT_ON = {"room.inner": "0"}\n',
        "walk.py": 'BUILT_ON = {\n    "room.outer": "0", "alone": "0",\n}\n',
        "alone.py": "",
    }
    (tmp_path / "room").mkdir()
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")

    assert built_on.write(tmp_path) == ["room/outer.py", "walk.py"]
    assert built_on.write(tmp_path) == []
    (tmp_path / "room/inner.py").write_text("DEEP = 2\n", encoding="utf-8")
    assert built_on.write(tmp_path) == ["room/outer.py", "walk.py"]

    (tmp_path / "room/inner.py").write_text('BUILT_ON = {"walk": "0"}\n', encoding="utf-8")
    with pytest.raises(ValueError, match="built on itself"):
        built_on.write(tmp_path)


def test_only_kernels_are_compiled() -> None:
    """The rest of the core is plain Python, so that a reader can step through it."""
    findings = [
        f"{module.relative_to(ROOT)}:{node.lineno}: numba is imported outside core/kernels"
        for module in MODULES
        if module not in KERNELS
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8")))
        if (isinstance(node, ast.Import) and any(alias.name.split(".")[0] == "numba" for alias in node.names))
        or (isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "numba")
    ]

    assert not findings, "\n".join(findings)
