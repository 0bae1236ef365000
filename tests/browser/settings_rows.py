"""Rows for the pages of channels, pins and the ledger: every state there is, hostile words included."""

from __future__ import annotations

from datetime import timedelta

from django.utils import timezone

from kvaudit.server.fleet.models import NodeSnapshot
from kvaudit.server.fleet.services import set_pin
from kvaudit.server.ledger import tasks, verify_job
from kvaudit.server.ledger.models import Verification
from kvaudit.server.ledger.services import Act, record_all
from kvaudit.server.notify.models import Channel, OutboxMessage
from kvaudit.server.notify.services import create_channel, send_test
from tests.browser.test_pages import EVIL
from tests.factories import a_node, a_team
from tests.server.web import builders

HOOK = "https://hooks.example.org/services/secret-path"


def channel_pages() -> dict[str, str]:
    now = timezone.now()
    team = a_team("messages")
    chat = create_channel(kind="webhook", name="Chat room", address=HOOK, actor="system:tests")[0]
    off = create_channel(
        kind="email",
        name=EVIL[:100],
        address=f"{'w' * 60}@example.org",
        team=team,
        events=["overdue"],
        actor="system:tests",
    )[0]
    Channel.objects.filter(pk=off.pk).update(enabled=False)
    off.refresh_from_db()
    states = (
        {"state": "sent", "attempts": 3, "sent_at": now},
        {"state": "failed", "attempts": 12, "last_problem": "https://hooks.example.org/... answered 500; " + EVIL[:400]},
        {"attempts": 2, "last_problem": EVIL[:500], "next_attempt_at": now + timedelta(minutes=9), "subject": EVIL[:300]},
        {"attempts": 1},
        {"created_at": now - timedelta(hours=1), "next_attempt_at": now - timedelta(hours=1)},
    )  # fmt: skip
    made = []
    for channel in (chat, off):
        for fields in states:
            message = send_test(channel=channel, actor="system:tests")
            OutboxMessage.objects.filter(pk=message.pk).update(**fields)
            made.append(message)
    return {
        "channels": "/settings/channels/",
        "channel new": "/settings/channels/new/",
        "channel": f"/settings/channels/{chat.pk}/?message={made[1].pk}",
        "channel failing": f"/settings/channels/{chat.pk}/?message={made[2].pk}",
        "channel off": f"/settings/channels/{off.pk}/?message={made[7].pk}",
    }


def pin_pages() -> dict[str, str]:
    team = a_team("pinned")
    old = builders.a_pair("pin-old", team=team, version="0.5.19")
    a_node(old, "decode-1")
    odd = builders.a_pair("pin-odd", team=team)
    NodeSnapshot.objects.filter(node__deployment=odd).update(version=EVIL[:300])
    builders.a_pair("pin-met", team=team)
    NodeSnapshot.objects.filter(node__deployment=builders.a_pair("pin-none", team=team)).update(engine="vllm")
    set_pin(engine="sglang", specifier=">=0.5.21", actor="system:tests", reason=EVIL)
    for specifier in ("==0.5.18", "==0.5.19", ">=0.5.22,<0.6"):
        set_pin(engine="sglang", specifier=specifier, actor="system:tests", deployment=old, reason=EVIL)
    return {
        "pins": "/settings/pins/",
        "no pin found": "/settings/pins/?q=zzz",
        "pin": "/settings/pins/pin-old/",
        "pin odd": "/settings/pins/pin-odd/",
        "pin met": "/settings/pins/pin-met/",
    }


def ledger_pages() -> dict[str, str]:
    acts = [
        Act("odd." + "w" * 80, EVIL[:300].replace("\x00", "")),
        Act("pin.set", "deployment:pin-old pin sglang"),
    ]
    record_all(actor="user:" + "x" * 150, acts=[*acts, *(Act("run.finished", f"run:{n}") for n in range(70))])
    tasks.verify(verify_job.begin(actor="system:tests").pk)
    waiting = verify_job.begin(actor="system:tests")
    Verification.objects.filter(pk=waiting.pk).update(entries=40)
    return {
        "ledger": "/settings/ledger/",
        "ledger older": "/settings/ledger/?before=20",
        "ledger filtered away": "/settings/ledger/?kind=zzz",
        "ledger hash": f"/settings/ledger/?hash={'0' * 64}",
    }
