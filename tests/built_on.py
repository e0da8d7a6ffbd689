"""What kernel files are built on: hashes of the other kernel files they use, as ``BUILT_ON`` tells them.

The machine code that is kept of a kernel file is made anew when that file changes, and only then: so it tells the hash of each file
it uses, and changes with it, and with whatever that is built on. ``python -m tests.built_on`` writes the hashes where they are not
true any more; ``test_tidy_core`` finds a file that uses another without telling.
"""

from __future__ import annotations

import ast
import hashlib
import re
from pathlib import Path

KERNELS = Path(__file__).resolve().parent.parent / "core" / "kernels"
_TOLD = re.compile(r"^BUILT_ON = \{.*?\}", re.DOTALL | re.MULTILINE)


def path_of(name: str, kernels: Path = KERNELS) -> Path:
    """Return the file of a name in ``BUILT_ON``: ``queue``, or ``serve.order`` for a file of a room."""
    return kernels.joinpath(*name.split(".")).with_suffix(".py")


def hash_of(path: Path) -> str:
    """Return 12 hex digits over a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:12]


def told_in(tree: ast.AST) -> dict[str, str]:
    """Return what a file tells in ``BUILT_ON``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "BUILT_ON":
            return dict(ast.literal_eval(node.value))
    return {}


def write(kernels: Path = KERNELS) -> list[str]:
    """Write the hashes that are true now, of what is used before who uses it; returns the files that changed, in that order."""
    seen, changed = dict[Path, bool](), list[str]()

    def visit(path: Path) -> None:
        if path in seen:
            if not seen[path]:
                raise ValueError(f"{path.relative_to(kernels)} is built on itself: no hash could tell so")
            return
        seen[path] = False
        before = path.read_text(encoding="utf-8")
        for name in told_in(ast.parse(before)):
            visit(path_of(name, kernels))
        if (found := _TOLD.search(before)) is not None:
            said = re.sub(r'"([\w.]+)": "\w*"', lambda each: f'"{each[1]}": "{hash_of(path_of(each[1], kernels))}"', found[0])
            after = before[: found.start()] + said + before[found.end() :]
            if after != before:
                path.write_text(after, encoding="utf-8")
                changed.append(str(path.relative_to(kernels)))
        seen[path] = True

    for path in sorted(kernels.rglob("*.py")):
        visit(path)
    return changed


if __name__ == "__main__":
    print("\n".join(write()) or "all hashes are true")
