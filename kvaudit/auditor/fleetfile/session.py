"""Reads ``session:`` of a deployment: a session API as templated steps (docs/active/session.md)."""

from __future__ import annotations

import json
from typing import Any

from kvaudit.auditor.checks.session.api import (
    METHODS,
    NAME,
    NEEDED,
    OPTIONAL,
    OWN_NAMES,
    POOL,
    WITHOUT,
    SessionPlan,
    Step,
    names_in,
    path_problem,
)
from kvaudit.auditor.engines.generic.pointers import pointer_problem
from kvaudit.auditor.fleetfile import values
from kvaudit.auditor.fleetfile.reader import Reader
from kvaudit.auditor.fleetfile.tree import YamlNode
from kvaudit.auditor.fleetfile.values import InvalidValue
from kvaudit.auditor.text.quoting import quoted

FIELDS = ("url", "steps", "pool", "largest", "wait", "without")
STEP_FIELDS = ("method", "path", "body", "capture")
POOL_FIELDS = ("path", *POOL)
LONGEST_WAIT = 600
MOST_IN_A_STEP = 20
DEEPEST_BODY = 8
LONGEST_BODY = 4_000
"""Characters of a body's template: a person reads it before it is approved."""


def read_session(reader: Reader, branch: YamlNode) -> SessionPlan | None:
    """The plan, or None with the problems noted in ``reader``."""
    before = len(reader.problems)
    fields = reader.fields(branch, "session", FIELDS)
    if fields is None:
        return None
    steps = _steps(reader, fields.get("steps"), branch)
    pool_path, pool = _pool(reader, fields.get("pool"))
    without = frozenset(
        found
        for item in reader.items(fields.get("without"), "without")
        if (found := reader.value(item, lambda value: values.choice(value, "without", WITHOUT), ""))
    )
    plan = SessionPlan(
        url=reader.required(fields, branch, "url", lambda value: values.url(value, "url"), ""),
        steps=steps,
        pool_path=pool_path,
        pool=pool,
        largest=reader.optional(fields, "largest", _largest, None),
        wait=reader.optional(fields, "wait", _wait, 0),
        without=without,
    )
    return plan if len(reader.problems) == before else None


def _largest(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= 10**9:
        raise InvalidValue(f"largest must be a whole number of at least 1, not {values.kind_of(value)}.")
    return value


def _wait(value: object) -> int:
    seconds = values.duration(value, "wait")
    if seconds > LONGEST_WAIT:
        raise InvalidValue(
            f"wait is {seconds} s; at most {LONGEST_WAIT} s are waited for a session to end by itself."
        )
    return seconds


def _steps(
    reader: Reader, branch: YamlNode | None, parent: YamlNode
) -> tuple[tuple[str, tuple[Step, ...]], ...]:
    if branch is None:
        reader.add_problem(parent.line, f"session has no steps: describe {', '.join(NEEDED)}.")
        return ()
    fields = reader.fields(branch, "steps", (*NEEDED, *OPTIONAL))
    if fields is None:
        return ()
    found: list[tuple[str, tuple[Step, ...]]] = []
    known = set(OWN_NAMES)
    for name in (*NEEDED, *OPTIONAL):
        if name not in fields:
            if name in NEEDED:
                reader.add_problem(branch.line, f"steps has no {name}; the check cannot do without it.")
            continue
        given = fields[name]
        items = reader.items(given, name) if given.kind == "list" else [given]
        if not items or len(items) > MOST_IN_A_STEP:
            reader.add_problem(given.line, f"{name} must have between 1 and {MOST_IN_A_STEP} requests.")
        read = tuple(
            step for item in items[:MOST_IN_A_STEP] if (step := _step(reader, item, name, known)) is not None
        )
        found.append((name, read))
        if name == "claim":
            captured = {each for step in read for each, _ in step.capture}
            if read and "id" not in captured:
                reader.add_problem(
                    given.line, "claim must capture id: without it no other step can name the session."
                )
            known |= captured
        if (
            name in ("seed", "write", "save")
            and read
            and not any("{{marker}}" in step.body + step.path for step in read)
        ):
            reader.add_problem(
                given.line, f"{name} writes no {{{{marker}}}}, so nothing of it could be found again."
            )
        if name == "echo" and read and not any("{{nonce}}" in step.body + step.path for step in read):
            reader.add_problem(
                given.line, "echo sends no {{nonce}}, so no answer could be told from another."
            )
    return tuple(found)


def _step(reader: Reader, branch: YamlNode, name: str, known: set[str]) -> Step | None:
    fields = reader.fields(branch, f"A request of {name}", STEP_FIELDS)
    if fields is None:
        return None
    body = fields.get("body")
    step = Step(
        method=reader.required(
            fields, branch, "method", lambda value: values.choice(value, "method", METHODS), ""
        ),
        path=reader.required(fields, branch, "path", _path, ""),
        body="" if body is None else _body(reader, body),
        capture=reader.pairs(fields.get("capture"), "capture", _name, _pointer),
    )
    for hole in dict.fromkeys(names_in(step.path) + names_in(step.body)):
        if hole not in known:
            reader.add_problem(
                branch.line,
                f"{name} uses {{{{{hole[:40]}}}}}, which is none of {', '.join(sorted(known))}; claim must capture it.",
            )
    return step


def _path(value: object) -> str:
    text = values.plain_text(value, "path", longest=500)
    if problem := path_problem(text):
        raise InvalidValue(f"{problem[0].upper()}{problem[1:]}.")
    return text


def _name(value: object) -> str:
    text = values.plain_text(value, "a captured name", longest=31)
    if not NAME.fullmatch(text) or text in OWN_NAMES:
        raise InvalidValue(
            f"A captured name {quoted(text)} must be lower-case letters, digits and underscores, and none of "
            f"{', '.join(OWN_NAMES)}."
        )
    return text


def _pointer(value: object) -> str:
    text = values.plain_text(value, "a pointer", longest=200)
    if problem := pointer_problem("capacity", text):
        raise InvalidValue(problem.replace("the pointer capacity", "the pointer") + ".")
    return text


def _body(reader: Reader, branch: YamlNode) -> str:
    """The JSON text of a body template."""
    try:
        body = json.dumps(_plain(branch, 0), ensure_ascii=False)
        if len(body) > LONGEST_BODY:
            raise InvalidValue(f"The body has {len(body):,} characters; at most {LONGEST_BODY:,} are sent.")
        return body
    except InvalidValue as problem:
        reader.add_problem(branch.line, str(problem))
        return ""


def _plain(branch: YamlNode, depth: int) -> Any:
    if depth > DEEPEST_BODY:
        raise InvalidValue(f"The body is nested more than {DEEPEST_BODY} levels deep.")
    if branch.kind == "list":
        return [_plain(item, depth + 1) for item in branch.value]
    if branch.kind == "mapping":
        return {str(key.value): _plain(item, depth + 1) for key, item in branch.value}
    return branch.value


def _pool(reader: Reader, branch: YamlNode | None) -> tuple[str, tuple[tuple[str, str], ...]]:
    if branch is None:
        return "", ()
    fields = reader.fields(branch, "pool", POOL_FIELDS)
    if fields is None:
        return "", ()
    path = reader.required(fields, branch, "path", _path, "")
    if names_in(path):
        reader.add_problem(
            fields["path"].line, "The pool's path must hold no {{ }}: it is read before any session exists."
        )
    pointers = {name: reader.value(fields[name], _pointer, "") for name in POOL if name in fields}
    if "capacity" not in pointers:
        reader.add_problem(branch.line, "pool needs a pointer to its capacity, such as capacity: /pool/size.")
    return path, tuple(sorted(pointers.items()))
