"""The gateways' answers are the lab's, but for what a case changes: else a case would be about the harness."""

from __future__ import annotations

import orjson
import pytest

from kvaudit.auditor.engines.sglang.adapter import ADAPTER
from kvaudit.auditor.prober.replies import ReplyText
from kvaudit.lab.clock import run_virtual
from kvaudit.lab.config import LabConfig
from kvaudit.lab.deployment import Deployment
from tests.lab.asking import AMBER, frames, nonce
from tests.redteam.answers import answer_of, answered
from tests.redteam.asked import CHAT, COMPLETIONS, GENERATE, Asked
from tests.redteam.gateway import Direct, Gateway
from tests.redteam.texts import copied

KEY = "sk-lab-tenant-a"
PROMPT = frames(AMBER, 1_200, nonce("walnut"))
FORMS = [(path, streamed) for path in (COMPLETIONS, CHAT, GENERATE) for streamed in (False, True)]
BODIES = {
    COMPLETIONS: {
        "prompt": list(PROMPT.encode()),
        "max_tokens": 40,
        "stream_options": {"include_usage": True},
    },
    CHAT: {
        "messages": [{"role": "user", "content": PROMPT}],
        "max_tokens": 40,
        "stream_options": {"include_usage": True},
    },
    GENERATE: {"input_ids": list(PROMPT.encode()), "sampling_params": {"max_new_tokens": 40}},
}


def _heard(status: int, content: bytes) -> ReplyText:
    assert status == 200, content
    said, dialect = ReplyText(), ADAPTER.dialect()
    frames = [frame[6:] for frame in content.split(b"\n\n") if frame.startswith(b"data: {")]
    for document in frames or [content]:
        said.add(dialect.parse(orjson.loads(document)))
    return said


def _asked(gateway, path: str, streamed: bool) -> ReplyText:
    async def main() -> ReplyText:
        deployment = Deployment(LabConfig(prefill_pool=16_384), ["healthy"])
        for port, api in enumerate(deployment.apis, 59_101):
            api.port = port
        applications = [application for _, application in deployment.applications()]
        answer = await answer_of(gateway(applications, 1), path, BODIES[path] | {"stream": streamed}, KEY)
        await deployment.stop()
        return _heard(answer.status_code, bytes(answer.body))

    return run_virtual(main())


@pytest.mark.parametrize(("path", "streamed"), FORMS)
def test_what_the_copier_says_is_what_the_labs_attention_says(path, streamed):
    copier, lab = _asked(Gateway, path, streamed), _asked(Direct, path, streamed)
    assert copier.text == lab.text
    assert "walnut" in copier.text
    assert (copier.prompt_tokens, copier.cached_tokens) == (lab.prompt_tokens, lab.cached_tokens)
    assert (copier.completion_tokens, copier.finish, copier.error) == (40, lab.finish, "")


@pytest.mark.parametrize(("path", "streamed"), FORMS)
def test_an_answer_may_be_replaced_in_every_form(path, streamed):
    class Foreign(Gateway):
        async def generation(self, asked: Asked):
            assert (asked.text, asked.tokens, asked.room, asked.streamed) == (PROMPT, 1_200, 40, streamed)
            return self.saying(asked, "marble kettle orchard")

    said = _asked(Foreign, path, streamed)
    assert (said.text, said.completion_tokens) == ("marble kettle orchard", 21)


@pytest.mark.parametrize(("path", "streamed"), FORMS)
def test_an_answer_that_no_engine_gave_has_every_form(path, streamed):
    class Guarded(Gateway):
        async def generation(self, asked: Asked):
            return answered(asked, "I cannot assist.", finish="content_filter")

    said = _asked(Guarded, path, streamed)
    assert (said.text, said.finish) == ("I cannot assist.", "content_filter")


def test_a_copier_that_knows_no_continuation_says_nothing_of_others():
    assert copied("abcdef", 4) == "    "
    assert copied("code: walnut. code:", 8) == " walnut."
