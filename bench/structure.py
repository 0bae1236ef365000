"""How easy the house is to live in, in numbers: ``python bench/structure.py``. Reads the source as
text; runs nothing of it.

Circles count every import, also those under TYPE_CHECKING and inside functions. A slice of the web is a folder of
`web/` with addresses (`web/deployment/urls.py`). "Policy outside" are constants that name two or more checks and do not
stand in the checks' own room.
"""

from __future__ import annotations

import ast
import re
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CHECKS = ("pool", "version", "drift", "exposure", "accounting", "rejection", "coherence", "canary", "prefill",
          "prefix", "concurrency", "session")  # fmt: skip


def main() -> None:
    """Print one figure a line."""
    files = [ROOT / name for name in _git("ls-files", "kvaudit/*.py")]
    product = {_module(path): path for path in files if "/migrations/" not in str(path)}
    imports = imports_of(product)
    circles = circles_of(imports)
    print(f"files of the product                         {len(product)}")
    print(
        f"lines of the product                         {sum(len(_lines(path)) for path in product.values())}"
    )
    print(f"import circles                               {len(circles)}")
    print(f"largest circle                               {max(map(len, circles), default=0)}")
    for figure, value in _web(imports):
        print(f"{figure:<44} {value}")
    print(f"constants with check policy outside checks   {len(_policy(product))}")
    print(f"files that name one check, median            {_naming(files)}")
    print(f"functions over 50 lines                      {_long_functions(product)}")
    print(
        f"files over 300 lines                         {sum(len(_lines(p)) > 300 for p in product.values())}"
    )
    print(f"full-line comments per 100 lines             {_comments(product.values()):.1f}")
    print(f"template lines over 300 characters           {_wide_lines()}")
    print(
        f"entries in kvaudit/                          {len({n.split('/')[1] for n in _git('ls-files', 'kvaudit')})}"
    )


def _git(*arguments: str) -> list[str]:
    done = subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.splitlines()


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def _module(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(name: str, path: Path, known: dict[str, Path]) -> Iterator[str]:
    """Modules of the product that this one imports, wherever the statement stands."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        wanted: list[str] = []
        if isinstance(node, ast.Import):
            wanted = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            inside = [f"{node.module}.{alias.name}" for alias in node.names]
            wanted = [each if each in known else node.module for each in inside]
        for each in wanted:
            if each in known and each != name:
                yield each


def imports_of(product: dict[str, Path]) -> dict[str, set[str]]:
    """Module -> modules of the product that it imports."""
    return {name: set(_imports(name, path, product)) for name, path in product.items()}


def circles_of(imports: dict[str, set[str]]) -> list[list[str]]:
    """Modules that need each other, by circle."""
    return [circle for circle in _circles(imports) if len(circle) > 1]


def _circles(imports: dict[str, set[str]]) -> list[list[str]]:
    """Strongly connected components (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for other in sorted(imports[name]):
            if other not in index:
                visit(other)
                low[name] = min(low[name], low[other])
            elif other in stack:
                low[name] = min(low[name], index[other])
        if low[name] == index[name]:
            found.append([])
            while True:
                found[-1].append(stack.pop())
                if found[-1][-1] == name:
                    break

    for name in sorted(imports):
        if name not in index:
            visit(name)
    return found


def _web(imports: dict[str, set[str]]) -> Iterator[tuple[str, str]]:
    """Of the imports inside the web: how many stay in their slice or go to the kit, how many cross."""
    inside = [
        (_slice(source), _slice(target))
        for source, targets in imports.items()
        for target in targets
        if ".web." in source and ".web." in target and not source.endswith(".urls")
    ]
    at_home = sum(source == target or target == "kit" for source, target in inside)
    across = sum(
        source != target and f"kvaudit.server.web.{target}.urls" in imports for source, target in inside
    )
    yield "imports inside the web", str(len(inside))
    yield "of these in their slice or to the kit", f"{100 * at_home / len(inside):.0f} %"
    yield "of these into another page's slice", str(across)


def _slice(module: str) -> str:
    return module.split(".web.", 1)[1].split(".")[0]


def _policy(product: dict[str, Path]) -> list[str]:
    """Constants outside the checks' room whose value names two or more checks."""
    found = []
    for name, path in product.items():
        if ".checks" in name and "checklists" not in name:
            continue
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
            if value is None:
                continue
            named = {each.value for each in ast.walk(value) if isinstance(each, ast.Constant)} & set(CHECKS)
            if len(named) > 1:
                found.append(f"{name}:{node.lineno}")
    return found


def _naming(files: Iterable[Path]) -> int:
    """Over the checks, how many product files outside the check's own name its id as a string."""
    counts: dict[str, int] = dict.fromkeys(CHECKS, 0)
    for path in files:
        text = path.read_text(encoding="utf-8")
        for check in CHECKS:
            own = re.search(rf"/checks/{check}", str(path))
            counts[check] += not own and re.search(rf"""["']{check}["']""", text) is not None
    return sorted(counts.values())[len(counts) // 2]


def _long_functions(product: dict[str, Path]) -> str:
    lengths = [
        (node.end_lineno or 0) - node.lineno + 1
        for path in product.values()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    over = sum(length > 50 for length in lengths)
    return f"{over} of {len(lengths)} ({100 * over / len(lengths):.1f} %)"


def _comments(paths: Iterable[Path]) -> float:
    counted: dict[bool, int] = defaultdict(int)
    for path in paths:
        for line in _lines(path):
            counted[line.lstrip().startswith("#")] += 1
    return 100 * counted[True] / (counted[True] + counted[False])


def _wide_lines() -> int:
    return sum(
        len(line) > 300 for name in _git("ls-files", "templates/*.html") for line in _lines(ROOT / name)
    )


if __name__ == "__main__":
    main()
