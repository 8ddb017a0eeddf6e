"""Chat completions by openai-python against real processes."""

from __future__ import annotations

import asyncio
import json
import time
from concurrent.futures import ThreadPoolExecutor

import httpx2
import openai
import pytest
from conftest import Server, start_server, stop_server

QUESTION = [{"role": "user", "content": "What is the capital of France? Answer in one sentence."}]
STORY = [{"role": "user", "content": "Tell me a long story about a fox and a river."}]


def greedy(server: Server, **more: object) -> dict[str, object]:
    return {"model": server.model, "messages": QUESTION, "temperature": 0, "max_tokens": 32} | more


def test_answer(server: Server, client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(**greedy(server))
    assert "Paris" in answer.choices[0].message.content
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].finish_reason in ("stop", "length")
    assert answer.object == "chat.completion"
    assert answer.model == server.model
    usage = answer.usage
    assert usage.prompt_tokens > 10
    assert 0 < usage.completion_tokens <= 32
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


def test_stream_equals_answer(server: Server, client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(**greedy(server))
    chunks = list(
        client.chat.completions.create(
            **greedy(server), stream=True, stream_options={"include_usage": True}
        )
    )
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert text == whole.choices[0].message.content
    finishes = [c.choices[0].finish_reason for c in chunks if c.choices]
    assert finishes[-1] == whole.choices[0].finish_reason
    assert finishes[:-1] == [None] * (len(finishes) - 1)
    assert [c.usage for c in chunks[:-1]] == [None] * (len(chunks) - 1)
    assert chunks[-1].choices == []
    assert chunks[-1].usage == whole.usage
    assert len({c.id for c in chunks}) == 1


def test_async_requests_side_by_side(server: Server, client: openai.OpenAI) -> None:
    alone = client.chat.completions.create(**greedy(server)).choices[0].message.content

    async def ask_all() -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{server.base_url}/v1", api_key="none") as asking:

            async def ask() -> str:
                stream = await asking.chat.completions.create(**greedy(server), stream=True)
                return "".join([c.choices[0].delta.content or "" async for c in stream])

            return await asyncio.gather(*[ask() for _ in range(6)])

    assert asyncio.run(ask_all()) == [alone] * 6


def test_seed_and_choices(server: Server, client: openai.OpenAI) -> None:
    def ask(seed: int) -> list[str]:
        answer = client.chat.completions.create(
            model=server.model, messages=STORY, temperature=1.0, seed=seed, n=3, max_tokens=12
        )
        assert [c.index for c in answer.choices] == [0, 1, 2]
        return [c.message.content for c in answer.choices]

    first = ask(1)
    assert ask(1) == first
    assert ask(2) != first
    assert len(set(first)) > 1


def test_choices_streamed(server: Server, client: openai.OpenAI) -> None:
    texts = {0: "", 1: "", 2: ""}
    finished = set()
    for chunk in client.chat.completions.create(
        model=server.model, messages=STORY, temperature=1.0, seed=5, n=3, max_tokens=8, stream=True
    ):
        choice = chunk.choices[0]
        assert choice.index not in finished
        texts[choice.index] += choice.delta.content or ""
        if choice.finish_reason:
            finished.add(choice.index)
    assert finished == {0, 1, 2}
    assert all(texts.values())


def test_logprobs(server: Server, client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(**greedy(server), logprobs=True, top_logprobs=4)
    choice = answer.choices[0]
    tokens = choice.logprobs.content
    # An end-of-turn token is counted nowhere and shown nowhere.
    assert len(tokens) == answer.usage.completion_tokens
    assert bytes(b for t in tokens for b in t.bytes).decode() == choice.message.content
    for token in tokens:
        assert token.logprob <= 0
        assert len(token.top_logprobs) == 4
        assert token.top_logprobs[0].token == token.token  # greedy


def test_stop(server: Server, client: openai.OpenAI) -> None:
    whole = client.chat.completions.create(**greedy(server)).choices[0].message.content
    stop = whole.split()[3]
    for stream in (False, True):
        answer = client.chat.completions.create(**greedy(server), stop=[stop], stream=stream)
        if stream:
            chunks = list(answer)
            text = "".join(c.choices[0].delta.content or "" for c in chunks)
            finish = chunks[-1].choices[0].finish_reason
        else:
            text, finish = answer.choices[0].message.content, answer.choices[0].finish_reason
        assert text == whole[: whole.index(stop)]
        assert finish == "stop"


def test_closing_the_stream_ends_the_work(server: Server, client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model=server.model, messages=STORY, max_tokens=1500, stream=True, temperature=0
    )
    for _, _chunk in zip(range(4), stream, strict=False):
        pass
    assert server.health()["kv_blocks_used"] > 0
    stream.close()
    assert server.idle_within(1.0)


def test_leaving_without_an_answer_ends_the_work(server: Server, client: openai.OpenAI) -> None:
    impatient = client.with_options(timeout=1.0)
    with pytest.raises(openai.APITimeoutError):
        impatient.chat.completions.create(
            model=server.model,
            messages=STORY,
            max_tokens=1500,
            temperature=0,
            logit_bias={"2": -100, "0": -100},
        )
    assert server.idle_within(1.0)


def test_errors(server: Server, client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        client.chat.completions.create(**greedy(server, temperature=3))
    assert refused.value.param == "temperature"
    assert refused.value.type == "invalid_request_error"
    with pytest.raises(openai.NotFoundError) as unknown:
        client.chat.completions.create(**greedy(server, model="gpt-4"))
    assert unknown.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as too_long:
        client.chat.completions.create(
            **greedy(server, messages=[{"role": "user", "content": "a " * 20000}])
        )
    assert too_long.value.code == "context_length_exceeded"
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(model=server.model, input="x")
    for body in (b"", b"{", b"[]", b"\xff\xfe", b'{"messages":[null]}'):
        response = httpx2.post(f"{server.base_url}/v1/chat/completions", content=body)
        assert response.status_code == 400
        assert set(response.json()["error"]) == {"message", "type", "param", "code"}


def test_models_and_health(server: Server, client: openai.OpenAI) -> None:
    assert [m.id for m in client.models.list()] == [server.model]
    assert client.models.retrieve(server.model).id == server.model
    for path in ("/health", "/health/ready", "/health/live"):
        response = httpx2.get(f"{server.base_url}{path}", timeout=30)
        assert response.status_code == 200
        assert response.json()["status"] == "ok"


def test_many_users_get_their_own_answer(server: Server, client: openai.OpenAI) -> None:
    def ask(number: int) -> str:
        answer = client.chat.completions.create(
            model=server.model,
            messages=[{"role": "user", "content": f"Repeat the number {number}."}],
            temperature=0,
            max_tokens=16,
        )
        return answer.choices[0].message.content

    alone = [ask(n) for n in range(100, 108)]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(ask, range(100, 108)))
    assert together == alone


@pytest.mark.usefixtures("client")
def test_raw_stream_is_server_sent_events(server: Server) -> None:
    with httpx2.stream(
        "POST", f"{server.base_url}/v1/chat/completions", json=greedy(server, stream=True)
    ) as response:
        assert response.headers["content-type"] == "text/event-stream"
        lines = [line for line in response.iter_lines() if line]
    assert lines[-1] == "data: [DONE]"
    for line in lines[:-1]:
        assert line.startswith("data: ")
        assert json.loads(line[6:])["object"] == "chat.completion.chunk"


def test_api_key() -> None:
    running = start_server("--api-key", "a-secret")
    try:
        with pytest.raises(openai.AuthenticationError):
            running.client().models.list()
        answer = running.client(api_key="a-secret").chat.completions.create(**greedy(running))
        assert answer.choices[0].message.content
    finally:
        begin = time.monotonic()
        assert stop_server(running) == 0
        assert time.monotonic() - begin < 10
