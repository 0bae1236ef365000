"""Renames identifiers: ``python bench/_words.py MAPPING`` with LibCST installed (not a dependency of ours).

It knows scopes and imports, so that a word of English may be the name of one function and stay a word elsewhere.
Strings stay, except a dotted name of what is renamed and the name given to `setattr`. What is renamed already is left:
a branch runs it as often as it likes. Then ``ruff check --fix --select I`` and ``ruff format``. A line of the mapping:

``symbol OLD NEW [UNDER ...]``
    a class, function or constant at the top of a module, its imports and every use, for modules below UNDER.
``member CLASS.OLD NEW [@RECEIVER ...] [UNDER ...]``
    a field, method or property in the body of CLASS; attributes and keywords of that name follow in files below UNDER
    (folders; tests and templates are named like any other), with receivers only those of variables of these names.
``local FUNCTION.OLD NEW [UNDER ...]``
    a variable or parameter of the functions (or methods ``Class.method``) of that name.
``fixture OLD NEW [UNDER ...]``
    a fixture of pytest and every parameter that asks for it.
``each ITERABLE NOUN [FUNCTION ...]``
    the noun for ``for each in ITERABLE`` where the plural does not give it; ``*`` is any iterable of that function.
``module OLD DOTTED``
    the name that a file gives to a module of ours: ``from package import module as OLD`` becomes a plain import.
``text OLD NEW UNDER ...``
    a phrase, whole words, in prose and strings of the files named.
"""

from __future__ import annotations

import ast
import builtins
import keyword
import re
import subprocess
import sys
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import libcst as cst
import libcst.matchers as m
from libcst.metadata import (
    ImportAssignment,
    MetadataWrapper,
    ParentNodeProvider,
    PositionProvider,
    Scope,
    ScopeProvider,
)

ROOT = Path(__file__).resolve().parent.parent
OWN = ("bench/_words.py", "bench/words.txt", "bench/_move.py", "bench/_wings.py", "CHANGELOG.md")
LOOSE = re.compile(r"/migrations/\d")


@dataclass(frozen=True)
class Rule:
    kind: str
    old: str
    new: str
    under: tuple[str, ...] = ()
    receivers: tuple[str, ...] = ()

    def covers(self, name: str) -> bool:
        return not self.under or any(
            name.startswith(prefix.replace(".", "/") if "/" not in prefix else prefix)
            for prefix in self.under
        )


@dataclass
class Source:
    name: str
    text: str
    edits: dict[tuple[int, int], tuple[str, str]] = field(default_factory=dict)

    @property
    def module(self) -> str:
        return self.name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def rules_of(path: Path) -> list[Rule]:
    rules = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.strip() and not line.startswith("#"):
            kind, old, new, *under = (
                [part.strip() for part in line.split("\t") if part.strip()] if "\t" in line else line.split()
            )
            rules.append(
                Rule(
                    kind,
                    old,
                    new,
                    tuple(each for each in under if not each.startswith("@")),
                    tuple(each[1:] for each in under if each.startswith("@")),
                )
            )
    return rules


def tracked(*suffixes: str) -> list[str]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True)
    return [
        name
        for name in listed.stdout.splitlines()
        if name.endswith(suffixes)
        and name not in OWN
        and not LOOSE.search(name)
        and not name.startswith("bench/results/")
        and (ROOT / name).is_file()
        and not (ROOT / name).is_symlink()
    ]


# Symbols: where they are defined, and which modules hand them on ------------------------------------------------


def dotted(node: cst.BaseExpression | None) -> str:
    if isinstance(node, cst.Name):
        return node.value
    if isinstance(node, cst.Attribute):
        return f"{dotted(node.value)}.{node.attr.value}"
    return "?"


def tops(module: cst.Module) -> tuple[set[str], list[tuple[str, str, str]]]:
    """(names defined at the top, from-imports anywhere at the top as (module, name, bound to))."""
    defined: set[str] = set()
    imported: list[tuple[str, str, str]] = []

    def take(statements: object) -> None:
        for statement in statements:  # type: ignore[attr-defined]
            if isinstance(statement, cst.FunctionDef | cst.ClassDef):
                defined.add(statement.name.value)
            elif isinstance(statement, cst.SimpleStatementLine):
                for small in statement.body:
                    if isinstance(small, cst.Assign):
                        for target in small.targets:
                            for name in m.findall(target.target, m.Name()):
                                defined.add(name.value)
                    elif isinstance(small, cst.AnnAssign) and isinstance(small.target, cst.Name):
                        defined.add(small.target.value)
                    elif isinstance(small, cst.ImportFrom) and not isinstance(small.names, cst.ImportStar):
                        for alias in small.names:
                            bound = alias.asname.name.value if alias.asname else dotted(alias.name)
                            imported.append((dotted(small.module), dotted(alias.name), bound))
            elif isinstance(statement, cst.If | cst.Try):
                take(statement.body.body)

    take(module.body)
    return defined, imported


def read_tops(name: str) -> tuple[str, set[str], list[tuple[str, str, str]]]:
    source = Source(name, (ROOT / name).read_text(encoding="utf-8"))
    return source.module, *tops(cst.parse_module(source.text))


def holders(rules: list[Rule], names: list[str]) -> dict[str, dict[str, str]]:
    """Module -> old name -> new name, for modules that define a renamed symbol or hand it on under its name."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    with ProcessPoolExecutor(2) as pool:
        read = list(pool.map(read_tops, names, chunksize=40))
    for module, defined, _ in read:
        for rule in rules:
            path = module.replace(".", "/")
            if rule.kind == "symbol" and rule.old in defined and rule.covers(path):
                found[module].setdefault(rule.old, rule.new)
    changed = True
    while changed:
        changed = False
        for module, _, imported in read:
            for origin, name, bound in imported:
                new = found.get(origin, {}).get(name)
                if new and bound == name and name not in found[module]:
                    found[module][name] = new
                    changed = True
    return {module: names for module, names in found.items() if names}


# Nouns for `each` ------------------------------------------------------------------------------------------------

IRREGULAR = {
    "people": "person",
    "children": "child",
    "indices": "index",
    "leaves": "leaf",
    "series": "series",
}
PASS_ON = {"sorted", "list", "tuple", "set", "reversed", "frozenset", "iter", "cast"}
CHAIN = re.compile(
    r"^(all|filter|exclude|order_by|select_related|prefetch_related|values|iterator|only|distinct|select_for_update|"
    r"annotate|using|visible_to|with_\w+|copy|for_update|iterdir|union)$"
)


@cache
def singular(word: str) -> str:
    word = word.strip("_").lower().rpartition("_")[2]
    if word in IRREGULAR:
        return IRREGULAR[word]
    for suffix, put in (("ies", "y"), ("sses", "ss"), ("ches", "ch"), ("shes", "sh"), ("xes", "x")):
        if word.endswith(suffix) and len(word) > len(suffix) + 1:
            return word.removesuffix(suffix) + put
    if word.endswith("uses") and word not in ("uses", "causes", "clauses"):
        return word.removesuffix("es")
    if word.endswith("s") and not word.endswith(("ss", "us", "is")) and len(word) > 2:
        return word.removesuffix("s")
    return ""


def subject_of(node: cst.BaseExpression, place: int | None) -> str:
    """The word that names what an iterable holds: the last identifier of it, without what only orders or filters."""
    while True:
        if isinstance(node, cst.Call):
            function = node.func
            if isinstance(function, cst.Name):
                if function.value in PASS_ON and node.args:
                    node = node.args[-1].value if function.value == "cast" else node.args[0].value
                    continue
                if function.value == "enumerate":
                    node, place = node.args[0].value, None
                    continue
                if function.value == "zip" and place is not None and place < len(node.args):
                    node, place = node.args[place].value, None
                    continue
                return re.sub(r"_(of|for|in|at|from|between|with|to)(_\w+)?$", "", function.value)
            if isinstance(function, cst.Attribute):
                name = function.attr.value
                if name == "get" and node.args and isinstance(node.args[0].value, cst.SimpleString):
                    return str(node.args[0].value.evaluated_value)
                if name == "items" and not node.args:
                    if place == 0:
                        return ""
                    node, place = function.value, None
                    continue
                if CHAIN.match(name):
                    node = function.value
                    continue
                return re.sub(r"_(of|for|in|at|from|between|with|to)(_\w+)?$", "", name)
            return ""
        if isinstance(node, cst.Subscript):
            index = node.slice[0].slice
            if isinstance(index, cst.Slice):
                node = node.value
                continue
            if isinstance(index, cst.Index) and isinstance(index.value, cst.SimpleString):
                return str(index.value.evaluated_value)
            return ""
        if isinstance(node, cst.BooleanOperation):
            node = node.left
            continue
        if isinstance(node, cst.Attribute):
            if node.attr.value == "objects":
                node = node.value
                return re.findall("[A-Z][a-z]+", dotted(node))[-1].lower() + "s"
            return node.attr.value
        if isinstance(node, cst.Name):
            return node.value
        if isinstance(node, cst.Await):
            node = node.expression
            continue
        return ""


# One file --------------------------------------------------------------------------------------------------------


class Pass(cst.CSTVisitor):
    METADATA_DEPENDENCIES = (ScopeProvider, PositionProvider, ParentNodeProvider)

    def __init__(self, source: Source, rules: list[Rule], held: dict[str, dict[str, str]]) -> None:
        super().__init__()
        self.source, self.held = source, held
        name = source.name
        self.mine = held.get(source.module, {})
        self.members = {
            (rule.old.partition(".")[0], rule.old.partition(".")[2]): rule.new
            for rule in rules
            if rule.kind == "member"
        }
        self.attributes: dict[str, list[Rule]] = defaultdict(list)
        for rule in rules:
            if rule.kind == "member" and rule.covers(name):
                self.attributes[rule.old.rpartition(".")[2]].append(rule)
        self.locals: dict[str, list[tuple[str, str]]] = defaultdict(list)
        self.fixtures = {rule.old: rule.new for rule in rules if rule.kind == "fixture" and rule.covers(name)}
        self.modules = {(rule.old, rule.new) for rule in rules if rule.kind == "module"}
        self.bound = {old for old, _ in self.modules}
        self.words: set[str] | None = None
        self.nouns: list[Rule] = []
        for rule in rules:
            if rule.kind == "local" and rule.covers(name):
                function, _, old = rule.old.rpartition(".")
                self.locals[function].append((old, rule.new))
            elif rule.kind == "each":
                self.nouns.append(rule)
        self.stack: list[str] = []
        self.notes: list[str] = []

    # Places

    def put(self, node: cst.CSTNode, old: str, new: str) -> None:
        start = self.get_metadata(PositionProvider, node).start
        self.source.edits[(start.line, start.column)] = (old, new)

    def note(self, node: cst.CSTNode, text: str) -> None:
        line = self.get_metadata(PositionProvider, node).start.line
        self.notes.append(f"{self.source.name}:{line}: {text}")

    def scope_of(self, node: cst.CSTNode) -> Scope | None:
        return self.get_metadata(ScopeProvider, node, None)

    def origin(self, node: cst.BaseExpression) -> str:
        """The module that an expression names, through this file's imports; "" for anything else."""
        if isinstance(node, cst.Attribute):
            parent = self.origin(node.value)
            return f"{parent}.{node.attr.value}" if parent else ""
        if not isinstance(node, cst.Name):
            return ""
        scope = self.scope_of(node)
        if scope is None:
            return ""
        for assignment in scope[node.value]:
            if isinstance(assignment, ImportAssignment):
                statement = assignment.node
                for alias in statement.names:  # type: ignore[union-attr]
                    bound = alias.asname.name.value if alias.asname else dotted(alias.name).partition(".")[0]
                    if bound == node.value:
                        whole = dotted(alias.name)
                        if isinstance(statement, cst.ImportFrom):
                            return f"{dotted(statement.module)}.{whole}"
                        return whole if alias.asname else whole.partition(".")[0]
        return ""

    def attribute(self, receiver: cst.BaseExpression | None, old: str) -> str | None:
        """The new name of an attribute of this receiver, if it has one."""
        for rule in self.attributes.get(old, ()):
            if not rule.receivers:
                return rule.new
            if isinstance(receiver, cst.Call):
                receiver = receiver.func
            last = dotted(receiver).rpartition(".")[2]
            if last in rule.receivers or (
                last in ("self", "cls") and rule.old.partition(".")[0] in self.stack
            ):
                return rule.new
        return None

    # Names, attributes, imports

    def visit_ImportFrom(self, node: cst.ImportFrom) -> bool:
        names = self.held.get(dotted(node.module), {})
        if not isinstance(node.names, cst.ImportStar):
            for alias in node.names:
                new = names.get(dotted(alias.name))
                if new:
                    self.put(alias.name, dotted(alias.name), new)
                if alias.asname is not None:
                    self.unalias(f"{dotted(node.module)}.{dotted(alias.name)}", alias)
        return False

    def unalias(self, whole: str, alias: cst.ImportAlias) -> None:
        old, new = alias.asname.name.value, dotted(alias.name)  # type: ignore[union-attr]
        if (old, whole) in self.modules and self.unused(new):
            self.put(alias.name, f"{new} as {old}", new)

    def unused(self, word: str) -> bool:
        """Whether no variable of this file has the name."""
        if self.words is None:
            self.words = {
                getattr(each, "id", None) or getattr(each, "arg", None) or getattr(each, "name", "") or ""
                for each in ast.walk(ast.parse(self.source.text))
                if not isinstance(each, ast.keyword | ast.alias)
            }
        return word not in self.words

    def visit_Import(self, node: cst.Import) -> bool:
        return False

    def visit_Attribute(self, node: cst.Attribute) -> None:
        old = node.attr.value
        module = self.origin(node.value)
        new = self.held.get(module, {}).get(old)
        if (
            new is None
            and module not in self.held
            and not (module and module.startswith("kvaudit.") and "." in module and self._is_module(module))
        ):
            new = self.attribute(node.value, old)
        if new:
            self.put(node.attr, old, new)

    @staticmethod
    @cache
    def _is_module(module: str) -> bool:
        path = ROOT / module.replace(".", "/")
        return path.with_suffix(".py").exists() or path.is_dir()

    def keyword(self, function: str, node: cst.Arg) -> None:
        """The name of a field in a call of its class; of a rule without receivers, in any call."""
        if node.keyword is None:
            return
        old = node.keyword.value
        for rule in self.attributes.get(old, ()):
            owner = rule.old.partition(".")[0]
            if not rule.receivers or function in (owner, self.mine.get(owner, owner), "replace"):
                self.put(node.keyword, old, rule.new)
                return

    def visit_Name(self, node: cst.Name) -> None:
        if node.value in self.bound:
            whole = self.origin(node)
            new_word = whole.rpartition(".")[2]
            if (node.value, whole) in self.modules and self.unused(new_word):
                self.put(node, node.value, new_word)
                return
        new = self.mine.get(node.value)
        local = self._imported_locally(node) if new is None else None
        if new is None and local is None:
            return
        parent = self.get_metadata(ParentNodeProvider, node)
        if isinstance(parent, cst.Attribute) and parent.attr is node:
            return
        if isinstance(parent, cst.Arg) and parent.keyword is node:
            return
        if isinstance(parent, cst.FunctionDef | cst.ClassDef) and parent.name is node:
            if not self.stack or self.stack == [node.value]:
                self.put(node, node.value, new or "")
            return
        if isinstance(parent, cst.Param) and parent.name is node:
            return
        if local:
            self.put(node, node.value, local)
            return
        scope = self.scope_of(node)
        if scope is None:
            return
        found = scope[node.value]
        if found and all(assignment.scope == scope.globals for assignment in found):
            self.put(node, node.value, new or "")
        elif local := self._imported_locally(node):
            self.put(node, node.value, local)

    def _imported_locally(self, node: cst.Name) -> str | None:
        if not any(node.value in names for names in self.held.values()):
            return None
        scope = self.scope_of(node)
        if scope is None:
            return None
        for assignment in scope[node.value]:
            if isinstance(assignment, ImportAssignment) and isinstance(assignment.node, cst.ImportFrom):
                new = self.held.get(dotted(assignment.node.module), {}).get(node.value)
                aliased = any(
                    alias.asname is not None and alias.asname.name.value == node.value
                    for alias in assignment.node.names  # type: ignore[union-attr]
                )
                if new and not aliased:
                    return new
        return None

    def visit_Assign(self, node: cst.Assign) -> None:
        if dotted(node.targets[0].target) == "__all__":
            for word in m.findall(node.value, m.SimpleString()):
                new = self.mine.get(str(word.evaluated_value))  # type: ignore[attr-defined]
                if new:
                    self.put(word, word.value, f'"{new}"')  # type: ignore[attr-defined]

    def visit_SimpleString(self, node: cst.SimpleString) -> None:
        value = node.value
        if ("." in value and "kvaudit." in value) or "tests." in value:
            for module, names in self.held.items():
                for old, new in names.items():
                    whole = f"{module}.{old}"
                    if re.search(rf"(?<![\w.]){re.escape(whole)}(?!\w)", value):
                        value = re.sub(rf"(?<![\w.]){re.escape(whole)}(?!\w)", f"{module}.{new}", value)
            if value != node.value:
                self.put(node, node.value, value)

    def visit_Call(self, node: cst.Call) -> None:
        function = dotted(node.func).rpartition(".")[2]
        for arg in node.args:
            self.keyword(function, arg)
        if len(node.args) >= 2 and dotted(node.func).rpartition(".")[2] in ("setattr", "getattr", "object"):
            word = node.args[1].value
            if isinstance(word, cst.SimpleString):
                old = str(word.evaluated_value)
                module = self.origin(node.args[0].value)
                new = self.held.get(module, {}).get(old)
                if new is None and module not in self.held:
                    new = self.attribute(node.args[0].value, old)
                if new:
                    self.put(word, word.value, word.value.replace(old, new))
        if dotted(node.func).rpartition(".")[2] in ("usefixtures", "getfixturevalue"):
            for arg in node.args:
                if isinstance(arg.value, cst.SimpleString):
                    old = str(arg.value.evaluated_value)
                    if old in self.fixtures:
                        self.put(arg.value, arg.value.value, arg.value.value.replace(old, self.fixtures[old]))

    # Definitions

    def visit_ClassDef(self, node: cst.ClassDef) -> None:
        for statement in node.body.body:
            names: list[cst.Name] = []
            if isinstance(statement, cst.FunctionDef):
                names = [statement.name]
            elif isinstance(statement, cst.SimpleStatementLine):
                for small in statement.body:
                    if isinstance(small, cst.AnnAssign) and isinstance(small.target, cst.Name):
                        names.append(small.target)
                    elif isinstance(small, cst.Assign):
                        names += [each.target for each in small.targets if isinstance(each.target, cst.Name)]
            for name in names:
                new = self.members.get((node.name.value, name.value)) or self.members.get(("*", name.value))
                if new and name.value in self.attributes:
                    self.put(name, name.value, new)
        self.stack.append(node.name.value)

    def leave_ClassDef(self, original_node: cst.ClassDef) -> None:
        self.stack.pop()

    def visit_FunctionDef(self, node: cst.FunctionDef) -> None:
        self.stack.append(node.name.value)
        whole = ".".join(self.stack)
        for param in node.params.params:
            if param.name.value == "each" and param.annotation is not None:
                named = dotted(param.annotation.annotation)
                words = re.findall("[A-Z][a-z]+", self.mine.get(named, named))
                if words:
                    self.rename_local(node, "each", words[-1].lower())
        for key in {"*", whole, node.name.value, ".".join(self.stack[-2:])}:
            for old, new in self.locals.get(key, ()):
                self.rename_local(node, old, new)
        if self.fixtures:
            decorators = " ".join(
                self.source.text.splitlines()[self.get_metadata(PositionProvider, each).start.line - 1]
                for each in node.decorators
            )
            fixture = "fixture" in decorators
            if fixture and node.name.value in self.fixtures:
                self.put(node.name, node.name.value, self.fixtures[node.name.value])
            if fixture or node.name.value.startswith("test"):
                for old, new in self.fixtures.items():
                    if any(
                        param.name.value == old for param in node.params.params + node.params.kwonly_params
                    ):
                        self.rename_local(node, old, new)

    def keys(self) -> set[str]:
        """How a rule may name the function that we are in."""
        return {"*", *self.stack, *(".".join(pair) for pair in zip(self.stack, self.stack[1:], strict=False))}

    def rename_here(self, target: cst.Name, old: str, new: str) -> None:
        """A variable of a comprehension."""
        for assignment in self._assignments_at(target, target):
            scope = assignment.scope  # type: ignore[attr-defined]
            if not self.free(scope, new) and any(each.scope == scope for each in scope.assignments[new]):
                self.note(target, f"{old} -> {new}: the word is taken")
                return
            for name in _names_in_target(getattr(assignment, "node", None), old):
                self.put(name, old, new)
            for access in assignment.references:  # type: ignore[attr-defined]
                if isinstance(access.node, cst.Name):
                    self.put(access.node, old, new)

    def leave_FunctionDef(self, original_node: cst.FunctionDef) -> None:
        self.stack.pop()

    def inner_scope(self, node: cst.FunctionDef) -> Scope | None:
        for inside in node.body.body:
            scope = self.scope_of(inside)
            if scope is not None:
                return scope
        return None

    def rename_local(self, node: cst.FunctionDef, old: str, new: str) -> None:
        scope = self.inner_scope(node)
        if scope is None:
            return
        own = [each for each in scope.assignments[old] if each.scope == scope]
        if not own:
            return
        if scope.assignments[new] and new != old and not self.free(scope, new):
            self.note(node, f"{'.'.join(self.stack)}: {old} -> {new}: the word is taken")
            return
        for assignment in own:
            target = getattr(assignment, "node", None)
            for name in _names_in_target(target, old):
                self.put(name, old, new)
            for access in assignment.references:
                if isinstance(access.node, cst.Name):
                    self.put(access.node, old, new)

    def free(self, scope: Scope, word: str) -> bool:
        """Whether nothing here means anything else by the word."""
        if keyword.iskeyword(word) or hasattr(builtins, word):
            return False
        if any(True for _ in scope.accesses[word]):
            return False
        return not scope[word]

    # each

    def visit_CompFor(self, node: cst.CompFor) -> None:
        self.loop(node.target, node.iter, node)

    def visit_For(self, node: cst.For) -> None:
        self.loop(node.target, node.iter, node)

    def visit_Lambda(self, node: cst.Lambda) -> None:
        for param in node.params.params:
            if param.name.value == "each":
                call = self.get_metadata(ParentNodeProvider, self.get_metadata(ParentNodeProvider, node))
                if isinstance(call, cst.Call) and call.args:
                    first = call.args[0].value
                    if isinstance(call.func, cst.Attribute) and call.func.attr.value == "sort":
                        first = call.func.value
                    if isinstance(first, cst.GeneratorExp | cst.ListComp | cst.SetComp):
                        if dotted(first.elt) != "each":
                            continue
                        loop = first.for_in
                        while dotted(loop.target) != "each" and loop.inner_for_in is not None:
                            loop = loop.inner_for_in
                        first = loop.iter
                    self.name_it(param.name, first, None, node)

    def loop(self, target: cst.BaseExpression, iterable: cst.BaseExpression, node: cst.CSTNode) -> None:
        if isinstance(node, cst.CompFor):
            for name in m.findall(target, m.Name()):
                for key in self.keys():
                    for old, new in self.locals.get(key, ()):
                        if isinstance(name, cst.Name) and name.value == old:
                            self.rename_here(name, old, new)
        if isinstance(target, cst.Name) and target.value == "each":
            self.name_it(target, iterable, None, node)
        elif isinstance(target, cst.Tuple):
            for place, element in enumerate(target.elements):
                if isinstance(element.value, cst.Name) and element.value.value == "each":
                    self.name_it(element.value, iterable, place, node)

    def name_it(
        self, target: cst.Name, iterable: cst.BaseExpression, place: int | None, node: cst.CSTNode
    ) -> None:
        source = re.sub(r"\s+", "", cst.Module([]).code_for_node(iterable))
        function = ".".join(self.stack) or "top"
        subject = subject_of(iterable, place)
        noun = ""
        for rule in self.nouns:
            where = not rule.under or any(
                function == each or function.endswith("." + each) or self.source.name.endswith(each)
                for each in rule.under
            )
            if where and rule.old in ("*", source, subject):
                noun = rule.new
                if rule.under:
                    break
        noun = noun or singular(subject)
        if noun == "-":
            return
        if not noun:
            self.note(target, f"each: no noun: {function}: {source}")
            return
        if keyword.iskeyword(noun) or hasattr(builtins, noun):
            self.note(target, f"each: {noun} is a word of Python: {function}: {source}")
            return
        inner = None
        for assignment in self._assignments_at(target, node):
            inner = assignment
            break
        if inner is None:
            self.note(target, f"each: no scope: {function}: {source}")
            return
        scope = inner.scope
        taken = scope[noun]
        taken = {each for each in taken if type(each).__name__ != "BuiltinAssignment"}
        if taken:
            self.note(target, f"each: {noun} is taken: {function}: {source}")
            return
        mine = [each for each in scope.assignments["each"] if each.scope == scope]
        for assignment in mine:
            for name in _names_in_target(getattr(assignment, "node", None), "each"):
                self.put(name, "each", noun)
            for access in assignment.references:
                if isinstance(access.node, cst.Name):
                    self.put(access.node, "each", noun)

    def _assignments_at(self, target: cst.Name, node: cst.CSTNode) -> list[object]:
        if isinstance(node, cst.Lambda):
            scope = self.scope_of(node.body)
            return [a for a in scope.assignments["each"] if a.scope == scope] if scope else []
        scope = self.scope_of(target)
        if scope is None:
            return []
        return [a for a in scope.assignments[target.value] if a.scope == scope]


def _names_in_target(node: cst.CSTNode | None, old: str) -> list[cst.Name]:
    if node is None:
        return []
    if isinstance(node, cst.Name):
        return [node] if node.value == old else []
    if isinstance(node, cst.Param):
        return [node.name] if node.name.value == old else []
    if isinstance(node, cst.FunctionDef | cst.ClassDef):
        return [node.name] if node.name.value == old else []
    return []


def edited(source: Source) -> str:
    lines = source.text.splitlines(keepends=True)
    for (line, column), (old, new) in sorted(source.edits.items(), reverse=True):
        text = lines[line - 1]
        if "\n" in old:
            continue
        assert text[column : column + len(old)] == old, (source.name, line, text, old)
        lines[line - 1] = text[:column] + new + text[column + len(old) :]
    return "".join(lines)


def work_on(task: tuple[str, list[Rule], dict[str, dict[str, str]]]) -> tuple[str, str | None, list[str]]:
    name, rules, held = task
    source = Source(name, (ROOT / name).read_text(encoding="utf-8"))
    words = {rule.old.rpartition(".")[2] for rule in rules if rule.kind != "each" and rule.covers(name)} | {
        "each"
    }
    words |= {old for names in held.values() for old in names}
    if not words & set(re.findall(r"\w+", source.text)) and not any(
        rule.kind == "text" and rule.covers(name) for rule in rules
    ):
        return name, None, []
    wrapper = MetadataWrapper(cst.parse_module(source.text), unsafe_skip_copy=True)
    visitor = Pass(source, rules, held)
    wrapper.visit(visitor)
    after = prose(name, edited(source), rules, held)
    return name, after if after != source.text else None, visitor.notes


def prose(name: str, text: str, rules: list[Rule], held: dict[str, dict[str, str]]) -> str:
    """Backticked names of what this module holds, and the phrases of `text` rules."""
    module = name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    for old, new in held.get(module, {}).items():
        text = re.sub(rf"`{re.escape(old)}`", f"`{new}`", text)
    for other, names in held.items():
        short = other.rpartition(".")[2]
        for old, new in names.items():
            if old in text:
                text = re.sub(rf"`((?:[\w.]+\.)?{re.escape(short)}\.){re.escape(old)}`", rf"`\1{new}`", text)
    for rule in rules:
        if rule.kind == "text" and rule.covers(name):
            text = re.sub(rf"(?<!\w){re.escape(rule.old)}(?!\w)", rule.new, text)
    return text


def template(name: str, text: str, rules: list[Rule]) -> str:
    for rule in rules:
        if rule.kind == "member" and rule.under and rule.covers(name):
            old = rule.old.rpartition(".")[2]
            text = re.sub(
                r"\{[{%].*?[%}]\}",
                lambda tag, old=old, new=rule.new: re.sub(rf"(?<=\w\.){old}(?!\w)", new, tag[0]),
                text,
                flags=re.S,
            )
    return text


def main(mapping_file: str) -> None:
    rules = rules_of(Path(mapping_file))
    names = tracked(".py")
    held = holders(rules, names)
    for rule in rules:
        if rule.kind == "symbol" and not any(rule.old in names_ for names_ in held.values()):
            print(f"done already, or not there: {rule.old}", file=sys.stderr)
    notes: list[str] = []
    with ProcessPoolExecutor(2) as pool:
        for name, after, said in pool.map(work_on, [(name, rules, held) for name in names], chunksize=20):
            notes += said
            if after is not None:
                (ROOT / name).write_text(after, encoding="utf-8")
    for name in tracked(".html", ".md", ".yml", ".yaml", ".toml", ".sh", ".txt"):
        before = (ROOT / name).read_text(encoding="utf-8")
        after = template(name, before, rules) if name.endswith(".html") else before
        after = prose(name, after, rules, held)
        if after != before:
            (ROOT / name).write_text(after, encoding="utf-8")
    print("\n".join(notes))


if __name__ == "__main__":
    main(sys.argv[1])
