"""The house's own rules: imports, names, the one door, and documentation that is true."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import substrate

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "substrate"
GATES = SOURCE / "agents" / "tools" / "gates.py"
INVOKER = SOURCE / "agents" / "tools" / "invoker.py"
WAY = ROOT / "docs" / "the-way-of-a-call.md"
TEXTS = (".cfg", ".in", ".md", ".py", ".toml", ".txt", ".yaml", ".yml")
NOT_OURS = {"build", "dist", "out"}


def ours(*suffixes: str) -> list[Path]:
    """The project's files, without what tools and runs leave behind."""
    return [
        path
        for path in sorted(ROOT.rglob("*"))
        if path.is_file()
        and (path.suffix in suffixes or path.name in {"Makefile", "LICENSE"})
        and not any(
            part.startswith(".") or part in NOT_OURS for part in path.relative_to(ROOT).parts[:-1]
        )
    ]


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def in_a_process(*command: str) -> str:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return done.stdout


# imports and names ---------------------------------------------------------------------


@pytest.mark.req("layers.downward", "layers.kernel")
def test_imports_keep_their_contracts() -> None:
    lint = Path(sys.executable).parent / "lint-imports"
    in_a_process(str(lint), "--no-cache", "--no-logo")


@pytest.mark.req("layers.light")
def test_importing_substrate_imports_nothing_of_a_third_party() -> None:
    code = "import sys; old = set(sys.modules); import substrate; print(*set(sys.modules) - old)"
    loaded = {name.partition(".")[0] for name in in_a_process(sys.executable, "-c", code).split()}
    assert loaded - sys.stdlib_module_names == {"substrate"}


def packages() -> list[str]:
    found = pkgutil.walk_packages(substrate.__path__, "substrate.")
    return ["substrate", *(info.name for info in found if not info.name.endswith("__main__"))]


def in_order(name: str) -> tuple[int, str]:
    """Constants, then classes, then functions, as the linter wants it."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2, name)


@pytest.mark.req("layers.names")
@pytest.mark.parametrize("name", packages())
def test_public_names_are_sorted_and_can_be_imported(name: str) -> None:
    module = importlib.import_module(name)
    public: list[str] = list(getattr(module, "__all__", ()))
    assert public == sorted(set(public), key=in_order)
    missing = [each for each in public if not hasattr(module, each)]
    assert not missing


# the one door --------------------------------------------------------------------------


def calls_of(tree: ast.AST) -> list[ast.Call]:
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return sorted(found, key=lambda call: (call.lineno, call.col_offset))


def functions(path: Path) -> dict[str, ast.AST]:
    return {
        node.name: node
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def called_by(name: str, known: dict[str, ast.AST]) -> Iterator[str]:
    """What the function calls, in order; a call of one that is `known` is followed."""
    for call in calls_of(known[name]):
        called = ast.unparse(call.func).rpartition(".")[2]
        yield called
        if called in known:
            yield from called_by(called, known)


def told_gates() -> list[list[str]]:
    """The functions that each row of the table names."""
    rows = [line for line in WAY.read_text("utf-8").splitlines() if re.match(r"\| \d+ \|", line)]
    return [re.findall(r"`(\w+)`", row.split("|")[3]) for row in rows]


@pytest.mark.req("way.order")
def test_the_gates_are_passed_in_the_order_that_the_documentation_tells() -> None:
    told = [gate for row in told_gates() for gate in row]
    known = functions(INVOKER)
    frame = list(called_by("invoke", {"invoke": known["invoke"]}))
    before = frame[: frame.index("pass_gates")]
    del known["invoke"]
    passed = [gate for gate in (*before, *called_by("pass_gates", known)) if gate in told]
    assert passed == told
    assert len(told_gates()) == 14


@pytest.mark.req("layers.one-place")
def test_a_tool_is_run_in_one_place() -> None:
    runs: list[str] = []
    for path in ours(".py"):
        if SOURCE in path.parents:
            for call in calls_of(ast.parse(path.read_text("utf-8"))):
                given = {keyword.arg for keyword in call.keywords}  # None stands for **
                by_name = re.search(r"\btool\w*\.(execute|handle_call)$", ast.unparse(call.func))
                if {"ctx", None} <= given or by_name:
                    runs.append(f"{named(path)}: {ast.unparse(call)}")
    assert runs == [f"{named(GATES)}: run(ctx=own, **ready.kwargs)"]


# what is written -----------------------------------------------------------------------


def documents() -> list[Path]:
    return [path for path in ours(".md") if path.suffix == ".md"]


@pytest.mark.req("docs.true")
@pytest.mark.parametrize("document", documents(), ids=named)
def test_documentation_names_no_file_that_is_not_there(document: Path) -> None:
    text = re.sub(r"^```.*?^```", "", document.read_text("utf-8"), flags=re.DOTALL | re.MULTILINE)
    links = [target.partition("#")[0] for target in re.findall(r"\]\(([^)\s]+)\)", text)]
    lost = [
        link
        for link in links
        if link and "://" not in link and not (document.parent / link).exists()
    ]
    for code in re.findall(r"`([\w.-]+(?:/[\w.-]+)*/?)`", text):
        looks_like_one = code.endswith(TEXTS) or (ROOT / code.partition("/")[0]).is_dir()
        if looks_like_one and "/" in code and not (ROOT / code).exists():
            lost.append(code)
    assert not lost


@pytest.mark.req("docs.true")
def test_the_example_of_the_readme_gives_what_it_says() -> None:
    (example,) = re.findall(
        r"^```python\n(.*?)^```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL | re.MULTILINE
    )
    said = re.findall(r"print\(.*\)  # (.*)", example)
    output = in_a_process(sys.executable, "-W", "error", "-c", example).splitlines()
    assert output[: len(said)] == said
    assert "order denied no denied" in output


ELSEWHERE = {
    "a place of one machine": r"(?<![\w.~-])/(?:work|home|root|Users)/",
    "a ticket": r"(?i)\bissues? #?\d",
    "the folder of cases, which a variable names": r"shared[/]cases",
    "an address of a package index": r"https?://[^\s\"']*(?:pypi|/simple\b)",
}


def test_the_project_speaks_of_itself_alone() -> None:
    found: list[str] = []
    for path in ours(*TEXTS):
        text = path.read_text("utf-8")
        lines = enumerate(text.splitlines(), start=1)
        found += [
            f"{named(path)}:{n} names {what}"
            for n, line in lines
            for what, pattern in ELSEWHERE.items()
            if re.search(pattern, line)
        ]
        absent = {doc for doc in re.findall(r"\b[A-Z]+\.md\b", text) if not (ROOT / doc).exists()}
        found += [f"{named(path)} names {doc}, which is not there" for doc in sorted(absent)]
    assert not found, "\n".join(found)
