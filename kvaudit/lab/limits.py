"""Decides at intake what each engine accepts, refuses at the tokenizer, or marks for the scheduler to abort."""

from __future__ import annotations

from kvaudit.lab.clock import now
from kvaudit.lab.config import LabConfig
from kvaudit.lab.pool import KVPool
from kvaudit.lab.request import Call, Refused, Request


class NodeLimits:
    """What follows from a node's settings and its pool (SGLang tp_worker.py: max_req_input_len =
    min(context, pool) - 6)."""

    config: LabConfig
    pool: KVPool

    @property
    def context(self) -> int:
        return self.config.context_tokens

    @property
    def max_req_len(self) -> int:
        return min(self.context, self.pool.capacity) - 1

    @property
    def max_req_input_len(self) -> int:
        return self.max_req_len - 5


def intake(node: NodeLimits, call: Call) -> Request:
    """A request within ``node``'s limits, or marked with an abort; raises Refused when the front
    door answers and nothing is queued."""
    if node.config.flavour == "vllm":
        room = vllm_room(len(call.input_ids), call.max_new_tokens, node.context, node.config.version)
        return Request(call, call.input_ids, room, now())
    return _sglang_intake(node, call)


def _sglang_intake(node: NodeLimits, call: Call) -> Request:
    """SGLang: the tokenizer manager compares with the context, the scheduler with
    ``max_req_input_len`` (tokenizer_manager.py:1338, managers/utils.py:267)."""
    truncates = node.config.allow_auto_truncate
    if not truncates:
        _sglang_context(len(call.input_ids), call.max_new_tokens, node.context)
    tokens = call.input_ids[: node.max_req_input_len - 1] if truncates else call.input_ids
    request = Request(call, tokens, call.max_new_tokens, now())
    if len(tokens) >= node.max_req_input_len:
        request.set_finish_with_abort(
            f"Input length ({len(tokens)} tokens) exceeds the maximum allowed length "
            f"({node.max_req_input_len} tokens). Use a shorter input or enable --allow-auto-truncate."
        )
    else:
        request.max_new_tokens = max(0, min(call.max_new_tokens, node.max_req_len - len(tokens) - 1))
    return request


def _sglang_context(asked: int, wanted: int, context: int) -> None:
    if asked >= context:
        raise Refused(
            f"The input ({asked} tokens) is longer than the model's context length ({context} tokens)."
        )
    if asked + wanted > context:
        raise Refused(
            f"Requested token count exceeds the model's maximum context length of {context} tokens. "
            f"You requested a total of {asked + wanted} tokens: {asked} tokens from the input messages "
            f"and {wanted} tokens for the completion. Please reduce the number of tokens in the input "
            "messages or the completion to fit within the limit."
        )


def vllm_room(asked: int, wanted: int, limit: int, version: str) -> int:
    """vLLM's length rules: the output limit that remains, or Refused. From 0.32 what is asked for is clamped,
    before that a sum above the limit is refused (reference: recorded answers of 0.32.0 and 0.27.1)."""
    if asked > limit:
        raise Refused(
            f"This model's maximum context length is {limit} tokens. However, your prompt contains at least "
            f"{limit + 1} input tokens, which exceeds this limit even without any output tokens. Please "
            f"reduce the length of the input prompt. (parameter=input_tokens, value={limit + 1})",
            param="input_tokens",
        )
    if asked == limit:
        raise Refused(
            "max_tokens must be at least 1, got 0. (parameter=max_tokens, value=0)", param="max_tokens"
        )
    if asked + wanted > limit and _before(version, (0, 32)):
        raise Refused(
            f"This model's maximum context length is {limit} tokens. However, you requested {wanted} output "
            f"tokens and your prompt contains {asked} input tokens, for a total of {asked + wanted} tokens. "
            "Please reduce the length of the input prompt or the number of requested output tokens. "
            f"(parameter=input_tokens, value={asked})",
            param="input_tokens",
        )
    return min(wanted, limit - asked)


def _before(version: str, release: tuple[int, int]) -> bool:
    numbers = version.split("+")[0].split(".")
    try:
        return (int(numbers[0]), int(numbers[1])) < release
    except (ValueError, IndexError):
        return False
