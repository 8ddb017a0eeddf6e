#!/usr/bin/env python3
"""The rules of the house that a compiler does not know, checked over the whole tree.

Rooms and their libraries come from the table in src/README.md; the limits are those of
CONTRIBUTING.md. Prints one line per finding, `file:line: rule`, and fails if there is any.
Needs nothing but Python and git.
"""

import ast
import pathlib
import re
import subprocess
import sys

LINE_COLUMNS_MAX = 100
FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 600

# What an #include or a word betrays about a library that is fenced in.
LIBRARIES = {
    "openvino": re.compile(r"#include\s*<openvino/"),
    "grpc": re.compile(r'#include\s*[<"](grpcpp|grpc)/|#include\s*"[^"]*\.grpc\.pb\.h"'),
    "protobuf": re.compile(r'#include\s*<google/protobuf|#include\s*"[^"]*(?<!\.grpc)\.pb\.h"'),
    "http": re.compile(r"#include\s*<httplib\.h>"),
    "prometheus": re.compile(r"#include\s*<prometheus/"),
    "json": re.compile(r"#include\s*<nlohmann/"),
    "openssl": re.compile(r"#include\s*<openssl/"),
    "cli11": re.compile(r"#include\s*<CLI/"),
    "threads": re.compile(r"#include\s*<(thread|future)>|\bstd::(jthread|thread|async)\b(?!::id)"),
}

FAMILIES = re.compile(
    r"llama|qwen|mistral|mixtral|gemma|falcon|bloom|gpt_?(2|j|neox|oss|bigcode)|olmo|granite"
    r"|(?<![a-z])(phi\d?|mpt|opt|glm\d?|lfm\d?)(?![a-z])|cohere|stablelm|smollm|exaone|arcee"
    r"|mamba|starcoder|deepseek",
    re.IGNORECASE,
)
WORK_MARKS = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b(?!\(#\d+\))")
MACHINE_PATHS = re.compile(r"""(?<![\w.$}{>*)-])/(work|home|root|Users)/\w""")
REGISTRIES = re.compile(
    r"https?://[\w.-]*(registry|index|proxy|mirror|artifact|pypi|crates\.io|npmjs|deb\.debian)"
)
POOR_NAMES = re.compile(r"\b(class|struct)\s+\w*(Impl|Helper|Handler|Utils|Orchestrator)\b")

TEXT_SUFFIXES = {
    ".cpp",
    ".hpp",
    ".py",
    ".md",
    ".txt",
    ".cmake",
    ".json",
    ".toml",
    ".yaml",
    ".yml",
    ".proto",
    ".rs",
    ".h",
    ".sh",
    "",
}
CODE_SUFFIXES = {".cpp", ".hpp", ".py", ".rs", ".h", ".proto"}


def read_rooms(text):
    """The table of src/README.md: [(room, {library: stems or None for anywhere})] in order."""
    rooms = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        name = re.fullmatch(r"`(\w+)`", cells[1]) if len(cells) == 5 else None
        if name:
            allowed = {}
            for entry in filter(None, (part.strip() for part in cells[3].split(","))):
                library, _, stems = entry.partition(" in ")
                allowed[library] = set(stems.split(" and ")) if stems else None
            rooms.append((name.group(1), allowed))
    return rooms


def blank_comments(text, blank_strings=False):
    """C++ text with comments (and the inside of strings) as spaces; lines stay where they are."""
    pattern = re.compile(
        r'//[^\n]*|/\*.*?\*/|R"(?P<mark>[^(\s]*)\(.*?\)(?P=mark)"'
        r'|"(?:\\.|[^"\\\n])*"|(?<!\w)\'(?:\\.|[^\'\\\n])+\'',
        re.DOTALL,
    )

    def replace(match):
        found = match.group()
        if found.startswith("/") or blank_strings:
            return re.sub(r"[^\n]", " ", found)
        return found

    return pattern.sub(replace, text)


def cpp_functions(text):
    """(first line, number of lines) of every function outside other functions."""
    text = blank_comments(text, blank_strings=True)
    text = re.sub(r"^#.*(\\\n.*)*", lambda m: "\n" * m.group().count("\n"), text, flags=re.M)
    found = []
    head_start, depth_in_function, function_start = 0, 0, 0
    for position, char in enumerate(text):
        if depth_in_function:
            depth_in_function += {"{": 1, "}": -1}.get(char, 0)
            if depth_in_function == 0:
                first = text.count("\n", 0, function_start) + 1
                found.append((first, text.count("\n", 0, position) + 2 - first))
                head_start = position + 1
        elif char == "{":
            head = text[head_start:position]
            is_scope = re.search(r"\b(namespace|class|struct|enum|union)\b[^()]*$", head)
            if "(" in head and not is_scope and not re.search(r"=\s*$", head):
                depth_in_function = 1
                function_start = head_start + len(head) - len(head.lstrip())
            else:
                head_start = position + 1
        elif char in ";}":
            head_start = position + 1
    return found


def python_functions(text):
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return [
        (node.lineno, node.end_lineno - node.lineno + 1)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, functions)
    ]


class Tree:
    """Every tracked text file of a checkout, read once."""

    def __init__(self, root):
        self.root = pathlib.Path(root)
        listing = subprocess.run(
            ["git", "-C", root, "ls-files", "-z"], check=True, capture_output=True, text=True
        ).stdout
        self.files = {}
        for name in filter(None, listing.split("\0")):
            path = self.root / name
            if path.suffix in TEXT_SUFFIXES and path.is_file():
                try:
                    self.files[name] = path.read_text(encoding="utf-8")
                except UnicodeDecodeError:
                    continue  # a binary seed or fixture without a suffix

    def below(self, folder, *suffixes):
        return {
            name: text
            for name, text in self.files.items()
            if name.startswith(folder + "/") and pathlib.PurePath(name).suffix in suffixes
        }


def lines_matching(text, pattern):
    return [number for number, line in enumerate(text.splitlines(), 1) if pattern.search(line)]


def check_room_order(tree):
    rooms = [room for room, _ in read_rooms(tree.files.get("src/README.md", ""))]
    if not rooms:
        yield "src/README.md", 1, "no table of rooms"
    place = {room: index for index, room in enumerate(rooms)}
    for name, text in tree.below("src", ".cpp", ".hpp").items():
        room = name.split("/")[1]
        if room not in place:
            yield name, 1, f"room {room} is not in the table of src/README.md"
            continue
        for number, line in enumerate(text.splitlines(), 1):
            include = re.match(r'#include\s*"(\w+)/', line)
            if include and place.get(include.group(1), len(rooms)) > place[room]:
                yield name, number, f"{room} must not include {include.group(1)}"


def check_library_fences(tree):
    rooms = dict(read_rooms(tree.files.get("src/README.md", "")))
    for name, text in tree.below("src", ".cpp", ".hpp").items():
        allowed = rooms.get(name.split("/")[1], {})
        code = blank_comments(text)
        for library, pattern in LIBRARIES.items():
            stems = allowed.get(library, set())
            if stems is None or pathlib.PurePath(name).stem in stems:
                continue
            for number in lines_matching(code, pattern):
                yield name, number, f"{library} is fenced off here (src/README.md)"


def check_sizes(tree):
    for name, text in tree.files.items():
        suffix = pathlib.PurePath(name).suffix
        if suffix not in CODE_SUFFIXES:
            continue
        lines = text.splitlines()
        if len(lines) > FILE_LINES_MAX:
            yield name, len(lines), f"{len(lines)} lines, more than {FILE_LINES_MAX}"
        for number, line in enumerate(lines, 1):
            if len(line) > LINE_COLUMNS_MAX:
                yield name, number, f"{len(line)} columns, more than {LINE_COLUMNS_MAX}"
        functions = []
        if suffix in {".cpp", ".hpp"}:
            functions = cpp_functions(text)
        elif suffix == ".py":
            functions = python_functions(text)
        for first, length in functions:
            if length > FUNCTION_LINES_MAX:
                yield name, first, f"function of {length} lines, more than {FUNCTION_LINES_MAX}"


def check_dead_files(tree):
    lists = {
        name.rpartition("/")[0]: text
        for name, text in tree.files.items()
        if name.endswith("CMakeLists.txt")
    }
    included = set()
    for folder in ("src", "tests", "bench"):
        for name, text in tree.below(folder, ".cpp", ".hpp").items():
            for header in re.findall(r'#include\s*"([^"]+)"', text):
                beside = f"{name.rpartition('/')[0]}/{header}"
                found = {beside, f"src/{header}", f"tests/{header}", f"bench/{header}"}
                included |= found - {name}
    for folder in ("src", "tests", "bench"):
        for name in tree.below(folder, ".cpp"):
            where, _, leaf = name.rpartition("/")
            while where and where not in lists:
                where = where.rpartition("/")[0]
            stem = leaf.removesuffix(".cpp")
            if not re.search(rf"(?<![\w]){stem}(\.cpp|(?![\w.]))", lists.get(where, "")):
                yield name, 1, "dead file: no CMakeLists.txt names it"
        for name in tree.below(folder, ".hpp"):
            if name not in included:
                yield name, 1, "dead file: nothing includes it"


def check_words(tree):
    for name, text in tree.files.items():
        if name.startswith("tests/tidy/") or name.endswith("Cargo.lock"):
            continue
        for pattern, message in (
            (WORK_MARKS, "a work mark without an issue"),
            (MACHINE_PATHS, "a path of somebody's machine"),
            (REGISTRIES, "the address of a registry"),
        ):
            for number in lines_matching(text, pattern):
                yield name, number, message
        if name.startswith("src/") and name.endswith((".cpp", ".hpp")):
            for number in lines_matching(blank_comments(text), POOR_NAMES):
                yield name, number, "a name that says nothing (CONTRIBUTING.md, Names)"


def check_no_families(tree):
    for folder in ("src/cut", "src/stage"):
        for name, text in tree.below(folder, ".cpp", ".hpp").items():
            for number in lines_matching(blank_comments(text), FAMILIES):
                yield name, number, "a model family by name: cut by the graph, not by the family"


CHECKS = (
    check_room_order,
    check_library_fences,
    check_sizes,
    check_dead_files,
    check_words,
    check_no_families,
)


def findings(root):
    tree = Tree(str(root))
    return [f"{name}:{line}: {message}" for check in CHECKS for name, line, message in check(tree)]


def main():
    root = pathlib.Path(__file__).resolve().parent.parent.parent
    found = findings(root)
    for finding in found:
        print(finding)
    print(f"tidy: {len(found)} findings")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
