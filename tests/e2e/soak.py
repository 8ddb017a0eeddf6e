"""Many clients that come, leave, lose patience and ask too much, against a KV pool for a quarter.

A real server with two worker processes on a tiny model. Every answer must be, bit for bit, what
the same request gets alone from a server of one process with memory enough; at the end nothing may
be left: no block in use, no process lost, no memory grown.

    scripts/test_env build/venv/bin/python tests/e2e/soak.py --seconds 600
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
from conftest import Server, children_of, needed, start_server, stop_server
from soak_clients import CONTEXT, Answer, Board, Case, Client, Connection, make_cases, read_answers

NUM_CLIENTS = 32
NUM_CASES = 160
KV_CACHE = "480KiB"  # of each process; run() checks that it is about a quarter of the need
MIB = 2**20
# Of the anonymous memory of one process between the middle and the end: pools of the allocator
# still settle by about so much, while a leak of 1 KiB per request would be several times that.
GROWTH_BYTES = 4 * MIB
WARM_UP_SECONDS = 120.0  # until all kernels are made; a shorter run does not judge memory
IDLE_SECONDS = 10.0
# What the mix must have brought about, or it was no soak.
NECESSARY = [
    "answered whole",
    "answered, streamed",
    "left while answered",
    "left at once",
    "timed out after 50 ms",
    "refused, queue full (429)",
    "refused, prompt too long (400)",
    "refused, nonsense (400)",
]


def assemble_model(directory: Path) -> Path:
    """The tiny model, which has no tokenizer, with a tokenizer that covers its vocabulary."""
    tiny = Path(needed("SHARDLINE_TINY_MODELS")) / "llama-int8"
    for source in [*tiny.glob("openvino_model.*"), *Path(needed("SHARDLINE_SMOLLM2")).iterdir()]:
        target = directory / source.name
        if "tokenizer" in source.name or source.parent == tiny:
            target.symlink_to(source.resolve())
    return directory


@contextmanager
def serving(*options: str, model: Path, log: Path) -> Iterator[Server]:
    with log.open("wb") as file:
        server = start_server("--context", str(CONTEXT), *options, model=model, log=file)
        try:
            yield server
        finally:
            status = stop_server(server)
    assert status == 0, f"the server ended with {status}"


def answers_alone(model: Path, cases: list[Case], log: Path) -> dict[Case, list[Answer]]:
    known: dict[Case, Answer] = {}
    expected = {}
    with serving(model=model, log=log) as server:
        connection = Connection(server.base_url)
        for case in cases:
            # A greedy answer does not depend on the seed.
            own = [case.alone(i if case.temperature > 0 else 0) for i in range(case.choices)]
            for one in own:
                if one not in known:
                    connection.send(one.body())
                    known[one] = read_answers(connection.response(), one)[0]
            expected[case] = [known[one] for one in own]
        connection.leave()
    return expected


def read_metrics(server: Server) -> dict[str, float]:
    lines = httpx2.get(f"{server.base_url}/metrics", timeout=30).text.splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name.removeprefix("shardline_"): float(value) for name, value in pairs}


@dataclass
class Process:
    name: str
    pid: int
    samples: list[tuple[float, int, int]] = field(default_factory=list)  # time, anonymous, resident
    open_files: tuple[int, int] = (0, 0)  # when idle: before, after

    def take_sample(self) -> None:
        text = Path(f"/proc/{self.pid}/smaps_rollup").read_text()
        sizes = dict(line.split()[:2] for line in text.splitlines()[1:])
        anonymous, resident = (int(sizes[name]) * 1024 for name in ("Anonymous:", "Rss:"))
        self.samples.append((time.monotonic(), anonymous, resident))

    def count_files(self) -> int:
        return len(os.listdir(f"/proc/{self.pid}/fd"))

    def around(self, begin: float, end: float, column: int) -> float:
        """The median between two points of the run, 0 to 1."""
        first, last = self.samples[0][0], self.samples[-1][0]
        span = last - first
        values = [
            sample[column]
            for sample in self.samples
            if first + begin * span <= sample[0] <= first + end * span
        ]
        return statistics.median(values or [self.samples[-1][column]])

    def growth(self, column: int = 1) -> float:
        return self.around(0.9, 1.0, column) - self.around(0.5, 0.6, column)


def processes_of(server: Server) -> list[Process]:
    workers = children_of(server.process.pid)
    assert len(workers) == 2, workers
    named = [Process("coordinator", server.process.pid)]
    return named + [Process(f"worker {i + 1}", pid) for i, pid in enumerate(workers)]


def watch(server: Server, processes: list[Process], board: Board, seconds: float) -> None:
    """Until the time is up: memory, and that the server calls itself ready."""
    begin = time.monotonic()
    while not board.over.wait(max(0.1, seconds / 400)):
        for process in processes:
            process.take_sample()
        if len(processes[0].samples) % 10 == 0:
            health = httpx2.get(f"{server.base_url}/health/ready", timeout=30)
            if health.status_code != 200:
                board.fault(f"not ready: {health.text}")
        if time.monotonic() - begin >= seconds:
            board.over.set()


def check_idle(
    server: Server, processes: list[Process], board: Board, *, judge_memory: bool
) -> dict[str, float]:
    """Everything is back where it was before the first client came."""
    deadline = time.monotonic() + IDLE_SECONDS
    names = ["requests_running", "requests_waiting", "kv_blocks_used"]
    while any((metrics := read_metrics(server))[name] for name in names):
        if time.monotonic() > deadline:
            board.fault("left over: " + ", ".join(f"{name} {metrics[name]:.0f}" for name in names))
            break
        time.sleep(0.05)
    if sorted(children_of(server.process.pid)) != [process.pid for process in processes[1:]]:
        board.fault("a worker is not the one that began")
    while any(process.count_files() > process.open_files[0] for process in processes):
        if time.monotonic() > deadline:
            board.fault("files or connections are left open")
            break
        time.sleep(0.05)
    for process in processes:
        process.open_files = (process.open_files[0], process.count_files())
        if judge_memory and process.growth() > GROWTH_BYTES:
            board.fault(f"{process.name} grew by {process.growth() / MIB:.1f} MiB")
    return metrics


def check_requests(server: Server, board: Board) -> None:
    connection = Connection(server.base_url)
    for case in list(board.expected)[:3]:
        connection.send(case.body())
        response = connection.response()
        if response.status == 200:
            board.judge(case, read_answers(response, case), whole=True)
        else:
            text = response.read().decode()
            board.fault(f"status {response.status} of a request that is alone: {text}")
    connection.leave()


def check_log(log: Path, board: Board) -> None:
    for line in log.read_text(errors="replace").splitlines():
        if any(word in line.lower() for word in ("invariant", "integrity", "[engine]", "abort")):
            board.fault(f"the log says: {line}")


def check_mix(metrics: dict[str, float], need_blocks: float, board: Board) -> None:
    for outcome in NECESSARY:
        if board.outcomes[outcome] == 0:
            board.fault(f"nothing was '{outcome}'")
    for name in ("preemptions_total", "prompt_tokens_reused_total"):
        if metrics[name] == 0:
            board.fault(f"{name} is 0")
    share = metrics["kv_blocks_total"] / need_blocks
    if not 0.2 < share < 0.3:
        board.fault(f"the pool holds {share:.0%} of what the clients need, not a quarter")


def report(
    board: Board, processes: list[Process], metrics: dict[str, float], need: float, log: Path
) -> None:
    for outcome, count in sorted(board.outcomes.items()):
        print(f"{outcome:<34} {count:>9}")
    print(f"{'KV blocks, of the clients need':<34} {metrics['kv_blocks_total']:>9.0f} {need:.0f}")
    for title, name in [
        ("preemptions", "preemptions_total"),
        ("tokens generated", "tokens_generated_total"),
        ("prompt tokens reused", "prompt_tokens_reused_total"),
        ("steps", "steps_total"),
    ]:
        print(f"{title:<34} {metrics[name]:>9.0f}")
    print(f"{'MiB':<14} {'anonymous: middle':>18} {'end':>8} {'growth':>8} {'resident':>9}  files")
    for process in processes:
        middle, end = process.around(0.5, 0.6, 1) / MIB, process.around(0.9, 1.0, 1) / MIB
        resident = process.around(0.9, 1.0, 2) / MIB
        files = "{} {}".format(*process.open_files)
        print(f"{process.name:<14} {middle:>18.1f} {end:>8.1f} {end - middle:>8.2f}", end=" ")
        print(f"{resident:>9.1f}  {files}")
    for fault in board.faults:
        print(f"FAULT: {fault}")
    if board.faults:
        print(f"The server's last words:\n{log.read_text(errors='replace')[-4000:]}")


def run(seconds: float, seed: int, num_cases: int = NUM_CASES) -> list[str]:
    """What went wrong; empty when nothing did."""
    with tempfile.TemporaryDirectory(prefix="shardline-soak-") as folder:
        directory = Path(folder) / "model"
        directory.mkdir()
        model = assemble_model(directory)
        log = Path(folder) / "server.log"
        board = Board(answers_alone(model, make_cases(num_cases, seed), Path(folder) / "solo.log"))
        need = NUM_CLIENTS * statistics.fmean(
            case.num_blocks() for case in board.expected if case.copies == 1
        )
        options = ["--local-workers", "2", "--kv-cache", KV_CACHE]
        with serving(*options, model=model, log=log) as server:
            check_requests(server, board)  # now everything is loaded
            processes = processes_of(server)
            for process in processes:
                process.open_files = (process.count_files(), 0)
            clients = [Client(server.base_url, board, seed * 1000 + i) for i in range(NUM_CLIENTS)]
            for client in clients:
                client.start()
            watch(server, processes, board, seconds)
            for client in clients:
                client.join()
            metrics = check_idle(
                server, processes, board, judge_memory=seconds >= WARM_UP_SECONDS * 2
            )
            check_requests(server, board)
        check_log(log, board)
        check_mix(metrics, need, board)
        report(board, processes, metrics, need, log)
        return board.faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    return 1 if run(arguments.seconds, arguments.seed) else 0


if __name__ == "__main__":
    sys.exit(main())
