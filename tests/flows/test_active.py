"""Active audits by a real worker against labs behind sockets: a leaking engine and the same one fixed.

A customer's secret is in the leaking engine's traffic. It comes back in answers, and must then be nowhere
but in sealed bytes that no process of this flow can open.
"""

import json
import os
import subprocess
import sys
import threading
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from nacl.encoding import URLSafeBase64Encoder
from nacl.public import PrivateKey, SealedBox

from kvaudit.lab.fleet import ENVIRONMENT
from kvaudit.server.ops import embedded
from tests.flows.product import ROOT, Product
from tests.waiting import PATIENCE

pytestmark = [pytest.mark.slow, pytest.mark.drill]

SECRET = "PatientK50"
DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
CHECKS = ["accounting", "rejection", "coherence", "canary"]


class Lab:
    """`kvaudit lab serve` in a process of its own."""

    def __init__(self, *options: str) -> None:
        command = [sys.executable, "-m", "kvaudit.cli", "lab", "serve", "--json", *options]
        self.process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout
        self.about = json.loads(self.process.stdout.readline())

    def customer(self, prompt: str) -> None:
        """One ordinary request with the first tenant's key."""
        body = json.dumps({"model": self.about["model"], "prompt": prompt, "max_tokens": 4}).encode()
        headers = {
            "Content-Type": "application/json",
            "Authorization": f"Bearer {self.about['tenants'][0]['key']}",
        }
        request = urllib.request.Request(self.about["entry"] + "/v1/completions", body, headers)
        with DIRECT.open(request, timeout=PATIENCE) as answer:
            assert answer.status == 200
            answer.read()

    def described(self, slug: str, **more: object) -> dict[str, object]:
        return {
            "slug": slug,
            "team": "lab",
            "engine": "sglang",
            "entry": self.about["entry"],
            "model": self.about["model"],
            "context": self.about["context"],
            "consent": True,
            "nodes": [{"name": f"{node['role']}-0", **node} for node in self.about["nodes"]],
            "tenants": [
                {"name": "a", "key_env": "KVAUDIT_LAB_TENANT_A"},
                {"name": "b", "key_env": "KVAUDIT_LAB_TENANT_B"},
            ],
            **more,
        }

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(PATIENCE)
        if self.process.stdout:
            self.process.stdout.close()


@contextmanager
def entry(lab: Lab, before: Callable[[], object]) -> Iterator[str]:
    """The address of an entry that calls ``before`` whenever a prompt comes."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if "tokenize" not in self.path:
                before()
            self.forward(body)

        def do_GET(self) -> None:
            self.forward(None)

        def forward(self, body: bytes | None) -> None:
            kept = {
                name: self.headers[name] for name in ("Authorization", "Content-Type") if self.headers[name]
            }
            request = urllib.request.Request(lab.about["entry"] + self.path, body, kept)
            try:
                answer = DIRECT.open(request, timeout=PATIENCE)
            except urllib.error.HTTPError as refused:
                answer = refused
            with answer:
                said = answer.read()
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.headers["Content-Type"])
            self.send_header("Content-Length", str(len(said)))
            self.end_headers()
            self.wfile.write(said)

        def log_message(self, *said: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(PATIENCE)


class Flow:
    def __init__(self, product: Product, private: PrivateKey) -> None:
        self.house, self.private = product, private
        self.pace = 0.0  # seconds that the fixed engine takes for a prompt

    def fixed_engine_answers(self) -> None:
        threading.Event().wait(self.pace)

    def act(self, *arguments: str) -> str:
        return self.house._python("-m", "tests.flows.act", *arguments)

    def audit(self, slug: str, *checks: str) -> int:
        return int(self.act("audit", slug, ",".join(checks)))

    def ended(self, run: int, seconds: float = 3 * PATIENCE) -> tuple[str, str, str]:
        ends = "SELECT state, verdict, summary FROM audits_run WHERE id = %s AND verdict IS NOT NULL"
        return self.house.until(lambda: self.house.rows(ends, run), f"run {run} ends", seconds)[0]

    def results(self, run: int) -> dict[str, tuple[str, str]]:
        rows = self.house.rows("SELECT check_id, verdict, severity FROM audits_result WHERE run_id = %s", run)
        return {check: (verdict, severity) for check, verdict, severity in rows}

    def opened(self, run: int) -> list[str]:
        """The sealed texts of a run, by the key that only this test has."""
        rows = self.house.rows(
            "SELECT e.body FROM audits_runevidence r JOIN audits_evidence e ON e.sha256 = r.evidence_id"
            " WHERE r.run_id = %s AND r.kind = 'sealed'",
            run,
        )
        box = SealedBox(self.private)
        return [box.decrypt(zlib.decompress(bytes(body))).decode() for (body,) in rows]


@pytest.fixture(scope="module")
def flow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flow]:
    private = PrivateKey.generate()
    product = Product(concurrency=2)
    product.env |= dict(ENVIRONMENT)
    product.env |= {
        "SEAL_PUBLIC_KEY": private.public_key.encode(URLSafeBase64Encoder).decode(),
        "LOG_LEVEL": "DEBUG",
    }
    labs: list[Lab] = []
    rooms = ExitStack()
    try:
        product.open()
        labs = [
            Lab("--fault", "stale_pages", "--time-scale", "0"),
            Lab("--fault", "healthy", "--time-scale", "0"),
        ]
        flow = Flow(product, private)
        # A customer's request is served before every prompt: what is left in the pool is always the customer's.
        busy = rooms.enter_context(entry(labs[0], lambda: labs[0].customer(f"{SECRET} " * 480)))
        fixed = rooms.enter_context(entry(labs[1], flow.fixed_engine_answers))
        nightly = {"name": "nightly", "checks": CHECKS, "every": "1d"}
        fleet = {
            "schema": "kvaudit.fleet/1",
            "deployments": [
                labs[0].described("leaking", entry=busy, plans=[nightly]),
                labs[1].described("fixed", entry=fixed, plans=[nightly]),
            ],
        }
        path = tmp_path_factory.mktemp("fleet") / "fleet.yaml"
        path.write_text(json.dumps(fleet))
        flow.act("import", str(path))
        product.start_worker()
        product.start_beat()
        yield flow
    finally:
        product.close()
        rooms.close()
        for lab in labs:
            lab.stop()


def run_of(flow: Flow, slug: str) -> int:
    query = "SELECT r.id FROM audits_run r JOIN fleet_deployment d ON d.id = r.deployment_id WHERE d.slug = %s AND slot IS NOT NULL"
    return int(flow.house.until(lambda: flow.house.rows(query, slug), f"{slug} is due")[0][0])


def test_the_nightly_plan_tells_the_leaking_engine_from_the_fixed_one(flow: Flow) -> None:
    leaking, fixed = run_of(flow, "leaking"), run_of(flow, "fixed")
    assert flow.ended(leaking)[:2] == ("finished", "fail")
    found = flow.results(leaking)
    assert found["accounting"][0] == "pass"
    assert found["rejection"] == ("fail", "critical")
    assert found["canary"] == found["coherence"] == ("inconclusive", ""), "the first hit ends the set"

    state, verdict, summary = flow.ended(fixed)
    assert (state, verdict) == ("finished", "pass"), summary
    assert flow.results(fixed) == dict.fromkeys(CHECKS, ("pass", ""))

    states = "SELECT check_id, verdict FROM audits_checkstate s JOIN fleet_deployment d ON d.id = s.deployment_id WHERE d.slug = 'leaking' AND closed_at IS NULL"
    assert dict(flow.house.rows(states))["rejection"] == "fail"
    told = flow.house.rows("SELECT subject FROM notify_outboxmessage WHERE event = 'fail'")
    assert any("rejection" in subject for (subject,) in told)
    assert flow.house.one("SELECT count(*) FROM ledger_entry WHERE kind = 'run.finished'") == 2
    assert flow.house.one("SELECT min(tokens_spent) FROM audits_run WHERE slot IS NOT NULL") > 5_000
    planted = flow.house.rows("SELECT run_id, jsonb_array_length(markers) FROM audits_planting")
    assert dict(planted)[fixed] > 300


def test_a_customers_secret_is_nowhere_but_sealed(flow: Flow) -> None:
    leaking = run_of(flow, "leaking")
    flow.ended(leaking)
    assert any(SECRET in text for text in flow.opened(leaking)), "it did leak"

    dump = subprocess.run(
        [flow.house.postgres.binaries / "pg_dump", flow.house.postgres.url(embedded.OWNER_ROLE)],
        capture_output=True,
        check=True,
        env={**os.environ, "PGTZ": "UTC"},
    ).stdout
    assert b"audits_evidence" in dump
    assert SECRET.encode() not in dump
    assert SECRET.encode().hex().encode() not in dump
    for (body,) in flow.house.rows("SELECT body FROM audits_evidence"):
        assert SECRET.encode() not in zlib.decompress(bytes(body))
    shown = flow.act("pages", str(leaking))
    assert "Open sealed text" in shown
    assert SECRET not in shown
    logs = [path for path in flow.house.state.rglob("*.log") if path.is_file()]
    assert len(logs) >= 4
    for path in logs:
        assert SECRET.encode() not in path.read_bytes(), path.name
    assert flow.private.encode(URLSafeBase64Encoder).decode() not in str(flow.house.env)


def test_a_pause_stops_a_run_that_is_under_way(flow: Flow) -> None:
    flow.ended(run_of(flow, "fixed"))
    before = (
        "SELECT state.last_confirmed, state.verdict FROM audits_checkstate state "
        "JOIN fleet_deployment deployment ON deployment.id = state.deployment_id "
        "WHERE state.check_id = 'canary' AND state.closed_at IS NULL AND deployment.slug = 'fixed'"
    )
    confirmed = flow.house.rows(before)
    assert confirmed
    flow.pace = 1.0  # hundreds of prompts are still to come when the pause does
    run = flow.audit("fixed", "canary")
    spent = "SELECT tokens_spent FROM audits_run WHERE id = %s"
    flow.house.until(lambda: flow.house.one(spent, run) > 0, "prompts are being sent")
    flow.act("pause", "fixed")
    state, verdict, summary = flow.ended(run)
    assert (state, verdict) == ("cancelled", "inconclusive")
    assert "paused by system:flows" in summary
    assert flow.house.rows(before) == confirmed, "a run that was stopped says nothing about the target"
