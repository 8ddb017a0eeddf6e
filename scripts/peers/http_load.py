"""Completion requests to an OpenAI-shaped server, all at the same time, one thread each."""

import concurrent.futures
import http.client
import json
import random
import time
import urllib.parse

TIMEOUT_S = 300


def ask(url: str, prompt: list[int], answer_tokens: int) -> int:
    """The number of tokens of the answer."""
    address = urllib.parse.urlsplit(url)
    connection = http.client.HTTPConnection(address.hostname, address.port, timeout=TIMEOUT_S)
    body = {"prompt": prompt, "max_tokens": answer_tokens, "temperature": 0, "ignore_eos": True}
    try:
        headers = {"Content-Type": "application/json"}
        connection.request("POST", "/v1/completions", json.dumps(body), headers)
        response = connection.getresponse()
        answer = response.read()
    finally:
        connection.close()
    if response.status != 200:
        raise RuntimeError(f"{url} answers {response.status}: {answer[:500]!r}")
    return json.loads(answer)["usage"]["completion_tokens"]


def run_load(
    url: str, streams: int, prompt_tokens: int, answer_tokens: int, vocabulary: int, seed: int
) -> float:
    """Answer tokens per second from the first request to the last answer."""
    source = random.Random(seed)
    prompts = [[source.randrange(vocabulary) for _ in range(prompt_tokens)] for _ in range(streams)]
    with concurrent.futures.ThreadPoolExecutor(streams) as threads:
        begin = time.perf_counter()
        answers = [threads.submit(ask, url, prompt, answer_tokens) for prompt in prompts]
        tokens = sum(answer.result() for answer in answers)
        seconds = time.perf_counter() - begin
    if tokens != streams * answer_tokens:
        raise RuntimeError(f"{url} answered {tokens} tokens, not {streams * answer_tokens}")
    return tokens / seconds
