"""Where the programs and models are that these tests compare with other engines."""

import json
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def programs() -> Path:
    """The folder of import_gguf_tokenizer, render_chats and tokenize_lines."""
    default = Path(os.environ.get("SHARDLINE_BIN", ROOT / "build/release/shardline")).parent
    folder = Path(os.environ.get("SHARDLINE_TEXT_ORACLE", default / "tests/text_oracle"))
    if not (folder / "render_chats").is_file():
        pytest.skip(f"no programs in {folder}")
    return folder


@pytest.fixture(scope="session")
def run_lines(programs: Path):
    """Feeds JSON lines to one of the programs, gives back its JSON lines."""

    def run(program: str, *arguments: str, lines: list[dict]) -> list[dict]:
        text = "".join(json.dumps(line) + "\n" for line in lines)
        done = subprocess.run(
            [programs / program, *arguments],
            input=text.encode(),
            capture_output=True,
            check=False,
            timeout=600,
        )
        assert done.returncode == 0, done.stderr.decode()
        answers = [json.loads(line) for line in done.stdout.decode().split("\n") if line]
        assert len(answers) == len(lines)
        return answers

    return run
