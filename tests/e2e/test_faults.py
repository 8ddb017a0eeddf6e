"""Workers that die, hang or restart: clients hear of it, the coordinator lives, service returns."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx2
import openai
import pytest
from conftest import Server, children_of, start_server, stop_server

NOTICE_SECONDS = 5.0  # until clients hear of a lost worker
RETURN_SECONDS = 60.0  # until the service is back on its own


@pytest.fixture
def own_server() -> Iterator[Server]:
    running = start_server("--local-workers", "2")
    yield running
    assert running.process.poll() is None, "the coordinator died with its worker"
    assert stop_server(running) == 0


def ready(server: Server) -> bool:
    try:
        return httpx2.get(f"{server.base_url}/health/ready", timeout=10).status_code == 200
    except httpx2.HTTPError:
        return False


def wait_until_ready(server: Server) -> None:
    deadline = time.monotonic() + RETURN_SECONDS
    while not ready(server):
        assert time.monotonic() < deadline, "the service did not come back"
        time.sleep(0.2)


def ask(client: openai.OpenAI, server: Server, **options: object) -> object:
    return client.chat.completions.create(
        model=server.model,
        messages=[{"role": "user", "content": "Count to one hundred."}],
        temperature=0,
        **options,
    )


def answer(server: Server) -> str:
    with server.client() as client:
        return ask(client, server, max_tokens=8).choices[0].message.content


def read_stream(client: openai.OpenAI, server: Server, started: threading.Event) -> None:
    for count, _ in enumerate(ask(client, server, max_tokens=4000, stream=True)):
        if count == 3:
            started.set()


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("which", [0, 1])
def test_lost_worker_is_an_error_then_replaced(
    own_server: Server, sent: signal.Signals, which: int
) -> None:
    # ggml-org/llama.cpp#25938
    before = answer(own_server)
    started = threading.Event()
    struck_at = []
    worker = children_of(own_server.process.pid)[which]

    def strike() -> None:
        if started.wait(60):
            struck_at.append(time.monotonic())
            os.kill(worker, sent)

    striker = threading.Thread(target=strike)
    striker.start()
    with own_server.client() as client, pytest.raises(openai.APIError):
        read_stream(client, own_server, started)
    ended_at = time.monotonic()
    striker.join()
    assert struck_at, "the stream failed before it began"
    assert ended_at - struck_at[0] < NOTICE_SECONDS
    live = httpx2.get(f"{own_server.base_url}/health/live", timeout=10)
    assert live.status_code == 200
    wait_until_ready(own_server)
    assert answer(own_server) == before
    assert own_server.idle_within(1.0)


def test_requests_while_down_are_told_to_retry(own_server: Server) -> None:
    for worker in children_of(own_server.process.pid):
        os.kill(worker, signal.SIGKILL)
    time.sleep(0.5)
    body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}
    reply = httpx2.post(
        f"{own_server.base_url}/v1/chat/completions", json=body, timeout=NOTICE_SECONDS + 30
    )
    if reply.status_code != 200:  # the chain may be whole again already
        assert reply.status_code == 503
        assert reply.json()["error"]["message"]
    wait_until_ready(own_server)


def test_coordinator_ends_cleanly_without_its_worker() -> None:
    # unslothai/llama.cpp#203
    server = start_server("--local-workers", "2")
    os.kill(children_of(server.process.pid)[0], signal.SIGSTOP)
    assert stop_server(server) == 0


def test_workers_end_with_a_killed_coordinator() -> None:
    server = start_server("--local-workers", "2")
    workers = children_of(server.process.pid)
    server.process.kill()
    server.process.wait()
    deadline = time.monotonic() + 10
    while any(Path(f"/proc/{worker}/exe").exists() for worker in workers):
        assert time.monotonic() < deadline, "a worker outlived its coordinator"
        time.sleep(0.1)
