"""What the soak's clients ask, how they leave, and what each answer must be, bit for bit."""

from __future__ import annotations

import http.client
import json
import random
import socket
import struct
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from urllib.parse import urlsplit

CONTEXT = 512  # tokens, of the tiny model
VOCABULARY = 256
LONGEST_ANSWER = 64
LONGEST_PROMPT = CONTEXT - LONGEST_ANSWER
BLOCK = 32
CROWD = 64  # prompts: what one request may ask for at most
GOLDEN = 0x9E3779B97F4A7C15  # between the seeds of two choices
PATIENCE_SECONDS = 120.0  # an answer that takes longer is a fault
SHORT_PATIENCE_SECONDS = 0.05
MAX_FAULTS = 20  # more say nothing new


@dataclass(frozen=True)
class Case:
    """A request of the fixed set; its answer does not depend on when it is asked."""

    prompt: tuple[int, ...]
    max_tokens: int
    temperature: float
    seed: int
    n: int = 1
    copies: int = 1  # of the prompt

    @property
    def choices(self) -> int:
        return self.n * self.copies

    def body(self, *, stream: bool = False) -> dict[str, object]:
        return {
            "prompt": [self.prompt] * self.copies if self.copies > 1 else self.prompt,
            "max_tokens": self.max_tokens,
            "temperature": self.temperature,
            "seed": self.seed,
            "n": self.n,
            "logprobs": 2,
            "stream": stream,
        }

    def alone(self, choice: int) -> Case:
        """The request of one choice whose answer is that choice's."""
        seed = (self.seed + choice % self.n * GOLDEN) % 2**64
        seed -= 2**64 if seed >= 2**63 else 0
        return Case(self.prompt, self.max_tokens, self.temperature, seed)

    def num_blocks(self) -> int:
        own = -(-(len(self.prompt) + self.max_tokens) // BLOCK)
        return own * self.choices


@dataclass
class Answer:
    """One choice. Equal only when text, tokens and every bit of every logprob are."""

    text: str = ""
    finish: str | None = None
    tokens: list[str] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    others: list[dict[str, float]] = field(default_factory=list)

    def add(self, choice: dict[str, object]) -> None:
        self.text += choice["text"]
        self.finish = choice["finish_reason"] or self.finish
        if choice["logprobs"]:
            self.tokens += choice["logprobs"]["tokens"]
            self.logprobs += choice["logprobs"]["token_logprobs"]
            self.others += choice["logprobs"]["top_logprobs"]

    def begins(self, whole: Answer) -> bool:
        count = len(self.tokens)
        return (
            whole.text.startswith(self.text)
            and self.tokens == whole.tokens[:count]
            and self.logprobs == whole.logprobs[:count]
            and self.others == whole.others[:count]
        )


def make_cases(count: int, seed: int) -> list[Case]:
    """Lengths around blocks and between, a quarter with a long common beginning, a few crowds."""
    dice = random.Random(seed)
    common = [dice.randrange(VOCABULARY) for _ in range(300)]
    edges = [1, 2, 31, 32, 33, 34, 63, 64, 65, 66, 128, 256, LONGEST_PROMPT]
    cases = []
    for index in range(count):
        length = dice.randint(1, dice.choice([2 * BLOCK, LONGEST_PROMPT]))
        length = edges[index] if index < len(edges) else length
        prompt = [dice.randrange(VOCABULARY) for _ in range(length)]
        if index % 4 == 3:
            prompt = common + prompt[: LONGEST_PROMPT - len(common)]
        crowd = index % 16 == 14
        cases.append(
            Case(
                prompt=tuple(prompt[: 2 * BLOCK] if crowd else prompt),
                max_tokens=dice.randint(1, LONGEST_ANSWER),
                temperature=0.0 if index % 2 == 0 else 1.0,
                seed=dice.randrange(-(2**63), 2**63),
                n=1 if crowd else dice.choice([1, 1, 1, 2]),
                copies=CROWD if crowd else 1,
            )
        )
    return cases


class Connection:
    """One client's connection, kept until it leaves."""

    def __init__(self, base_url: str) -> None:
        self.address = urlsplit(base_url)
        self.open: http.client.HTTPConnection | None = None

    def send(self, body: dict[str, object], timeout: float = PATIENCE_SECONDS) -> None:
        if self.open is None:
            self.open = http.client.HTTPConnection(self.address.hostname, self.address.port)
        self.open.timeout = timeout
        if self.open.sock is not None:
            self.open.sock.settimeout(timeout)
        headers = {"Content-Type": "application/json"}
        self.open.request("POST", "/v1/completions", json.dumps(body), headers)

    def response(self) -> http.client.HTTPResponse:
        return self.open.getresponse()

    def leave(self, *, reset: bool = False) -> None:
        """Closes, or, as a machine that vanishes does, resets."""
        if self.open is not None and self.open.sock is not None and reset:
            linger = struct.pack("ii", 1, 0)
            self.open.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        if self.open is not None:
            self.open.close()
        self.open = None


def read_answers(response: http.client.HTTPResponse, case: Case, chunks: int = 2**31) -> list:
    """Of a stream or a whole response; of a stream at most the first `chunks` pieces."""
    answers = [Answer() for _ in range(case.choices)]
    if response.headers["Content-Type"] != "text/event-stream":
        for choice in json.loads(response.read())["choices"]:
            answers[choice["index"]].add(choice)
        return answers
    while chunks > 0:
        line = response.readline().strip()
        if line == b"data: [DONE]":
            response.read()
            break
        if line:
            event = json.loads(line.removeprefix(b"data: "))
            if "error" in event:
                raise ValueError(f"error event {event['error']}")
            answers[event["choices"][0]["index"]].add(event["choices"][0])
            chunks -= 1
        elif response.isclosed():
            raise ValueError("the stream ended without [DONE]")
    return answers


class Board:
    """What all clients share: what came of each request, and what went wrong."""

    def __init__(self, expected: dict[Case, list[Answer]]) -> None:
        self.expected = expected
        self.over = threading.Event()
        self.outcomes: Counter[str] = Counter()
        self.faults: list[str] = []
        self.lock = threading.Lock()

    def count(self, outcome: str) -> None:
        with self.lock:
            self.outcomes[outcome] += 1

    def fault(self, text: str) -> None:
        with self.lock:
            self.faults.append(text)
            if len(self.faults) >= MAX_FAULTS:
                self.over.set()

    def judge(self, case: Case, answers: list[Answer], *, whole: bool) -> None:
        for index, (answer, alone) in enumerate(zip(answers, self.expected[case], strict=True)):
            if (answer != alone) if whole else not answer.begins(alone):
                self.fault(f"choice {index} of {case}\n  was   {answer}\n  alone {alone}")


class Client(threading.Thread):
    """Asks, waits, loses patience, leaves; until the board says that it is over."""

    def __init__(self, base_url: str, board: Board, seed: int) -> None:
        super().__init__()
        self.board = board
        self.dice = random.Random(seed)
        self.connection = Connection(base_url)
        self.cases = list(board.expected)
        self.long_cases = [case for case in self.cases if len(case.prompt) > CONTEXT // 2]
        self.habits = [
            (self.wait_for_answer, 60),
            (self.leave_after_some_tokens, 12),
            (self.leave_at_once, 10),
            (self.lose_patience, 8),
            (self.ask_too_much, 6),
            (self.ask_nonsense, 4),
        ]

    def run(self) -> None:
        habits, weights = zip(*self.habits, strict=True)
        while not self.board.over.is_set():
            habit = self.dice.choices(habits, weights)[0]
            try:
                habit(self.dice.choice(self.cases))
            except (OSError, http.client.HTTPException, ValueError, KeyError) as error:
                self.board.fault(f"{habit.__name__}: {type(error).__name__}: {error}")
                self.connection.leave()
        self.connection.leave()

    def accepted(self, response: http.client.HTTPResponse) -> bool:
        if response.status == 200:
            return True
        body = response.read().decode()
        if response.status == 429:
            self.board.count("refused, queue full (429)")
            self.board.over.wait(float(response.headers["Retry-After"]))
        else:
            self.board.fault(f"status {response.status}: {body}")
        return False

    def wait_for_answer(self, case: Case) -> None:
        stream = self.dice.random() < 0.5
        self.connection.send(case.body(stream=stream))
        response = self.connection.response()
        if self.accepted(response):
            self.board.judge(case, read_answers(response, case), whole=True)
            self.board.count("answered, streamed" if stream else "answered whole")
        if self.dice.random() < 0.2:
            self.connection.leave()

    def leave_after_some_tokens(self, case: Case) -> None:
        self.connection.send(case.body(stream=True))
        response = self.connection.response()
        if self.accepted(response):
            chunks = self.dice.randint(1, 20)
            self.board.judge(case, read_answers(response, case, chunks), whole=False)
            self.board.count("left while answered")
        self.connection.leave(reset=self.dice.random() < 0.5)

    def leave_at_once(self, case: Case) -> None:
        """In the queue or while the prompt is computed."""
        case = self.dice.choice([case, *self.long_cases])
        self.connection.send(case.body(stream=self.dice.random() < 0.5))
        time.sleep(self.dice.choice([0.0, 0.002, 0.01, 0.03]))
        self.connection.leave(reset=self.dice.random() < 0.5)
        self.board.count("left at once")

    def lose_patience(self, case: Case) -> None:
        self.connection.leave()
        try:
            self.connection.send(case.body(), SHORT_PATIENCE_SECONDS)
            response = self.connection.response()
            if self.accepted(response):
                self.board.judge(case, read_answers(response, case), whole=True)
                self.board.count("answered within 50 ms")
        except TimeoutError:
            self.board.count("timed out after 50 ms")
        self.connection.leave()

    def ask_too_much(self, case: Case) -> None:
        length = self.dice.choice([CONTEXT, CONTEXT + 1, 4 * CONTEXT])
        prompt = (case.prompt * CONTEXT * 4)[:length]
        self.expect_refusal(
            case.body(stream=self.dice.random() < 0.5) | {"prompt": list(prompt), "n": 1},
            ["context_length_exceeded", f" {CONTEXT} ", f" {length} "],
        )
        self.board.count("refused, prompt too long (400)")

    def ask_nonsense(self, case: Case) -> None:
        wrong = self.dice.choice(
            [
                {"logit_bias": {"999999": 1}},
                {"prompt": [VOCABULARY]},
                {"prompt": []},
                {"max_tokens": 0},
                {"prompt": [[1]] * (CROWD + 1)},
            ]
        )
        self.expect_refusal(case.body() | wrong, [])
        self.board.count("refused, nonsense (400)")

    def expect_refusal(self, body: dict[str, object], words: list[str]) -> None:
        self.connection.send(body)
        response = self.connection.response()
        text = response.read().decode()
        if response.status != 400 or not all(word in text for word in words):
            self.board.fault(f"expected a refusal with {words}, got {response.status}: {text}")
        if response.headers.get("Connection") == "close":
            self.connection.leave()
