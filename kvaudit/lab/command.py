"""``kvaudit lab serve | faults | matrix | fleet | restart | story``."""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any

from kvaudit.auditor.commands import arguments as flags
from kvaudit.lab import BANNER
from kvaudit.lab.config import FREE_LISTS


def main(argv: Sequence[str]) -> int:
    """Run a lab command. Exit 0 when it did what was asked, 1 when the matrix differs, 3 on misuse (with
    ``--json`` a report says so as well)."""
    wanted = ("numpy", "scipy", "starlette", "threadpoolctl", "uvicorn")
    missing = [name for name in wanted if find_spec(name) is None]
    if missing:
        return flags.refuse(f"The lab needs {', '.join(missing)}: install kvaudit[lab].", argv)
    try:
        chosen = _parser().parse_args(argv)
        return int(chosen.run(chosen))
    except (flags.UsageError, ValueError, OSError) as problem:
        return flags.refuse(f"kvaudit lab: {problem}", argv)
    except KeyboardInterrupt:
        return 0


def _parser() -> argparse.ArgumentParser:
    parser = flags.Parser(prog="kvaudit lab", description=BANNER)
    commands = parser.add_subparsers(dest="command", required=True, parser_class=flags.Parser)

    serve = commands.add_parser("serve", help="start a lab deployment and serve until stopped")
    serve.add_argument(
        "--fault", action="append", default=[], help="see `kvaudit lab faults`; may be repeated"
    )
    serve.add_argument("--flavour", choices=("sglang", "vllm"), default="sglang")
    serve.add_argument("--scale", choices=("small", "incident"), default="small")
    serve.add_argument("--unified", action="store_true", help="one node instead of prefill and decode")
    serve.add_argument("--prefill-pool", type=_tokens, metavar="T", help="tokens (also the unified pool)")
    serve.add_argument("--decode-pool", type=_tokens, metavar="T", help="tokens")
    serve.add_argument("--engine-version", metavar="V")
    serve.add_argument("--prefix-cache", choices=("salted", "shared", "off"))
    serve.add_argument("--temperature", type=float, help="default temperature, 0 is greedy")
    serve.add_argument("--time-scale", type=float, help="factor on all simulated durations; 0 = none")
    serve.add_argument("--free-list", choices=FREE_LISTS, help="which page goes out next (lab/pool.py)")
    serve.add_argument(
        "--customers", type=int, metavar="N", help="requests of other customers before each one of a tenant"
    )
    serve.add_argument("--node-key", help="key that the nodes themselves ask for (default: none)")
    serve.add_argument("--no-cache-report", action="store_true", help="usage without cached_tokens")
    serve.add_argument("--seed", type=int)
    serve.add_argument("--port", type=int, default=0, help="port of the router (default: any)")
    serve.add_argument("--json", action="store_true", help="print one line that describes the deployment")
    serve.set_defaults(run=_serve)

    faults = commands.add_parser("faults", help="list the faults and the reports they stand for")
    faults.add_argument("--json", action="store_true")
    faults.set_defaults(run=_faults)

    matrix = commands.add_parser("matrix", help="every fault x every check, expected and found")
    matrix.add_argument("--fault", action="append", default=[])
    matrix.add_argument("--check", action="append", default=[])
    matrix.add_argument(
        "--jobs", type=int, default=0, metavar="N", help="cells at a time (default: processors)"
    )
    matrix.add_argument("--json", action="store_true")
    matrix.set_defaults(run=_matrix)

    fleet = commands.add_parser("fleet", help="serve the demo fleet: three deployments for `make up`")
    fleet.add_argument("--state", required=True, metavar="DIR", help="where fleet.json and keys are written")
    fleet.add_argument("--json", action="store_true", help="print one line: the fleet and its key file")
    fleet.set_defaults(run=_fleet)

    restart = commands.add_parser("restart", help="give a deployment of the running demo fleet another fault")
    restart.add_argument("slug", help="such as lab-leaking")
    restart.add_argument(
        "--fault", default="healthy", help="see `kvaudit lab faults` (default: healthy, the fix)"
    )
    restart.add_argument("--state", required=True, metavar="DIR", help="the fleet's folder")
    restart.add_argument("--seconds", type=float, default=60.0, help="patience")
    restart.set_defaults(run=_restart)

    story = commands.add_parser(
        "story", help="mend the leaking deployment of a running `make up`, prove it, and close its incident"
    )
    story.add_argument(
        "--state", metavar="DIR", default="", help="folder of the running product (KVAUDIT_STATE)"
    )
    story.set_defaults(run=_story)
    return parser


def _tokens(text: str) -> int:
    value = int(text.replace("_", "").replace(",", ""))
    if value < 64:
        raise argparse.ArgumentTypeError("a pool holds at least 64 tokens")
    return value


def _serve(chosen: argparse.Namespace) -> int:
    from kvaudit.lab.config import LabConfig
    from kvaudit.lab.deployment import with_options

    config = with_options(
        LabConfig(flavour=chosen.flavour, scale=chosen.scale, unified=chosen.unified),
        prefill_pool=chosen.prefill_pool,
        decode_pool=chosen.decode_pool,
        engine_version=chosen.engine_version,
        prefix_cache=chosen.prefix_cache,
        temperature=chosen.temperature,
        time_scale=chosen.time_scale,
        order=chosen.free_list,
        customers=chosen.customers,
        node_key=chosen.node_key,
        cache_report=False if chosen.no_cache_report else None,
        seed=chosen.seed,
    )
    asyncio.run(_serve_until_stopped(config, chosen.fault, chosen.port, chosen.json))
    return 0


async def _serve_until_stopped(config: Any, faults: Sequence[str], port: int, as_json: bool) -> None:
    from kvaudit.lab.serve import serve, until_stopped

    running = await serve(config, faults, port)
    about = running.described()
    if as_json:
        print(json.dumps(about), flush=True)
    else:
        print(BANNER)
        print(
            f"{about['engine']} {about['version']}, fault: {about['faults']}, context {about['context']:,} tokens"
        )
        print(f"entry    {about['entry']}")
        for node in about["nodes"]:
            print(f"{node['role']:<8} {node['url']}  pool {about['pools'][node['role']]:,} tokens")
        for tenant in about["tenants"]:
            print(f"{tenant['name']:<8} Authorization: Bearer {tenant['key']}")
        print("Ctrl-C stops it.", flush=True)
    try:
        await until_stopped()
    finally:
        await running.stop()


def _faults(chosen: argparse.Namespace) -> int:
    import inspect

    from kvaudit.lab.faults import known

    listed = [
        {
            "name": name,
            "nature": fault.nature.value,
            "reports": list(fault.reports),
            "flavours": list(fault.flavours),
            "about": " ".join((inspect.getdoc(fault) or "").split()),
        }
        for name, fault in known().items()
    ]
    if chosen.json:
        print(json.dumps(listed))
        return 0
    for fault in listed:
        print(f"{fault['name']:<24} {fault['nature']}: {fault['about']}")
        if fault["reports"]:
            print(f"{'':<24} stands for: {', '.join(fault['reports'])}")
    return 0


def _matrix(chosen: argparse.Namespace) -> int:
    from kvaudit.lab.matrix import command

    return command(chosen.fault, chosen.check, as_json=chosen.json, jobs=chosen.jobs)


def _restart(chosen: argparse.Namespace) -> int:
    from kvaudit.lab.restart import restart_command

    return restart_command(chosen.state, chosen.slug, chosen.fault, seconds=chosen.seconds)


def _story(chosen: argparse.Namespace) -> int:
    from kvaudit.lab.restart import command

    return command(["--state", chosen.state] if chosen.state else [])


def _fleet(chosen: argparse.Namespace) -> int:
    from kvaudit.lab.fleet import command

    return command(chosen.state, as_json=chosen.json)
