"""A Hugging Face tokenizer directory from the vocabulary in a GGUF file, for tools that know no
other; run in build/peers/venv.

    hf_tokenizer.py GGUF DIRECTORY

For byte-level BPE whose words are found as SmolLM2's are, digits one by one; anything else is
refused.
"""

import pathlib
import sys

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from tests.text_oracle.gguf_metadata import read_metadata

CONTROL, USER_DEFINED = 3, 4  # kinds of tokens that no merge makes


def build(gguf: pathlib.Path) -> PreTrainedTokenizerFast:
    metadata = read_metadata(gguf)
    kind = metadata["tokenizer.ggml.model"], metadata["tokenizer.ggml.pre"]
    if kind != ("gpt2", "smollm"):
        sys.exit(f"hf_tokenizer: {gguf} has a tokenizer of kind {kind}, which is not SmolLM2's")
    tokens = metadata["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ")) for merge in metadata["tokenizer.ggml.merges"]]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    for token, token_kind in zip(tokens, metadata["tokenizer.ggml.token_type"], strict=True):
        if token_kind in (CONTROL, USER_DEFINED):
            special = token_kind == CONTROL
            tokenizer.add_special_tokens([AddedToken(token, special=special, normalized=False)])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=tokens[metadata["tokenizer.ggml.bos_token_id"]],
        eos_token=tokens[metadata["tokenizer.ggml.eos_token_id"]],
    )


if __name__ == "__main__":
    build(pathlib.Path(sys.argv[1])).save_pretrained(sys.argv[2])
