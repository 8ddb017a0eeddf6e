"""The commands as users and scripts meet them: help, JSON, exit codes, errors that name things."""

from __future__ import annotations

import http.server
import json
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import needed

COMMANDS = ["serve", "generate", "chat", "worker", "plan", "import", "inspect", "cut", "doctor"]
PROMPT = "Name three rivers."


def run(*arguments: object, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    command = [needed("SHARDLINE_BIN"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)


def run_json(*arguments: object) -> object:
    done = run(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def model() -> Path:
    return Path(needed("SHARDLINE_SMOLLM2"))


@pytest.fixture(scope="module")
def gguf() -> Path:
    return Path(needed("SHARDLINE_SMOLLM2_GGUF"))


def tiny(name: str) -> Path:
    return Path(needed("SHARDLINE_TINY_MODELS")) / name


@pytest.mark.parametrize("command", [*COMMANDS, "bench step", "bench serve", "fleet"])
def test_help_teaches(command: str) -> None:
    done = run(*command.split(), "--help")
    assert done.returncode == 0
    assert "Examples" in done.stdout


def test_unknown_flag_and_missing_model_are_usage_errors(model: Path) -> None:
    assert run("generate", model, "--prompt", "x", "--no-such-flag").returncode == 2
    assert run("generate").returncode == 2
    assert run("generate", model, "--prompt", "x", "--memory", "6 bananas").returncode == 2
    too_small = run("generate", model, "--prompt", "x", "--kv-cache", "1KiB")
    assert too_small.returncode == 2
    assert "--kv-cache of 1024 bytes" in too_small.stderr


def test_missing_files_are_named() -> None:
    done = run("generate", "/nonexistent/model", "--prompt", "x")
    assert done.returncode == 3
    assert "/nonexistent/model" in done.stderr


def refused(done: subprocess.CompletedProcess[str], *words: str) -> None:
    assert done.returncode == 4, (done.returncode, done.stderr)
    for word in words:
        assert word in done.stderr, done.stderr


def test_cut_short_files_are_refused(tmp_path: Path, model: Path, gguf: Path) -> None:
    short = tmp_path / "short.gguf"
    short.write_bytes(gguf.read_bytes()[:50_000_000])
    refused(run("import", short, "-o", tmp_path / "out"), "short.gguf")
    assert not (tmp_path / "out").exists()
    copy = tmp_path / "model"
    shutil.copytree(model, copy)
    with (copy / "openvino_model.bin").open("r+b") as file:
        file.truncate(1_000_000)
    refused(run("generate", copy, "--prompt", "x"), "openvino_model", "cut short")


def test_not_a_gguf_and_not_an_ir_are_refused(tmp_path: Path, model: Path) -> None:
    junk = tmp_path / "junk.gguf"
    junk.write_bytes(b"not a model at all" * 100)
    refused(run("import", junk, "-o", tmp_path / "out"), "junk.gguf")
    copy = tmp_path / "model"
    shutil.copytree(model, copy)
    (copy / "openvino_model.xml").write_text("<net name='x' version='11'></net>")
    refused(run("inspect", copy))


def test_missing_tokenizer_is_named(tmp_path: Path, model: Path) -> None:
    copy = tmp_path / "model"
    shutil.copytree(model, copy)
    (copy / "openvino_tokenizer.xml").unlink()
    done = run("generate", copy, "--prompt", "x")
    assert done.returncode in (3, 4)
    assert "openvino_tokenizer" in done.stderr


@pytest.mark.parametrize("name", ["lfm2", "mamba", "llama-stateless"])
def test_models_without_attention_state_are_refused(name: str) -> None:
    directory = tiny(name)
    if not directory.exists():
        pytest.skip(f"the fixtures hold no {name}")
    refused(run("inspect", directory))


def test_rewrite_that_disagrees_is_not_served() -> None:
    refused(run("generate", tiny("mpt"), "--prompt", "x"), "mpt")


def test_json_of_inspect_plan_doctor(model: Path) -> None:
    inspected = run_json("inspect", model)
    assert inspected["layers"] == 30
    assert len(inspected["layer_weights_bytes"]) == 30
    assert len(inspected["boundaries"]) == 31
    planned = run_json("plan", model, "--local-workers", "3")
    ends = [(stage["first_layer"], stage["last_layer"]) for stage in planned["workers"]]
    assert ends == [(0, 10), (10, 20), (20, 30)]
    assert {row["subject"] for row in run_json("doctor")} >= {"cores", "memory", "CPU"}


def test_same_text_in_any_number_of_processes(model: Path) -> None:
    def ids(*options: object) -> list[int]:
        out = run_json("generate", model, "--prompt", PROMPT, "--max-tokens", "32", *options)
        assert out["usage"]["completion_tokens"] == len(out["token_ids"])
        return out["token_ids"]

    alone = ids()
    assert ids("--local-workers", "1") == alone
    assert ids("--local-workers", "2") == alone
    assert ids("--local-workers", "4") == alone
    assert ids("--local-workers", "2", "--keep-layers", "7") == alone
    sampled = ids("--temperature", "0.9", "--seed", "5")
    assert ids("--temperature", "0.9", "--seed", "5", "--local-workers", "2") == sampled


def test_directory_as_genai_writes_it_answers() -> None:
    # Its chat template stands in the tokenizer model's runtime info, and nowhere else.
    out = run_json("generate", needed("SHARDLINE_SMOLLM2_GENAI"), "--prompt", PROMPT)
    assert out["finish_reason"] in ("stop", "length")
    assert out["usage"]["prompt_tokens"] > len(PROMPT.split())


def test_cut_writes_shards_that_plain_openvino_runs(tmp_path: Path, model: Path) -> None:
    import numpy
    import openvino

    shards = run_json("cut", model, "--at", "12", "-o", tmp_path / "shards")
    assert [shard["part"] for shard in shards] == ["embed+0-12", "12-30+head"]
    core = openvino.Core()
    config = {"INFERENCE_PRECISION_HINT": "f32"}
    ids = numpy.array([[1, 4093, 198, 2683]], numpy.int64)
    common = {
        "attention_mask": numpy.ones_like(ids),
        "position_ids": numpy.arange(ids.shape[1], dtype=numpy.int64)[None],
        "beam_idx": numpy.zeros(1, numpy.int32),
        "input_ids": ids,
    }

    def infer(directory: Path, inputs: dict[str, numpy.ndarray]) -> dict[str, numpy.ndarray]:
        compiled = core.compile_model(directory / "openvino_model.xml", "CPU", config)
        names = {name for port in compiled.inputs for name in port.get_names()}
        request = compiled.create_infer_request()
        request.infer({name: value for name, value in inputs.items() if name in names})
        return {
            port.get_any_name(): request.get_tensor(port).data.copy() for port in compiled.outputs
        }

    whole = infer(model, common)["logits"]
    crossing = infer(Path(shards[0]["directory"]), common)
    split = infer(Path(shards[1]["directory"]), common | crossing)["logits"]
    assert numpy.array_equal(whole, split)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("fleet")
    assert run("fleet", directory, "me", "pc1", "pc2").returncode == 0
    return directory


@contextmanager
def worker(credentials: Path, *options: object) -> Iterator[str]:
    command = [needed("SHARDLINE_BIN"), "worker", "--listen", "127.0.0.1:0"]
    command += ["--credentials", str(credentials), *map(str, options)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline()
        assert line.startswith("listening on "), line
        yield line.removeprefix("listening on ").strip()
    finally:
        process.terminate()
        assert process.wait(20) == 0


def through(workers: str, credentials: Path, model: Path) -> subprocess.CompletedProcess[str]:
    return run(
        *("generate", model, "--workers", workers, "--credentials", credentials),
        *("--prompt", PROMPT, "--max-tokens", "16", "--json"),
    )


def test_worker_that_is_not_there_is_named(fleet: Path, model: Path) -> None:
    done = through("127.0.0.1:9", fleet / "me", model)
    assert done.returncode == 6
    assert "127.0.0.1:9" in done.stderr


def test_worker_that_speaks_http_is_named(fleet: Path, model: Path) -> None:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"127.0.0.1:{server.server_port}"
    done = through(address, fleet / "me", model)
    server.shutdown()
    assert done.returncode in (4, 6)
    assert address in done.stderr


def test_foreign_fleet_is_refused(tmp_path: Path, fleet: Path, model: Path) -> None:
    assert run("fleet", tmp_path / "other", "me").returncode == 0
    with worker(fleet / "pc1") as address:
        done = through(address, tmp_path / "other" / "me", model)
    assert done.returncode in (4, 6)
    assert address in done.stderr


def test_workers_flag_needs_credentials(model: Path) -> None:
    done = run("generate", model, "--workers", "127.0.0.1:7411", "--prompt", "x")
    assert done.returncode == 2
    assert "--credentials" in done.stderr


def test_remote_workers_fetch_what_they_lack_once(tmp_path: Path, fleet: Path, model: Path) -> None:
    alone = run_json("generate", model, "--prompt", PROMPT, "--max-tokens", "16")
    stores = [tmp_path / "store1", tmp_path / "store2"]

    def serve() -> dict[str, object]:
        with (
            worker(fleet / "pc1", "--store", stores[0]) as first,
            worker(fleet / "pc2", "--store", stores[1]) as second,
        ):
            done = through(f"{first},{second}", fleet / "me", model)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    assert serve()["token_ids"] == alone["token_ids"]
    blobs = [next(store.rglob("openvino_model.bin")) for store in stores]
    whole = (model / "openvino_model.bin").stat().st_size
    for blob in blobs:
        # A worker holds its own layers only: the file is sparse.
        assert blob.stat().st_blocks * 512 < 0.8 * whole
    times = [blob.stat().st_mtime_ns for blob in blobs]
    assert serve()["token_ids"] == alone["token_ids"]
    assert [blob.stat().st_mtime_ns for blob in blobs] == times


def test_bench_serve_says_that_paced_stages_are_simulated() -> None:
    options = ["--pace", "2ms,1ms+0.1ms/row", "--streams", "1,2", "--tokens", "8", "--rounds", "1"]
    rows = run_json("bench", "serve", tiny("llama-int8"), *options)
    assert all(row["simulated"] for row in rows)
    speeds = {row["name"]: row for row in rows}
    assert 0 < speeds["1 stream"]["value"] < 1000 / 3.0
    assert speeds["2 streams"]["yardstick"] == "one stream"


@pytest.mark.parametrize(
    "options",
    [
        ["--pace", "fast"],
        ["--pace", "20"],
        ["--pace", "20ms+1ms"],
        ["--pace", "1ms,1ms", "--tokens", "9..3"],
    ],
)
def test_bench_serve_refuses_what_is_no_pace_or_range(options: list[str]) -> None:
    done = run("bench", "serve", tiny("llama-int8"), *options)
    assert done.returncode == 2
    assert "write it as" in done.stderr
