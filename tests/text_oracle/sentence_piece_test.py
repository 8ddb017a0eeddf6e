"""SentencePiece vocabularies (GGUF model "llama") against the sentencepiece package itself."""

import io
import json
import subprocess

import pytest

from tests.text_oracle.corpus import lines

sentencepiece = pytest.importorskip("sentencepiece")
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6


def train(add_prefix: bool):
    model = io.BytesIO()
    # Characters beyond these scripts are left to the byte tokens.
    sentences = ["".join(c for c in line if " " <= c < "\u0600") for line in lines()]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter([line for line in sentences if 0 < len(line) < 2000]),
        model_writer=model,
        model_type="bpe",
        vocab_size=2500,
        byte_fallback=True,
        character_coverage=1.0,
        normalization_rule_name="identity",
        remove_extra_whitespaces=False,
        add_dummy_prefix=add_prefix,
        allow_whitespace_only_pieces=True,
        user_defined_symbols=["<tool_call>"],
        minloglevel=2,
    )
    return sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())


def token_type(engine, token: int) -> int:
    if engine.is_unknown(token):
        return UNKNOWN
    if engine.is_control(token):
        return CONTROL
    if engine.is_byte(token):
        return BYTE
    return USER_DEFINED if engine.id_to_piece(token) == "<tool_call>" else NORMAL


def metadata_of(engine, add_prefix: bool) -> dict:
    tokens = range(engine.get_piece_size())
    return {
        "model": "llama",
        "tokens": [engine.id_to_piece(token) for token in tokens],
        "scores": [engine.get_score(token) for token in tokens],
        "token_type": [token_type(engine, token) for token in tokens],
        "bos_token_id": engine.bos_id(),
        "eos_token_id": engine.eos_id(),
        "unknown_token_id": engine.unk_id(),
        "add_bos_token": True,
        "add_space_prefix": add_prefix,
    }


@pytest.mark.parametrize("add_prefix", [True, False])
def test_ids_and_text_equal_sentencepiece(add_prefix, programs, run_lines, tmp_path):
    engine = train(add_prefix)
    (tmp_path / "metadata.json").write_text(json.dumps(metadata_of(engine, add_prefix)))
    subprocess.run([programs / "build_tokenizer", tmp_path / "metadata.json", tmp_path], check=True)
    # Here the package's text and ours differ by design: it drops NUL, and the marks of unknown and
    # control tokens are markers to us.
    texts = [
        text
        for text in lines()
        if "\x00" not in text and not any(mark in text for mark in ("<s>", "</s>", "<unk>", "▁"))
    ]
    assert len(texts) > 2000
    got = run_lines("tokenize_lines", str(tmp_path), lines=[{"text": text} for text in texts])
    plain_texts = [text for text in texts if "<tool_call>" not in text]
    for text, line in zip(texts, got, strict=True):
        if text in plain_texts:
            assert line["ids"] == engine.encode(text), repr(text)
            assert line["plain"] == line["ids"], repr(text)
            assert line["text"] == engine.decode(line["ids"]), repr(text)
        else:
            assert engine.piece_to_id("<tool_call>") in line["ids"]
            assert engine.piece_to_id("<tool_call>") not in line["plain"]
    front = run_lines(
        "tokenize_lines", str(tmp_path), lines=[{"text": "Hello", "add_special": True}]
    )
    assert front[0]["ids"] == [engine.bos_id(), *engine.encode("Hello")]
