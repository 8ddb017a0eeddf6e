"""One real coordinator with two worker processes for all end-to-end tests."""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import httpx2
import openai
import pytest

START_SECONDS = 120
STOP_SECONDS = 20


@dataclass
class Server:
    """A running `shardline serve`."""

    process: subprocess.Popen[bytes]
    model: str
    base_url: str

    def client(self, **options: object) -> openai.OpenAI:
        settings = {"base_url": f"{self.base_url}/v1", "api_key": "none", "max_retries": 0}
        return openai.OpenAI(**(settings | options))

    def health(self) -> dict[str, object]:
        return httpx2.get(f"{self.base_url}/health", timeout=30).json()

    def idle_within(self, seconds: float) -> bool:
        """Whether every KV block is free again in time."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            health = self.health()
            if health["kv_blocks_used"] == 0 and health["running"] == 0:
                return True
            time.sleep(0.02)
        return False


def children_of(pid: int) -> list[int]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == pid and fields[0] != "Z":
                found.append(int(entry.name))
    return sorted(found)


def needed(variable: str) -> str:
    path = os.environ.get(variable, "")
    if not path or not Path(path).exists():
        pytest.skip(f"{variable} names nothing that exists")
    return path


def read_serving_line(process: subprocess.Popen[bytes]) -> re.Match[str]:
    """Waits for `serving MODEL at http://HOST:PORT` on the server's stdout."""
    deadline = time.monotonic() + START_SECONDS
    text = ""
    while time.monotonic() < deadline and process.poll() is None:
        ready, _, _ = select.select([process.stdout], [], [], 0.2)
        if ready:
            text += os.read(process.stdout.fileno(), 4096).decode()
        found = re.search(r"^serving (\S+) at (http://\S+:\d+)$", text, re.MULTILINE)
        if found:
            return found
    raise AssertionError(f"no serving line; exit code {process.poll()}, stdout {text!r}")


def start_server(
    *options: str, model: str | Path | None = None, log: IO[bytes] | None = None
) -> Server:
    command = [
        needed("SHARDLINE_BIN"),
        "serve",
        model or needed("SHARDLINE_SMOLLM2"),
        "--listen",
        "127.0.0.1:0",
        *options,
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log)
    try:
        found = read_serving_line(process)
    except BaseException:
        process.kill()
        process.wait()
        raise
    return Server(process, found[1], found[2])


def stop_server(server: Server) -> int:
    if server.process.poll() is None:
        server.process.send_signal(signal.SIGTERM)
    try:
        return server.process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        server.process.kill()
        server.process.wait()
        raise AssertionError("the server did not end on SIGTERM") from None


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    running = start_server("--local-workers", "2")
    yield running
    assert running.process.poll() is None, "the server died during the tests"
    assert stop_server(running) == 0


@pytest.fixture
def client(server: Server) -> Iterator[openai.OpenAI]:
    """After every test a plain request works and no KV block is left in use."""
    with server.client() as opened:
        yield opened
        answer = opened.chat.completions.create(
            model=server.model,
            messages=[{"role": "user", "content": "Say hello."}],
            temperature=0,
            max_tokens=4,
        )
        assert answer.choices[0].message.content
        assert server.idle_within(1.0)
