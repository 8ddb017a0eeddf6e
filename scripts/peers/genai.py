"""Shardline over two local workers against GenAI's ContinuousBatchingPipeline in one process."""

import functools
import json
import pathlib

from peers.processes import ROOT, SHARDLINE, output_of
from peers.report import Comparison, measure_pair

PROMPT_TOKENS = 32
ANSWER_TOKENS = 64
TARGETS = {1: 1.0, 4: 1.15, 16: 1.3, 32: 1.3}  # streams: least ratio
MODELS = ["smollm2-genai", "smollm2"]  # GenAI's import and ours, of the same file


def measure_theirs(model: pathlib.Path, streams: int, seed: int, facts: dict[str, str]) -> float:
    script = ROOT / "scripts/peers/genai_round.py"
    arguments = [model, streams, PROMPT_TOKENS, ANSWER_TOKENS, seed]
    # The last line: the runtime may say something of its own before.
    said = output_of([ROOT / "build/venv/bin/python", script, *arguments])
    answer = json.loads(said.splitlines()[-1])
    facts["GenAI"] = f"{answer['version']}, one process, u8 KV cache"
    return answer["tokens_per_s"]


def measure_ours(model: pathlib.Path, streams: int) -> float:
    command = [SHARDLINE, "bench", "serve", model, "--local-workers", "2", "--json"]
    command += ["--streams", streams, "--requests", "1", "--rounds", "1"]
    command += ["--prompt-tokens", PROMPT_TOKENS, "--tokens", ANSWER_TOKENS]
    command += ["--kv-precision", "u8", "--dynamic-quantization", "32"]
    # Short of the rows about long prompts, which are measured elsewhere.
    command += ["--context", "1024"]
    rows = json.loads(output_of(command))
    return next(row["value"] for row in rows if row["unit"] == "tok/s")


def compare(rounds: int, say, facts: dict[str, str]) -> list[Comparison]:
    """Each figure comes from a fresh process after a warm-up of its own, so that the other side
    is not there at all."""
    comparisons = []
    for name in MODELS:
        for streams, target in TARGETS.items():
            title = f"{name}, {streams} stream{'s' if streams > 1 else ''}"
            comparisons.append((name, streams, Comparison(title, "GenAI", target)))
    for number in range(rounds):
        for name, streams, comparison in comparisons:
            say(f"round {number + 1} of {rounds}: {comparison.name} against GenAI")
            model = ROOT / "build/models" / name
            pair = measure_pair(
                number,
                functools.partial(measure_ours, model, streams),
                functools.partial(measure_theirs, model, streams, number, facts),
            )
            comparison.add(*pair)
    return [comparison for _, _, comparison in comparisons]
