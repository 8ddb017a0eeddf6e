"""The older completions endpoint by openai-python against real processes."""

from __future__ import annotations

import openai
import pytest
from conftest import Server

PROMPT = "The three primary colours are"


def greedy(server: Server, **more: object) -> dict[str, object]:
    return {"model": server.model, "prompt": PROMPT, "temperature": 0, "max_tokens": 16} | more


def test_answer_and_stream(server: Server, client: openai.OpenAI) -> None:
    whole = client.completions.create(**greedy(server))
    assert whole.object == "text_completion"
    assert whole.choices[0].text
    assert whole.usage.completion_tokens <= 16
    chunks = list(client.completions.create(**greedy(server), stream=True))
    assert "".join(c.choices[0].text for c in chunks) == whole.choices[0].text
    assert chunks[-1].choices[0].finish_reason == whole.choices[0].finish_reason


def test_several_prompts(server: Server, client: openai.OpenAI) -> None:
    prompts = [PROMPT, "Water boils at", "Once upon a time"]
    alone = [client.completions.create(**greedy(server, prompt=p)).choices[0].text for p in prompts]
    together = client.completions.create(**greedy(server, prompt=prompts))
    assert [c.text for c in together.choices] == alone
    assert [c.index for c in together.choices] == [0, 1, 2]


def test_a_common_beginning_is_computed_once(server: Server, client: openai.OpenAI) -> None:
    beginning = "".join(f"Rule {i}: no two rules are the same.\n" for i in range(40))
    prompts = [beginning + "Which rule comes last?", beginning + "How many rules are there?"]
    answers = [
        client.completions.create(**greedy(server, prompt=p)) for p in (prompts[0], *prompts)
    ]
    cached = [answer.usage.prompt_tokens_details.cached_tokens for answer in answers]
    total = answers[0].usage.prompt_tokens
    assert cached[0] < 32 <= total - 40 < cached[1] < total
    assert cached[2] >= total - 40 - 32
    assert answers[0].choices[0].text == answers[1].choices[0].text


def test_echo(server: Server, client: openai.OpenAI) -> None:
    plain = client.completions.create(**greedy(server)).choices[0].text
    echoed = client.completions.create(**greedy(server), echo=True).choices[0].text
    assert echoed == PROMPT + plain


def test_logprobs(server: Server, client: openai.OpenAI) -> None:
    choice = client.completions.create(**greedy(server), logprobs=3).choices[0]
    logprobs = choice.logprobs
    assert "".join(logprobs.tokens) == choice.text
    assert len(logprobs.token_logprobs) == len(logprobs.tokens)
    for token, value, top, offset in zip(
        logprobs.tokens,
        logprobs.token_logprobs,
        logprobs.top_logprobs,
        logprobs.text_offset,
        strict=True,
    ):
        assert top[token] == pytest.approx(value)
        assert len(top) == 3
        assert choice.text[offset:].startswith(token)


def test_token_ids_are_checked(server: Server, client: openai.OpenAI) -> None:
    answer = client.completions.create(**greedy(server, prompt=[504, 1570, 282]))
    assert answer.usage.prompt_tokens == 3
    for bad in ([10**9], [-1]):
        with pytest.raises(openai.BadRequestError) as refused:
            client.completions.create(**greedy(server, prompt=bad))
        assert refused.value.param == "prompt"
