"""Shardline's server over two workers against llama.cpp's over two RPC servers.

llama.cpp comes as the source that the package llama-cpp-python carries, and is built once into
build/peers/llama_cpp.
"""

import contextlib
import functools
import hashlib
import os
import pathlib
import shutil
import socket
import subprocess
from collections.abc import Iterator

from peers.http_load import run_load
from peers.processes import ROOT, Server, running, shardline_serving
from peers.report import Comparison, measure_pair

PACKAGE = "llama-cpp-python"
VERSION = "0.3.36"
SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
HOME = ROOT / "build/peers/llama_cpp"
GGUF = ROOT / "build/models/SmolLM2-135M-Instruct.Q4_1.gguf"
# The same file as we import it, zero points exact, and as GenAI does, rounded to whole numbers.
IMPORTS = ["smollm2", "smollm2-genai"]
LOGS = ROOT / "build/peers/logs"
VOCABULARY = 49152
STREAMS = 16
PROMPT_TOKENS = 32
ANSWER_TOKENS = 64
TARGET = 3.0
CONTEXT_PER_STREAM = 256
IDLE_SHARE_MAX = 0.05  # of one core, for the side that is not being measured

# The servers alone: no web interface, no TLS, no router, and each program in one file.
CMAKE_OPTIONS = [
    "-DCMAKE_BUILD_TYPE=Release",
    "-DGGML_RPC=ON",
    "-DGGML_NATIVE=ON",
    "-DBUILD_SHARED_LIBS=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_EXAMPLES=OFF",
    "-DLLAMA_BUILD_APP=OFF",
    "-DLLAMA_BUILD_UI=OFF",
    "-DLLAMA_USE_PREBUILT_UI=OFF",
    "-DLLAMA_OPENSSL=OFF",
]
PROGRAMS = ["llama-server", "ggml-rpc-server"]


def fetch_source(say) -> pathlib.Path:
    source = HOME / f"source-{VERSION}"
    if source.exists():
        return source
    HOME.mkdir(parents=True, exist_ok=True)
    archive = HOME / f"{PACKAGE.replace('-', '_')}-{VERSION}.tar.gz"
    if not archive.exists():
        say(f"fetching the source of {PACKAGE} {VERSION}")
        command = [ROOT / "build/venv/bin/python", "-m", "pip", "download", "--quiet", "--no-deps"]
        command += ["--no-binary", PACKAGE, "--dest", HOME, f"{PACKAGE}=={VERSION}"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()
    if digest != SHA256:
        raise RuntimeError(f"{archive} is damaged: sha256 {digest}, not {SHA256}; delete it")
    unpacked = HOME / "source.part"
    shutil.rmtree(unpacked, ignore_errors=True)
    unpacked.mkdir()
    subprocess.run(["tar", "-xzf", archive, "-C", unpacked, "--strip-components=1"], check=True)
    unpacked.rename(source)
    return source


def build(say) -> pathlib.Path:
    """The directory of the two programs; minutes the first time."""
    programs = HOME / f"build-{VERSION}"
    if not all((programs / "bin" / name).exists() for name in PROGRAMS):
        source = fetch_source(say) / "vendor/llama.cpp"
        say("building llama.cpp (minutes, once); its words are in build/peers/logs/llama_build.log")
        launcher = ["-DGGML_CCACHE=ON"] if shutil.which("ccache") else []
        LOGS.mkdir(parents=True, exist_ok=True)
        with (LOGS / "llama_build.log").open("wb") as log:
            for command in (
                ["cmake", "-G", "Ninja", "-S", source, "-B", programs, *CMAKE_OPTIONS, *launcher],
                ["nice", "-n", "19", "cmake", "--build", programs, "--target", *PROGRAMS],
            ):
                subprocess.run(command, check=True, stdout=log, stderr=subprocess.STDOUT)
    return programs / "bin"


def free_port() -> int:
    """The RPC server takes no 0 for a port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextlib.contextmanager
def llama_serving(programs: pathlib.Path) -> Iterator[tuple[list[Server], str]]:
    """All layers on the two RPC servers, each with all cores; a slot for each stream. Prompts are
    not kept for later, as none comes twice."""
    threads = len(os.sched_getaffinity(0))
    with contextlib.ExitStack() as stack:
        servers, addresses = [], []
        for number in range(2):
            port = free_port()
            command = [programs / "ggml-rpc-server", "-H", "127.0.0.1", "-p", port, "-t", threads]
            server = stack.enter_context(running(command, LOGS / f"llama_rpc_{number}.log"))
            server.wait_until_open(port)
            servers.append(server)
            addresses.append(f"127.0.0.1:{port}")
        command = [programs / "llama-server", "--host", "127.0.0.1", "--port", "0", "-m", GGUF]
        command += ["--rpc", ",".join(addresses), "--device", "RPC0,RPC1", "-ngl", "all"]
        command += ["-np", STREAMS, "-c", STREAMS * CONTEXT_PER_STREAM, "-t", threads]
        command += ["-fa", "on", "-ctk", "q8_0", "-ctv", "q8_0", "--cache-ram", 0, "--no-webui"]
        server = stack.enter_context(running(command, LOGS / "llama_server.log"))
        servers.append(server)
        yield servers, server.wait_for(r"listening on (http://127\.0\.0\.1:\d+)")


def busy_seconds(servers: list[Server]) -> float:
    return sum(server.cpu_seconds() for server in servers)


def measure(url: str, idle: list[Server], seed: int) -> float:
    """Of the server at `url`, while the others must rest."""
    before = busy_seconds(idle)
    tokens_per_s = run_load(url, STREAMS, PROMPT_TOKENS, ANSWER_TOKENS, VOCABULARY, seed)
    seconds = STREAMS * ANSWER_TOKENS / tokens_per_s
    share = (busy_seconds(idle) - before) / seconds
    if share > IDLE_SHARE_MAX:
        names = ", ".join(server.name for server in idle)
        raise RuntimeError(f"{names} took {share:.0%} of a core while the other was measured")
    return tokens_per_s


def compare(rounds: int, say, facts: dict[str, str]) -> list[Comparison]:
    programs = build(say)
    facts["llama.cpp"] = f"{version(programs)}, in {PACKAGE} {VERSION}, q8_0 KV cache"
    with llama_serving(programs) as (llama, their_url):
        return [compare_import(name, rounds, say, llama, their_url) for name in IMPORTS]


def compare_import(name: str, rounds: int, say, llama: list[Server], their_url: str) -> Comparison:
    comparison = Comparison(f"{name}, {STREAMS} streams, HTTP", "llama.cpp", TARGET)
    model = ROOT / "build/models" / name
    with shardline_serving(model, "--kv-precision", "u8") as (shardline, our_url):
        for number in range(rounds + 1):  # the first is the warm-up
            say(f"round {number} of {rounds}: {comparison.name} against llama.cpp")
            pair = measure_pair(
                number,
                functools.partial(measure, our_url, llama, 2 * number),
                functools.partial(measure, their_url, [shardline], 2 * number + 1),
            )
            if number > 0:
                comparison.add(*pair)
    return comparison


def version(programs: pathlib.Path) -> str:
    said = subprocess.run(
        [programs / "llama-server", "--version"], capture_output=True, text=True, check=True
    )
    words = (said.stdout + said.stderr).strip().splitlines()
    return next(line for line in words if line.startswith("version")).removeprefix("version: ")
