"""The operator's egress list: what the server may connect to, in every spelling, through every client."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from ipaddress import ip_address

import pytest

from kvaudit.auditor.transport import AddressDenied, Client, TransportError, egress
from kvaudit.auditor.transport.addresses import checked_addresses, denied_reason, system_resolve
from kvaudit.auditor.transport.egress import Policy, spelled
from kvaudit.auditor.transport.rules import BadRule, parse_rule
from tests import servers

SERVER = Policy(guarded=True)


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    before = egress.current()
    yield
    egress.install(before)


def policy(*, allow: str = "", deny: str = "", own: tuple[tuple[str, int], ...] = ()) -> Policy:
    return Policy(
        tuple(map(parse_rule, allow.split())), tuple(map(parse_rule, deny.split())), own, guarded=True
    )


def refused(held: Policy, address: str, port: int = 2375, **names: list[str]) -> str:
    async def resolve(host: str, port: int) -> list[str]:
        if host not in names:
            raise OSError(-2, "Name or service not known")
        return names[host]

    return asyncio.run(held.refusal(ip_address(address), port, resolve))


LOOPBACK = [
    "127.0.0.1",
    "127.8.9.10",
    "::1",
    "::1%lo",
    "::ffff:127.0.0.1",
    "::127.0.0.1",
    "::ffff:0:127.0.0.1",
    "64:ff9b::7f00:1",
    "64:ff9b:1::7f00:1",
    "2002:7f00:1::",
    "2001:db8::5efe:127.0.0.1",
    "2001:db8::200:5efe:127.0.0.1",
]


@pytest.mark.parametrize("address", LOOPBACK)
def test_loopback_is_closed_in_the_server_under_every_spelling(address: str) -> None:
    assert "EGRESS_ALLOW" in refused(SERVER, address)
    assert not refused(egress.OPEN, address)


@pytest.mark.parametrize(
    "address",
    [
        "::ffff:0:169.254.169.254",
        "::ffff:0:100.100.100.200",
        "2001:db8::5efe:169.254.169.254",
        "2001:db8::200:5efe:a9fe:a9fe",
        "64:ff9b:1:a9fe:a9:fe00::",
    ],
)
def test_translated_and_isatap_spellings_of_metadata_addresses_are_forbidden(address: str) -> None:
    assert denied_reason(ip_address(address))


@pytest.mark.parametrize("address", ["10.0.0.7", "192.168.77.4", "fd12:3456::1", "100.64.0.1", "8.8.8.8"])
def test_other_machines_are_open(address: str) -> None:
    assert refused(SERVER, address) == ""


def test_every_address_of_this_machine_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(egress, "is_own", lambda address: address == ip_address("10.9.8.7"))
    assert "own machine" in refused(SERVER, "10.9.8.7")
    assert "own machine" in refused(policy(allow="10.0.0.0/8"), "10.9.8.7"), (
        "the fleet's network, not the host"
    )
    assert refused(policy(allow="10.9.8.7:8000"), "10.9.8.7", 8000) == ""


def test_the_kernel_tells_what_is_ours() -> None:
    assert egress.is_own(ip_address("127.0.0.1"))
    assert not egress.is_own(ip_address("192.0.2.1"))


def test_the_machine_under_a_container_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(egress, "gateway", lambda: ip_address("172.18.0.1"))
    assert "gateway" in refused(SERVER, "172.18.0.1")


@pytest.mark.parametrize(
    ("allow", "deny", "address", "port", "open_"),
    [
        ("127.0.0.1:8000", "", "127.0.0.1", 8000, True),
        ("127.0.0.1:8000", "", "::ffff:127.0.0.1", 8000, True),
        ("127.0.0.1:8000", "", "127.0.0.1", 8001, False),
        ("127.0.0.1:8000", "", "127.0.0.2", 8000, False),
        ("127.0.0.0/8", "", "127.0.0.1", 1, True),
        ("[::1]:8000", "", "::1", 8000, True),
        ("[::1]:8000", "", "127.0.0.1", 8000, False),
        ("0.0.0.0/0 [::]/0", "", "127.0.0.1", 8000, False),
        ("0.0.0.0/0 [::]/0", "", "::1", 8000, False),
        ("", "10.0.0.0/8", "10.1.2.3", 80, False),
        ("", "10.0.0.0/8:80-90", "10.1.2.3", 91, True),
        ("", "10.0.0.0/8", "::ffff:10.1.2.3", 80, False),
        ("10.1.0.0/16", "0.0.0.0/0 [::]/0", "10.1.2.3", 80, True),
        ("10.1.0.0/16", "0.0.0.0/0 [::]/0", "::ffff:10.1.2.3", 80, True),
        ("10.1.0.0/16", "0.0.0.0/0 [::]/0", "10.2.2.3", 80, False),
        ("10.1.0.0/16", "0.0.0.0/0 [::]/0", "fd00::1", 80, False),
        ("10.0.0.0/8", "10.1.2.3", "10.1.2.3", 80, False),
        ("10.1.2.3", "10.1.2.3", "10.1.2.3", 80, False),
        ("10.1.2.3:80", "10.1.2.3", "10.1.2.3", 80, True),
        ("10.1.2.3:80", "10.1.2.3", "10.1.2.3", 81, False),
    ],
)
def test_the_narrowest_rule_decides(allow: str, deny: str, address: str, port: int, open_: bool) -> None:
    assert (refused(policy(allow=allow, deny=deny), address, port) == "") is open_


@pytest.mark.parametrize("allow", ["", "127.0.0.0/8 [::1]", "127.0.0.1:5432", "10.5.0.0/16", "10.5.5.5:5432"])
@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "::ffff:127.0.0.1", "10.5.5.5"])
def test_no_rule_opens_the_doors_of_our_own_services(allow: str, address: str) -> None:
    held = policy(allow=allow, own=(("db", 5432), ("127.0.0.1", 5432)))
    assert "kvaudit's own services" in refused(held, address, 5432, db=["10.5.5.5"])


def test_a_service_that_listens_on_all_of_this_machine_is_ours_at_every_address_of_it() -> None:
    held = policy(allow="127.0.0.0/8", own=(("0.0.0.0", 8000),))
    assert "own services" in refused(held, "127.0.0.1", 8000)
    assert refused(held, "127.0.0.1", 8001) == ""


def test_hosts_of_our_services_are_closed_at_other_ports_until_they_are_allowed() -> None:
    assert "database" in refused(policy(own=(("db", 5432),)), "10.5.5.5", 8000, db=["10.5.5.5"])
    assert (
        refused(policy(allow="10.5.5.5:8000", own=(("db", 5432),)), "10.5.5.5", 8000, db=["10.5.5.5"]) == ""
    )


def test_a_rule_may_name_a_host() -> None:
    held = policy(deny="web registry:5000", allow="engine.example:8000")
    places = {"web": ["10.5.0.9"], "registry": ["10.5.0.8"], "engine.example": ["127.0.0.1"]}
    assert "EGRESS_DENY" in refused(held, "10.5.0.9", 8000, **places)
    assert refused(held, "10.5.0.8", 5001, **places) == ""
    assert refused(held, "127.0.0.1", 8000, **places) == ""


@pytest.mark.parametrize(
    "text",
    [
        "",
        "*",
        "10.0.0.5/8",
        "10.0.0.0/33",
        "x:0",
        "x:70000",
        "x:9-8",
        "2130706433",
        "127.1",
        "::1:80",
        "a b",
        "[::1",
    ],
)
def test_what_is_no_rule_gets_a_sentence(text: str) -> None:
    with pytest.raises(BadRule, match=r"is no rule|no usable ports|two ways"):
        parse_rule(text)


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "localhost",
        "LOCALHOST.",
        "a.localhost",
        "[::1]",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "127.1",
    ],
)
def test_spellings_that_need_no_lookup_are_refused_at_once(host: str) -> None:
    assert spelled(host) is not None
    assert "EGRESS_ALLOW" in SERVER.refusal_now(host, 8000)
    assert egress.OPEN.refusal_now(host, 8000) == ""
    assert "own services" in policy(own=(("127.0.0.1", 8000),)).refusal_now(host, 8000)


@pytest.mark.parametrize(
    "host", ["localhost", "2130706433", "0x7f000001", "0177.0.0.1", "127.1", "127.0.0.1"]
)
def test_a_client_sends_nothing_to_a_closed_door(host: str) -> None:
    async def main() -> tuple[int, str]:
        egress.install(SERVER)
        async with servers.serving(servers.html()) as server:
            client = Client(f"http://{host}:{server.port}", allow={("GET", "/")})
            async with client:
                with pytest.raises(AddressDenied) as caught:
                    await client.get("/")
            return len(server.requests), str(caught.value)

    requests, said = asyncio.run(main())
    assert requests == 0
    assert "EGRESS_ALLOW" in said


def test_one_closed_address_of_several_closes_the_name() -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return ["10.1.1.1", "127.0.0.1"]

    egress.install(SERVER)
    with pytest.raises(AddressDenied, match=r"two\.example leads to 127\.0\.0\.1"):
        asyncio.run(checked_addresses("two.example", 80, resolve))


def test_a_name_that_leads_elsewhere_the_second_time_is_judged_again() -> None:
    answers = iter([["10.1.1.1"], ["127.0.0.1"]])

    async def resolve(host: str, port: int) -> list[str]:
        return next(answers)

    egress.install(SERVER)
    assert asyncio.run(checked_addresses("rebind.example", 80, resolve)) == ["10.1.1.1"]
    with pytest.raises(AddressDenied):
        asyncio.run(checked_addresses("rebind.example", 80, resolve))


def test_a_redirect_to_a_closed_door_is_not_followed() -> None:
    async def main() -> tuple[int, int]:
        async with (
            servers.serving(servers.html()) as inside,
            servers.serving(servers.redirecting(f"http://127.0.0.1:{inside.port}/")) as outside,
        ):
            egress.install(policy(allow=f"127.0.0.1:{outside.port}"))
            async with Client(f"http://127.0.0.1:{outside.port}", allow={("GET", "/")}) as client:
                with pytest.raises(TransportError, match="never followed"):
                    await client.get("/")
            return len(outside.requests), len(inside.requests)

    assert asyncio.run(main()) == (1, 0)


def test_a_rule_whose_name_cannot_be_looked_up_does_not_hold_up_what_it_guards(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(egress, "PATIENCE", 0.02)

    async def resolve(host: str, port: int) -> list[str]:
        await asyncio.Event().wait()
        return []

    held = policy(deny="web")
    assert asyncio.run(held.refusal(ip_address("10.0.0.7"), 80, resolve)) == ""


def test_a_rule_whose_name_could_not_be_looked_up_is_tried_again_and_one_that_could_is_remembered() -> None:
    answers: list[list[str] | None] = [None, ["10.5.0.9"]]

    async def resolve(host: str, port: int) -> list[str]:
        found = answers.pop(0)
        if found is None:
            raise OSError(-3, "Temporary failure in name resolution")
        return found

    held = policy(deny="web")
    said = [asyncio.run(held.refusal(ip_address("10.5.0.9"), 80, resolve)) for _ in range(3)]
    assert [bool(each) for each in said] == [False, True, True]


def test_the_system_resolver_is_asked_for_spellings() -> None:
    egress.install(SERVER)
    with pytest.raises(AddressDenied):
        asyncio.run(checked_addresses("2130706433", 80, system_resolve))
