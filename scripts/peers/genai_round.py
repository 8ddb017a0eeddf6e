"""One round of GenAI's ContinuousBatchingPipeline in a process of its own, in build/venv.

    genai_round.py MODEL STREAMS PROMPT_TOKENS ANSWER_TOKENS SEED

A warm-up, then the measured load: every stream asks once, all at the same time, as
`shardline bench serve --rounds 1` does. Prints one line of JSON.
"""

import json
import sys
import time

import numpy
import openvino
import openvino_genai

VOCABULARY = 49152  # of SmolLM2
# As `shardline` has it: --kv-precision u8 and --dynamic-quantization 32 are passed to it.
SETTINGS = {
    "KV_CACHE_PRECISION": "u8",
    "KEY_CACHE_QUANT_MODE": "BY_TOKEN",
    "INFERENCE_PRECISION_HINT": "f32",
    "DYNAMIC_QUANTIZATION_GROUP_SIZE": 32,
    "PERFORMANCE_HINT": "LATENCY",
}


def open_pipeline(model: str):
    """Room for all streams at once, so that nothing waits or is preempted; no prompt is known."""
    scheduler = openvino_genai.SchedulerConfig()
    scheduler.cache_size = 1  # GB: 64 streams of 700 tokens
    scheduler.max_num_batched_tokens = 4096
    scheduler.max_num_seqs = 64
    scheduler.dynamic_split_fuse = True
    scheduler.enable_prefix_caching = False
    return openvino_genai.ContinuousBatchingPipeline(model, scheduler, "CPU", SETTINGS)


def run_load(pipeline, random, streams: int, prompt_tokens: int, answer_tokens: int) -> float:
    """Answer tokens per second from the first submission to the last answer."""
    config = openvino_genai.GenerationConfig()
    config.max_new_tokens = answer_tokens
    config.ignore_eos = True
    config.do_sample = False
    prompts = random.integers(0, VOCABULARY, (streams, 1, prompt_tokens), dtype=numpy.int64)
    begin = time.perf_counter()
    handles = [
        pipeline.add_request(number, openvino.Tensor(prompt), config)
        for number, prompt in enumerate(prompts)
    ]
    while pipeline.has_non_finished_requests():
        pipeline.step()
    seconds = time.perf_counter() - begin
    tokens = sum(len(handle.read_all()[0].generated_ids) for handle in handles)
    if tokens != streams * answer_tokens:
        sys.exit(f"GenAI answered {tokens} tokens instead of {streams * answer_tokens}")
    return tokens / seconds


def main() -> None:
    model = sys.argv[1]
    streams, prompt_tokens, answer_tokens, seed = map(int, sys.argv[2:])
    random = numpy.random.default_rng(seed)
    pipeline = open_pipeline(model)
    run_load(pipeline, random, streams, prompt_tokens, answer_tokens)  # warm-up
    tokens_per_s = run_load(pipeline, random, streams, prompt_tokens, answer_tokens)
    print(json.dumps({"tokens_per_s": tokens_per_s, "version": openvino_genai.__version__}))


if __name__ == "__main__":
    main()
