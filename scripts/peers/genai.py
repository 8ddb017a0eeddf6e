"""Shardline over two local workers against GenAI's ContinuousBatchingPipeline in one process."""

import json
import pathlib

from peers.processes import ROOT, SHARDLINE, output_of
from peers.report import Comparison

PROMPT_TOKENS = 32
ANSWER_TOKENS = 64
TARGETS = {1: 1.0, 4: 1.15, 16: 1.3, 32: 1.3}  # streams: least ratio
MODELS = ["smollm2-genai", "smollm2"]  # GenAI's import and ours, of the same file


def measure_theirs(model: pathlib.Path, streams: int, seed: int) -> dict:
    script = ROOT / "scripts/peers/genai_round.py"
    arguments = [model, streams, PROMPT_TOKENS, ANSWER_TOKENS, seed]
    # The last line: the runtime may say something of its own before.
    said = output_of([ROOT / "build/venv/bin/python", script, *arguments])
    return json.loads(said.splitlines()[-1])


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
    is not there at all. Who goes first changes from round to round."""
    comparisons = {
        (model, streams): Comparison(
            f"{model}, {streams} stream{'s' if streams > 1 else ''}", "GenAI", target
        )
        for model in MODELS
        for streams, target in TARGETS.items()
    }
    for number in range(rounds):
        for (name, streams), comparison in comparisons.items():
            say(f"round {number + 1} of {rounds}: {comparison.name} against GenAI")
            model = ROOT / "build/models" / name
            ours = measure_ours(model, streams) if number % 2 else None
            theirs = measure_theirs(model, streams, number + 1)
            comparison.add(ours or measure_ours(model, streams), theirs["tokens_per_s"])
            facts["GenAI"] = theirs["version"]
    return list(comparisons.values())
