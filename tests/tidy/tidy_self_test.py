#!/usr/bin/env python3
"""Proves that tidy_test can fail: a clean tree passes, and each fault put into it is found."""

import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from tidy_test import findings

TABLE = """
| room | owns | may use |
|---|---|---|
| `base` | ground | |
| `cut` | parts | openvino |
| `stage` | running | openvino, threads in stage_worker |
| `server` | HTTP | http |
"""

CLEAN = {
    "src/README.md": TABLE,
    "src/base/CMakeLists.txt": "shardline_room(base SOURCES ids.cpp)\n",
    "src/base/ids.hpp": '#pragma once\n#include "base/number.hpp"\n'
    "struct Ids {\n    int sum() const { return 1; }\n};\n",
    "src/base/number.hpp": "#pragma once\n",
    "src/base/ids.cpp": '#include "base/ids.hpp"\n// a /* comment */ with { braces\n',
    "src/cut/CMakeLists.txt": "shardline_room(cut SOURCES cut.cpp)\n",
    "src/cut/cut.cpp": "#include <openvino/openvino.hpp>\n// as in llama: only a comment\n",
    "src/stage/CMakeLists.txt": "shardline_room(stage SOURCES stage_worker.cpp)\n",
    "src/stage/stage_worker.cpp": '#include <thread>\n#include "base/ids.hpp"\n',
}

LONG_BODY = "".join(f"    value += {n};\n" for n in range(70))

# fault: (file, its content, what must be said)
FAULTS = {
    "upward include": ("src/base/ids.cpp", '#include "cut/cut.hpp"\n', "must not include cut"),
    "unknown room": ("src/cellar/a.cpp", "\n", "not in the table"),
    "fenced library": ("src/base/ids.cpp", "#include <httplib.h>\n", "http is fenced off"),
    "generated header": ("src/base/ids.cpp", '#include "stage.pb.h"\n', "protobuf is fenced off"),
    "thread elsewhere": ("src/cut/cut.cpp", "std::thread worker;\n", "threads is fenced off"),
    "long line": ("src/base/ids.cpp", "// " + "x" * 98 + "\n", "101 columns"),
    "long function": (
        "src/base/ids.cpp",
        "int f(int value) {\n" + LONG_BODY + "}\n",
        "function of 72 lines",
    ),
    "long method": (
        "src/base/ids.hpp",
        "struct A {\n    void f() {\n" + LONG_BODY + "    }\n};\n",
        "function of 72 lines",
    ),
    "long test": (
        "src/base/ids.cpp",
        "namespace shardline {\nTEST(A, B) {\n" + LONG_BODY + "}\n}\n",
        "function of 72 lines",
    ),
    "long Python function": (
        "tests/a.py",
        "def f():\n" + "    a = 1\n" * 70,
        "function of 71 lines",
    ),
    "long file": ("src/base/ids.cpp", "\n" * 601, "601 lines"),
    "source outside CMake": ("src/base/more.cpp", "\n", "no CMakeLists.txt names it"),
    "header nobody includes": ("src/base/more.hpp", "\n", "nothing includes it"),
    "work mark": ("src/base/ids.cpp", "// TODO: later\n", "a work mark without an issue"),
    "machine path": ("docs/a.md", "see /home/someone/model\n", "a path of somebody's machine"),
    "registry": ("docs/a.md", "from https://pypi.example.org/simple\n", "address of a registry"),
    "poor name": ("src/base/ids.cpp", "class QueueImpl {};\n", "a name that says nothing"),
    "model family": ("src/cut/cut.cpp", 'if (kind == "qwen2") {}\n', "a model family by name"),
}


def findings_of(files):
    with tempfile.TemporaryDirectory() as root:
        for name, content in files.items():
            path = pathlib.Path(root) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
        subprocess.run(["git", "-C", root, "init", "-q"], check=True)
        subprocess.run(["git", "-C", root, "add", "-A"], check=True)
        return findings(root)


def main():
    failures = []
    clean = findings_of(CLEAN)
    if clean:
        failures.append(f"the clean tree has findings: {clean}")
    for fault, (name, content, expected) in FAULTS.items():
        found = findings_of({**CLEAN, name: content})
        if not any(finding.startswith(f"{name}:") and expected in finding for finding in found):
            failures.append(f"{fault}: not found, only {found}")
    for failure in failures:
        print(failure)
    print(f"tidy self-test: {len(FAULTS) + 1} cases, {len(failures)} failed")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
