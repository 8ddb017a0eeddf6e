"""Starting servers and ending them; how busy they are."""

import contextlib
import os
import pathlib
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator

ROOT = pathlib.Path(__file__).resolve().parents[2]
SHARDLINE = ROOT / "build/release/shardline"
START_S = 120.0  # until a server has loaded its model
END_S = 20.0


class Server:
    """A process in a group of its own whose output goes to a file, so that no pipe fills up."""

    def __init__(self, command: list, log: pathlib.Path):
        log.parent.mkdir(parents=True, exist_ok=True)
        self.log = log
        self.name = pathlib.Path(command[0]).name
        with log.open("wb") as out:
            self.process = subprocess.Popen(
                list(map(str, command)),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait_for(self, pattern: str) -> str:
        """The first group of the first match in what the process has said."""

        def said() -> str | None:
            found = re.search(pattern, self.log.read_text(errors="replace"))
            return found.group(1) if found else None

        return self._wait(said)

    def wait_until_open(self, port: int) -> None:
        """For a process that keeps its words in a buffer."""

        def is_open() -> bool:
            with socket.socket() as probe:
                return probe.connect_ex(("127.0.0.1", port)) == 0

        self._wait(is_open)

    def _wait(self, ready: Callable):
        deadline = time.monotonic() + START_S
        ended = False
        while not ended and time.monotonic() < deadline:
            ended = self.process.poll() is not None
            if answer := ready():
                return answer
            time.sleep(0.05)
        tail = self.log.read_text(errors="replace")[-2000:]
        raise RuntimeError(f"{self.name} does not serve; its last words:\n{tail}")

    def cpu_seconds(self) -> float:
        """Used so far by the process and its children that live."""
        ticks = 0
        for stat in pathlib.Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                fields = stat.read_text().rpartition(")")[2].split()
                if int(fields[2]) == self.process.pid:  # its group
                    ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(END_S)
        with contextlib.suppress(ProcessLookupError):  # what it left behind, or hangs itself
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@contextlib.contextmanager
def running(command: list, log: pathlib.Path) -> Iterator[Server]:
    server = Server(command, log)
    try:
        yield server
    finally:
        server.end()


@contextlib.contextmanager
def shardline_serving(model: pathlib.Path, *options: str) -> Iterator[tuple[Server, str]]:
    """Two local workers behind an address of their own."""
    command = [SHARDLINE, "serve", model, "--local-workers", "2", "--listen", "127.0.0.1:0"]
    with running([*command, *options], ROOT / "build/peers/logs/shardline.log") as server:
        yield server, server.wait_for(r"serving .* at (http://\S+)")


def output_of(command: list) -> str:
    """Output of a command that must succeed; what it says on stderr only if it does not."""
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{command[0]} failed:\n{done.stderr[-2000:]}")
    return done.stdout
