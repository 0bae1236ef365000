"""The CSV fleet file: one row per node."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvaudit.auditor.fleetfile import parse_fleet_csv

HEADER = "slug,team,contact,context,consent,tenants,name,role,url,headers_env,key_env\n"
ROWS = (
    'glm,inference,+49 30 1234,"1,048,576",yes,a=KEY_A;b=KEY_B,p0,prefill,http://10.0.0.7:30000,X-Key=P0,\n'
    "glm,,,,,,,decode,http://10.0.0.8:30000,,D0_KEY\n"
    "\n"
    "qwen,research,,,,,,,http://10.0.1.7:8000,,\n"
)


def lines(text):
    return [(problem.line, problem.sentence) for problem in parse_fleet_csv(text).problems]


@pytest.mark.parametrize(
    "text", [HEADER + ROWS, ("\ufeff" + HEADER + ROWS).encode(), (HEADER + ROWS).replace("\n", "\r\n")]
)
def test_rows_become_deployments(text):
    fleet = parse_fleet_csv(text)
    assert fleet.problems == ()
    glm, qwen = fleet.deployments
    assert (glm.slug, glm.team, glm.contact, glm.context, glm.consent) == (
        "glm",
        "inference",
        "+49 30 1234",
        1_048_576,
        True,
    )
    assert [(node.name, node.role, node.key_env, node.line) for node in glm.nodes] == [
        ("p0", "prefill", "", 2),
        ("decode-1", "decode", "D0_KEY", 3),
    ]
    assert glm.nodes[0].headers_env == (("X-Key", "P0"),)
    assert [(tenant.name, tenant.key_env) for tenant in glm.tenants] == [("a", "KEY_A"), ("b", "KEY_B")]
    assert (qwen.slug, qwen.nodes[0].name) == ("qwen", "node-0")


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("", 1, "must name the columns"),
        ("slug,url\n", 0, "holds no node"),
        ("slug\na\n", 1, "column 'url' is missing"),
        ("slug,url,rol\na,http://h,x\n", 1, "did you mean role?"),
        ("slug,url,url\na,http://h,x\n", 1, "more than once"),
        ("slug,url\na\n", 2, "has 1 cells"),
        ("slug,url\na,http://h,extra\n", 2, "has 3 cells"),
        ("slug,url\n,http://h\n", 2, "has no slug"),
        ("slug,url\na,\n", 2, "has no url"),
        ("slug,url\nA B,http://h\n", 2, "lower-case letters"),
        ("slug,url\na,h\n", 2, "must begin with http"),
        ("slug,url\na,http://u:p@h\n", 2, "carries credentials"),
        ("slug,url,owner\na,http://h,=HYPERLINK(1)\n", 2, "runs as a formula"),
        ("slug,url,owner\na,http://h,@SUM(1)\n", 2, "runs as a formula"),
        ("slug,url,owner\na,http://h,-2+3+cmd|x\n", 2, "runs as a formula"),
        ("slug,url,owner\na,http://h,+1+cmd\n", 2, "runs as a formula"),
        ("slug,url,context\na,http://h,lots\n", 2, "whole number of tokens"),
        ("slug,url,key_env\na,http://h,sk-123\n", 2, "never the key itself"),
        ("slug,url,headers_env\na,http://h,Authorization\n", 2, "name=VARIABLE"),
        ("slug,url,tenants\na,http://h,x=A;x=B\n", 2, "names 'x' twice"),
        ("slug,url\na,http://h\na,http://H\n", 3, "already used on line 2"),
        ("slug,url,name\na,http://h,n\na,http://i,n\n", 3, "already used on line 2"),
        ("slug,url,team\na,http://h,x\na,http://i,y\n", 3, "differs from line 2"),
        ('slug,url\n"a,http://h\n', 2, "no valid CSV"),
        ("slug,url\na,http://h\x00\n", 2, "NUL"),
        (b"slug,url\na,\xff\n", 2, "not UTF-8"),
        ("x" * (4 * 1024 * 1024 + 1), 0, "at most"),
        ("slug,url\n" + "a," + "x" * 200_000 + "\n", 2, "no valid CSV"),  # a cell beyond the reader's limit
    ],
)
def test_mistakes(text, line, said):
    assert any(at == line and said in sentence for at, sentence in lines(text)), lines(text)[:3]


def test_a_key_is_never_repeated():
    assert "sk-123" not in repr(lines("slug,url,key_env\na,http://h,sk-123\n"))


@given(st.one_of(st.text(max_size=200), st.binary(max_size=200)))
def test_arbitrary_content_never_raises(content):
    assert parse_fleet_csv(content).problems


@given(st.integers(0, len(HEADER + ROWS)), st.text(max_size=5))
def test_a_damaged_file_never_raises(at, noise):
    text = HEADER + ROWS
    parse_fleet_csv(text[:at] + noise + text[at:])
