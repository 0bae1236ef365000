"""Targets out of flags and files, with keys out of the environment."""

import pytest

from kvaudit.auditor import targets
from kvaudit.auditor.checks.contract import Rules
from kvaudit.auditor.targets import TargetError, from_file, from_flags

FILE = """\
schema: kvaudit.fleet/1
deployments:
  - slug: glm
    engine: sglang
    context: 1048576
    edge_limit: 900000
    disagg_buffer: 2000000
    components: {mooncake: 0.3.13}
    conditions: {hicache: false}
    headroom: 1.5
    pins: ["sglang>=0.5.23"]
    consent: true
    nodes:
      - {name: p0, role: prefill, url: "http://10.0.0.7:30000", headers_env: {X-Key: P0_KEY}, ca_file: ca.pem}
      - {name: d0, role: decode, url: "http://10.0.0.8:30000", key_env: D0_KEY, engine: vllm}
    entry_sets_salts: true
    tenants: [{name: a, key_env: KEY_A, salt_env: SALT_A}]
  - slug: qwen
    nodes: [{url: "http://10.0.1.7:8000"}]
"""
KEYS = {"P0_KEY": "p-secret", "D0_KEY": "d-secret", "KEY_A": "a-secret", "SALT_A": "salt-secret"}


class TestFlags:
    def test_roles_names_and_defaults(self):
        target = from_flags(
            ["prefill=http://a:1", "prefill=http://b:1/", "decode=http://c:1", "http://d:1"], environ={}
        )
        assert [(node.name, node.role, node.url) for node in target.nodes] == [
            ("prefill-0", "prefill", "http://a:1"),
            ("prefill-1", "prefill", "http://b:1"),
            ("decode-0", "decode", "http://c:1"),
            ("node-0", "", "http://d:1"),
        ]
        assert target.rules == Rules()
        assert not target.complete  # nobody said that these are all
        assert not target.consent

    def test_rules(self):
        target = from_flags(
            ["http://a:1"],
            context="1_048_576",
            edge_limit=900_000,
            headroom="1.5",
            pins=["vllm>=0.29.0"],
            environ={},
        )
        assert target.rules == Rules(
            headroom=1.5, pins=("vllm>=0.29.0",), context=1_048_576, edge_limit=900_000
        )

    def test_keys_come_from_the_environment_and_stay_out_of_sight(self):
        target = from_flags(
            ["http://a:1"],
            api_key_env="K",
            tenant_key_envs=("A", "B"),
            entry="http://llm:1",
            environ={"K": "node-secret", "A": "a-secret", "B": "b-secret"},
        )
        assert target.nodes[0].credentials.headers == (("Authorization", "Bearer node-secret"),)
        assert [(tenant.name, tenant.credentials.headers[0][1]) for tenant in target.tenants] == [
            ("a", "Bearer a-secret"),
            ("b", "Bearer b-secret"),
        ]
        assert "secret" not in repr(target)

    @pytest.mark.parametrize(
        ("nodes", "flags", "said"),
        [
            (["prefil=http://a:1"], {}, "role 'prefil' is unknown"),
            (["a:1"], {}, "must begin with http"),
            (["http://u:hunter2@a:1"], {}, "carries credentials"),
            (["http://a:1", "http://a:1/"], {}, "given twice"),
            (["http://a:1"], {"engine": "sglnag"}, "did you mean sglang?"),
            (["http://a:1"], {"headroom": 0.9}, "1.0 is the least allowed"),
            (["http://a:1"], {"headroom": float("nan")}, "must be a number"),
            (["http://a:1"], {"context": 0}, "--context"),
            (["http://a:1"], {"edge_limit": "x"}, "--edge-limit"),
            (["http://a:1"], {"pins": ["sglang"]}, "an engine and a range"),
            (["http://a:1"], {"entry": "llm"}, "--entry"),
            (
                ["http://a:1"],
                {"api_key_env": "MISSING"},
                "environment variable MISSING for --api-key-env is not set",
            ),
            (["http://a:1"], {"tenant_key_envs": ("MISSING",)}, "--tenant-a-key-env"),
            (["http://a:1"], {"api_key_env": "ODD"}, "no HTTP header may carry"),
        ],
    )
    def test_mistakes_are_sentences(self, nodes, flags, said):
        with pytest.raises(TargetError, match=said) as caught:
            from_flags(nodes, **flags, environ={"ODD": "sécret\n"})
        assert "hunter2" not in str(caught.value)
        assert "cret" not in str(caught.value).replace("secret", "")

    def test_other_spellings_of_an_engine(self):
        assert from_flags(["http://a:1"], engine="TensorRT-LLM", environ={}).nodes[0].engine == "trtllm"


class TestFile:
    def test_deployments_become_complete_targets(self, tmp_path):
        path = tmp_path / "fleet.yaml"
        path.write_text(FILE)
        glm, qwen = from_file(path, environ=KEYS)
        assert glm.complete
        assert glm.consent
        assert glm.rules == Rules(
            headroom=1.5,
            pins=("sglang>=0.5.23",),
            context=1_048_576,
            edge_limit=900_000,
            disagg_buffer=2_000_000,
            conditions={"hicache": False},
            components={"mooncake": "0.3.13"},
        )
        prefill, decode = glm.nodes
        assert prefill.credentials.headers == (("X-Key", "p-secret"),)
        assert prefill.credentials.ca_file == "ca.pem"
        assert decode.credentials.headers == (("Authorization", "Bearer d-secret"),)
        assert (prefill.engine, decode.engine) == ("sglang", "vllm")
        assert glm.tenants[0].credentials.headers == (("Authorization", "Bearer a-secret"),)
        assert (glm.tenants[0].salt, glm.entry_sets_salts) == ("salt-secret", True)
        assert qwen.rules == Rules()
        assert qwen.nodes[0].engine == "auto"
        assert "secret" not in repr((glm, qwen))

    def test_whoever_only_reads_nodes_needs_no_tenants_key(self, tmp_path):
        path = tmp_path / "fleet.yaml"
        path.write_text(FILE)
        of_nodes = {name: value for name, value in KEYS.items() if value not in ("a-secret", "salt-secret")}
        with pytest.raises(TargetError, match="for tenant"):
            from_file(path, environ=of_nodes)
        glm, _ = from_file(path, environ=of_nodes, as_tenants=False)
        assert (glm.tenants, glm.nodes[0].credentials.headers) == ((), (("X-Key", "p-secret"),))

    def test_one_deployment_is_chosen_by_its_slug(self, tmp_path):
        path = tmp_path / "fleet.yaml"
        path.write_text(FILE)
        assert [each.slug for each in from_file(path, deployment="qwen", environ={})] == ["qwen"]
        with pytest.raises(TargetError, match="no deployment 'x'; it describes glm, qwen"):
            from_file(path, deployment="x", environ={})

    def test_csv_by_its_suffix(self, tmp_path):
        path = tmp_path / "fleet.csv"
        path.write_text("slug,role,url\nglm,prefill,http://10.0.0.7:30000\n")
        (target,) = from_file(path, environ={})
        assert (target.slug, target.nodes[0].role, target.complete) == ("glm", "prefill", True)

    @pytest.mark.parametrize(
        ("content", "said"),
        [
            (FILE, "environment variable P0_KEY for node p0 of glm is not set"),
            (FILE.replace("prefill", "prefil"), "line 14: role 'prefil' is unknown"),
            ("", "is empty"),
            ("x" * (5 * 1024 * 1024), "at most"),
        ],
    )
    def test_mistakes_are_sentences(self, tmp_path, content, said):
        path = tmp_path / "fleet.yaml"
        path.write_text(content)
        with pytest.raises(TargetError, match=said):
            from_file(path, environ={})

    def test_a_file_that_cannot_be_read(self, tmp_path):
        with pytest.raises(TargetError, match="cannot be read: No such file"):
            from_file(tmp_path / "absent.yaml", environ={})
        with pytest.raises(TargetError, match="cannot be read: Is a directory"):
            from_file(tmp_path, environ={})


def test_yaml_is_imported_only_when_a_file_is_read():
    """Its import and parsing would cost most of a gate's time."""
    import subprocess
    import sys

    script = (
        "import sys; from kvaudit.auditor import targets; targets.from_flags(['http://a:1'], environ={});"
        "print([name for name in ('yaml', 'csv', 'django', 'kvaudit.auditor.fleetfile.from_yaml') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_everything_promised_is_there():
    for name in targets.__all__:
        assert hasattr(targets, name)
