"""Ids and text equal those of OpenVINO GenAI's tokenizer, and of Hugging Face's where GenAI does
not open a file."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.text_oracle.corpus import lines

genai = pytest.importorskip("openvino_genai")


def model_file(variable: str) -> Path:
    path = Path(os.environ.get(variable, ""))
    if not path.is_file():
        pytest.skip(f"{variable} names no file")
    return path


def imported(programs: Path, gguf: Path, folder: Path) -> Path:
    subprocess.run([programs / "import_gguf_tokenizer", gguf, folder], check=True, timeout=300)
    return folder


@pytest.fixture(scope="module")
def smollm2(programs, tmp_path_factory) -> tuple[Path, Path]:
    gguf = model_file("SHARDLINE_SMOLLM2_GGUF")
    return gguf, imported(programs, gguf, tmp_path_factory.mktemp("smollm2"))


@pytest.fixture(scope="module")
def qwen(programs, tmp_path_factory) -> tuple[Path, Path]:
    gguf = model_file("SHARDLINE_QWEN_GGUF")
    return gguf, imported(programs, gguf, tmp_path_factory.mktemp("qwen"))


def genai_ids(tokenizer, text: str) -> list[int]:
    return tokenizer.encode(text).input_ids.data[0].tolist() if text else []


def differences(texts: list[str], wanted: list, got: list) -> list:
    rows = zip(texts, wanted, got, strict=True)
    return [(text, want, have) for text, want, have in rows if want != have][:5]


def test_the_corpus_is_large_enough():
    assert len(lines()) >= 2000


def test_smollm2_equals_genai_on_the_same_gguf(smollm2, run_lines):
    gguf, folder = smollm2
    oracle = genai.Tokenizer(str(gguf))
    texts = lines()
    ids = [genai_ids(oracle, text) for text in texts]
    got = run_lines("tokenize_lines", str(folder), lines=[{"text": text} for text in texts])
    assert not differences(texts, ids, [line["ids"] for line in got])
    decoded = [oracle.decode(row) if row else "" for row in ids]
    assert not differences(texts, decoded, [line["text"] for line in got])
    whole = run_lines(
        "tokenize_lines", str(folder), lines=[{"ids": row, "skip_special": False} for row in ids]
    )
    decoded = [oracle.decode(row, skip_special_tokens=False) if row else "" for row in ids]
    assert not differences(texts, decoded, [line["text"] for line in whole])
    assert decoded == texts  # byte-level BPE loses nothing


def test_genai_opens_what_we_save(smollm2):
    gguf, folder = smollm2
    theirs, ours = genai.Tokenizer(str(gguf)), genai.Tokenizer(str(folder))
    texts = [text for text in lines() if text][:400]
    assert not differences(
        texts,
        [genai_ids(theirs, text) for text in texts],
        [genai_ids(ours, text) for text in texts],
    )
    assert ours.get_eos_token_id() == theirs.get_eos_token_id()
    assert ours.get_bos_token() == theirs.get_bos_token()
    assert ours.chat_template == theirs.chat_template


def test_plain_text_has_no_control_ids_and_reads_back(smollm2, run_lines):
    _, folder = smollm2
    texts = lines()
    got = run_lines("tokenize_lines", str(folder), lines=[{"text": text} for text in texts])
    back = run_lines(
        "tokenize_lines",
        str(folder),
        lines=[{"ids": line["plain"], "skip_special": False} for line in got],
    )
    assert not differences(texts, texts, [line["text"] for line in back])
    for text, line in zip(texts, got, strict=True):
        assert not [token for token in line["plain"] if token <= 16], text  # 0..16 are control
        if not [token for token in line["ids"] if token <= 16]:
            assert line["plain"] == line["ids"]


def hugging_face_qwen(gguf: Path):
    """The file's vocabulary and merges in Hugging Face's own engine. GenAI refuses the file for
    its Q5_0 tensors; GGUF does not carry Qwen's NFC normalizer, so there is none here either."""
    tokenizers = pytest.importorskip("tokenizers")
    from tests.text_oracle.gguf_metadata import read_metadata

    metadata = read_metadata(gguf)
    tokens = metadata["tokenizer.ggml.tokens"]
    types = metadata["tokenizer.ggml.token_type"]
    normal = {token: index for index, token in enumerate(tokens) if types[index] == 1}
    merges = [tuple(merge.split(" ")) for merge in metadata["tokenizer.ggml.merges"]]
    engine = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=normal, merges=merges))
    engine.pre_tokenizer = tokenizers.pre_tokenizers.Sequence(
        [
            tokenizers.pre_tokenizers.Split(
                tokenizers.Regex(
                    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|"
                    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
                ),
                "isolated",
            ),
            tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    engine.decoder = tokenizers.decoders.ByteLevel()
    for index, token in enumerate(tokens):
        if types[index] in (3, 4):
            added = tokenizers.AddedToken(token, special=types[index] == 3, normalized=False)
            engine.add_special_tokens([added]) if types[index] == 3 else engine.add_tokens([added])
            assert engine.token_to_id(token) == index
    return engine


# huggingface/transformers#49008: user-defined tokens are one id each, as in Hugging Face's engine.
@pytest.mark.slow
def test_qwen_equals_hugging_face(qwen, run_lines):
    gguf, folder = qwen
    engine = hugging_face_qwen(gguf)
    texts = lines()
    encodings = [engine.encode(text, add_special_tokens=False).ids for text in texts]
    got = run_lines("tokenize_lines", str(folder), lines=[{"text": text} for text in texts])
    assert not differences(texts, encodings, [line["ids"] for line in got])
    decoded = [engine.decode(row, skip_special_tokens=True) for row in encodings]
    assert not differences(texts, decoded, [line["text"] for line in got])
    call = run_lines("tokenize_lines", str(folder), lines=[{"text": "<tool_call>x</tool_call>"}])
    assert call[0]["ids"] == [151657, 87, 151658]
    assert call[0]["text"] == "<tool_call>x</tool_call>"
