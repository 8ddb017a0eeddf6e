"""Greedy answers equal those of OpenVINO GenAI's LLMPipeline, with everything in f32."""

from __future__ import annotations

import json
import subprocess
import sys

import httpx2
import pytest
from conftest import needed, start_server, stop_server

NUM_TOKENS = 48
TIE = 1e-3  # two log-probabilities closer than this are a tie: sums in another order decide

PROMPTS = [
    "Why is the sky blue?",
    "Name three rivers in Europe.",
    "Write a haiku about autumn.",
    "What is 17 times 23?",
    "Explain photosynthesis to a child.",
    "Give me a recipe for pancakes.",
    "Who wrote Hamlet?",
    "Translate 'good morning' into French.",
    "What is the capital of Japan?",
    "List five uses of a paperclip.",
    "Tell me a short story about a lighthouse.",
    "How does a bicycle stay upright?",
    "What is a prime number?",
    "Describe the taste of coffee.",
    "Write a Python function that adds two numbers.",
    "What causes the tides?",
    "Suggest a name for a black cat.",
    "Summarise the water cycle in one sentence.",
    "Why do leaves fall?",
    "What should I pack for a weekend in the mountains?",
]

# In a process of its own: two copies of the runtime's thread pools in one are no fair company.
ORACLE = """
import json, sys
import openvino_genai
directory, num_tokens = sys.argv[1], int(sys.argv[2])
pipe = openvino_genai.LLMPipeline(
    directory, "CPU", ATTENTION_BACKEND="SDPA", INFERENCE_PRECISION_HINT="f32",
    KV_CACHE_PRECISION="f32", DYNAMIC_QUANTIZATION_GROUP_SIZE=0)
answers = [pipe.generate(prompt, max_new_tokens=num_tokens, do_sample=False)
           for prompt in json.load(sys.stdin)]
json.dump(answers, sys.stdout)
"""


def oracle_answers(model: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", ORACLE, model, str(NUM_TOKENS)],
        input=json.dumps(PROMPTS),
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def our_answer(base_url: str, prompt: str) -> tuple[str, list[dict[str, object]]]:
    body = {
        "messages": [{"role": "user", "content": prompt}],
        "temperature": 0,
        "max_tokens": NUM_TOKENS,
        "logprobs": True,
        "top_logprobs": 2,
    }
    reply = httpx2.post(f"{base_url}/v1/chat/completions", json=body, timeout=120).json()
    choice = reply["choices"][0]
    return choice["message"]["content"], choice["logprobs"]["content"]


def tie_before_difference(theirs: str, tokens: list[dict[str, object]]) -> str | None:
    """The two tokens that tie where the texts part, or None when there is no tie."""
    text = ""
    for token in tokens:
        text += token["token"]
        if not theirs.startswith(text):
            first, second = token["top_logprobs"][:2]
            if abs(first["logprob"] - second["logprob"]) < TIE:
                return f"{first} and {second}"
            return None
    return None


def test_greedy_answers_equal_genai() -> None:
    pytest.importorskip("openvino_genai")
    theirs = oracle_answers(needed("SHARDLINE_SMOLLM2"))
    server = start_server(
        *("--local-workers", "2", "--kv-precision", "f32", "--dynamic-quantization", "0")
    )
    try:
        different = []
        for prompt, expected in zip(PROMPTS, theirs, strict=True):
            ours, tokens = our_answer(server.base_url, prompt)
            if ours != expected:
                tie = tie_before_difference(expected, tokens)
                print(f"{prompt!r}: {ours!r} against {expected!r}, tie: {tie}")
                if tie is None:
                    different.append((prompt, ours, expected))
        assert not different
    finally:
        assert stop_server(server) == 0
