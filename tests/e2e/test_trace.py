"""What --trace writes, as a viewer reads it, against what the server counted itself."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter, defaultdict
from pathlib import Path

import httpx2
from conftest import needed, start_server, stop_server
from test_cli import run, tiny

PROMPT_TOKENS = 700  # more than a step takes: chunks that leave the chain before the head
ANSWER_TOKENS = 12


def slices_by_track(events: list[dict]) -> dict[str, list[dict]]:
    """The slices of every named track in order of time, which must not overlap."""
    names = {e["tid"]: e["args"]["name"] for e in events if e["name"] == "thread_name"}
    tracks = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            tracks[names[event["tid"]]].append(event)
    for slices in tracks.values():
        slices.sort(key=lambda s: s["ts"])
        assert slices[0]["ts"] >= 0
        for one, after in itertools.pairwise(slices):
            assert one["ts"] + one["dur"] <= after["ts"]
    return tracks


def metric(text: str, name: str) -> float:
    return float(re.search(rf"^shardline_{name} (\S+)$", text, re.MULTILINE)[1])


def stage_seconds(text: str) -> dict[int, float]:
    found = re.findall(r'^shardline_stage_busy_seconds_total{stage="(\d+)"} (\S+)$', text, re.M)
    return {int(stage): float(seconds) for stage, seconds in found}


def test_serve_traces_what_it_counts(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    server = start_server("--local-workers", "2", "--trace", str(path))
    try:
        with server.client() as client:
            usages = [
                client.completions.create(
                    model=server.model,
                    prompt=prompt,
                    max_tokens=ANSWER_TOKENS,
                    temperature=0,
                    extra_body={"ignore_eos": True},
                ).usage
                for prompt in ([504] * 5, list(range(1000, 1000 + PROMPT_TOKENS)))
            ]
        assert server.idle_within(5)
        alive = json.loads(path.read_text() + "]")  # idle: all of it is there, unclosed
        metrics = httpx2.get(f"{server.base_url}/metrics", timeout=30).text
    finally:
        assert stop_server(server) == 0
    events = json.loads(path.read_text())
    assert events[: len(alive)] == alive
    tracks = slices_by_track(events)

    flights = {s["args"]["step"]: s for name in tracks if "flight" in name for s in tracks[name]}
    steps = sorted(flights)
    assert steps == list(range(1, len(steps) + 1))
    stages = [tracks[name] for name in sorted(name for name in tracks if "stage" in name)]
    assert len(stages) == 4  # embedding, two workers, head
    for slices in stages[:3]:
        assert [s["args"]["step"] for s in slices] == steps
    headed = [s["args"]["step"] for s in stages[3]]
    assert headed == sorted(set(headed))
    assert len(steps) > len(headed) >= 2 * ANSWER_TOKENS  # chunks do not reach the head

    sums = Counter()
    for flight in flights.values():
        sums.update(flight["args"])
    assert sums["prompt_tokens"] == sum(usage.prompt_tokens for usage in usages)
    assert sums["answer_tokens"] == sum(usage.completion_tokens - 1 for usage in usages)
    assert metric(metrics, "step_rows_count") <= len(steps)
    probes = len(steps) - int(metric(metrics, "step_rows_count"))
    assert sums["rows"] == metric(metrics, "step_rows_sum") + probes
    assert sums["rows"] == sums["prompt_tokens"] + sums["answer_tokens"] + sum(
        1 for flight in flights.values() if flight["args"]["sequences"] == 0
    )
    for stage, seconds in stage_seconds(metrics).items():
        traced = sum(s["dur"] for s in stages[stage][: len(stages[stage]) - probes]) / 1e6
        assert abs(traced - seconds) < 1e-3, stage
    last = [e["args"] for e in events if e["ph"] == "C" and e["name"] == "requests"][-1]
    assert last == {"running": 0, "waiting": 0}


def test_a_paced_bench_is_traced_and_says_so(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    paces = "2ms,3ms,2ms+0.1ms/row"
    done = run(
        *["bench", "serve", tiny("llama-int8"), "--pace", paces, "--streams", "3"],
        *["--rounds", "1", "--tokens", "8", "--context", "128", "--json", "--trace", path],
    )
    assert done.returncode == 0, done.stderr
    tracks = slices_by_track(json.loads(path.read_text()))
    flights = [s["args"] for name in tracks if "flight" in name for s in tracks[name]]
    for stage, pace_ms in enumerate((2, 3, 2)):
        slices = tracks[f"stage {stage}, simulated, {pace_ms} ms"]
        assert Counter(s["name"] for s in slices) == Counter(
            f"step {a['step']}, {a['rows']} row{'s' * (a['rows'] != 1)}" for a in flights
        )
        for one in slices:
            least_us = 1000 * pace_ms + 100 * (one["args"]["rows"] - 1)
            assert one["dur"] >= least_us - 1
    assert sum(a["answer_tokens"] for a in flights) == 2 * 3 * (8 - 1)  # a warm-up and a round


def test_a_path_that_cannot_be_written_is_refused_first(tmp_path: Path) -> None:
    path = tmp_path / "no" / "trace.json"
    done = run("serve", needed("SHARDLINE_SMOLLM2"), "--trace", path, timeout=10)
    assert done.returncode == 3
    assert str(path) in done.stderr
    assert done.stdout == ""
