"""Function documents of a public collection go in, to a stub, through the gates and back."""

from __future__ import annotations

import ast
import asyncio
import os
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
from bfcl import FOLDER, MULTI_TURN, accepted_calls, documents, schema_of, state_of, tasks

from schema_values import Echo, made
from substrate import ChainPolicy, Toolbox, ToolCallRequest, ToolChainTool, ToolInvoker
from substrate.capabilities.sandboxes import MontySandbox
from substrate.kernel.context import RunContext
from substrate.kernel.tools.tools import ToolExecutionResult

pytestmark = [
    pytest.mark.skipif(not FOLDER.is_dir(), reason="`make corpora` was not run"),
    pytest.mark.req("corpora.functions"),
]

STEP = 1 if os.environ.get("SUBSTRATE_FULL") else 10
"""Every so many of the documents, calls and tasks."""

BATCH = 60  # tools of one toolbox, whose script is short enough to be type-checked
POLICY = ChainPolicy(max_tool_calls=1000, max_inline_result_bytes=1_000_000)


def echo(document: Mapping[str, Any]) -> Echo:
    """A documented function; its scripts are type-checked, for it is not pure."""
    return Echo(
        document["name"], document.get("description") or "", schema_of(document["parameters"]),
        effect="idempotent",
    )  # fmt: skip


def batches() -> list[list[Echo]]:
    """The documents, those of one name in different batches."""
    layers: dict[int, list[Echo]] = {}
    seen = Counter[str]()
    for document in documents()[::STEP]:
        layers.setdefault(seen[document["name"]], []).append(echo(document))
        seen[document["name"]] += 1
    return [
        layer[start : start + BATCH]
        for layer in layers.values()
        for start in range(0, len(layer), BATCH)
    ]


def test_every_document_is_called_in_a_checked_script_and_its_arguments_come_back() -> None:
    async def check(tools: list[Echo], sandbox: MontySandbox) -> int:
        box = Toolbox(tools)
        chain = ToolChainTool(ToolInvoker(box, policy=POLICY), sandbox)
        names = box.identifiers()
        stubs = ast.parse(chain.stubs()).body
        assert {one.name for one in stubs if isinstance(one, ast.AsyncFunctionDef)} == {
            *names.values()
        }
        sent = [(t.name, made(t.input_schema, t.input_schema, whole=True)) for t in tools]
        calls = [f"found.append(await {_written(names[raw], given)})" for raw, given in sent]
        result = await chain.run("\n".join(["found = []", *calls, "found"]))
        assert result.status == "ok", result.output_text
        assert result.value == [{"given": given} for _, given in sent]
        return len(tools)

    async def main() -> int:
        async with MontySandbox() as sandbox:
            return sum([await check(tools, sandbox) for tools in batches()])

    assert asyncio.run(main()) == len(documents()[::STEP])


def _written(name: str, given: Mapping[str, Any]) -> str:
    if all(key.isidentifier() for key in given):
        try:
            source = f"{name}({', '.join(f'{key}={value!r}' for key, value in given.items())})"
            ast.parse(source)
        except SyntaxError:  # a keyword
            return f"{name}(**{given!r})"
        return source
    return f"{name}(**{given!r})"


MISFITS = 42
"""Accepted values of another type, choice or shape than their own function takes."""


def test_the_calls_that_are_accepted_pass_the_gates_unchanged() -> None:
    async def main() -> tuple[int, int]:
        misfits = calls = 0
        for accepted in list(accepted_calls())[::STEP]:
            invoker = ToolInvoker(Toolbox([echo(accepted.document)]), policy=POLICY)
            async with invoker.open_session() as session:
                call = ToolCallRequest(accepted.document["name"], accepted.arguments)
                result = await invoker.invoke(call, session=session)
            calls += 1
            if result.reason == "invalid_arguments":
                misfits += 1
            else:
                assert result.structured == {"given": accepted.arguments}, accepted
        return calls, misfits

    calls, misfits = asyncio.run(main())
    assert calls > 3000 // STEP
    assert misfits <= MISFITS


MISFIT_TASKS = {f"multi_turn_{category}_173" for category in MULTI_TURN}
"""Their last call closes a ticket by a text, where its function takes a number."""


class Method:
    """A function of a simulated system."""

    risk = "safe"
    effect = "once"

    def __init__(self, document: Mapping[str, Any], system: Any) -> None:
        self.name: str = document["name"]
        self.description: str = document["description"]
        self.input_schema = schema_of(document["parameters"])
        self._method = getattr(system, self.name)

    async def execute(self, *, ctx: object = None, **kwargs: Any) -> ToolExecutionResult:
        return ToolExecutionResult(structured_content=self._method(**kwargs))


@pytest.mark.req("corpora.tasks")
def test_a_task_solved_by_scripts_leaves_its_systems_as_its_calls_do() -> None:
    async def solve(task: Any, sandbox: MontySandbox) -> int:
        systems, twins = task.systems(), task.systems()
        held = {name: s for s in systems for name in dir(s) if not name.startswith("_")}
        tools = [Method(d, held[d["name"]]) for d in task.documents() if d["name"] in held]
        box = Toolbox(tools)
        chain = ToolChainTool(ToolInvoker(box, policy=POLICY), sandbox)
        names, calls = box.identifiers(), 0
        known = {name: getattr(twin, name) for twin in twins for name in dir(twin) if name in held}
        for turn in task.turns:
            parsed = [ast.parse(one, mode="eval").body for one in turn]
            code = "\n".join(f"await {_renamed(one, names)}" for one in parsed)
            result = await chain.run(code, ctx=RunContext(session_id=task.id))
            if task.id in MISFIT_TASKS and result.reason == "type_check":
                continue  # nothing of the turn ran: its twin has no such call either
            assert result.status == "ok", (task.id, code, result.output_text)
            for one in turn:
                eval(one, {"__builtins__": {}}, known)
            calls += len(turn)
        assert state_of(systems) == state_of(twins), task.id
        return calls

    async def main() -> int:
        async with MontySandbox() as sandbox:
            return sum([await solve(task, sandbox) for task in tasks()[::STEP]])

    assert asyncio.run(main()) > 4000 // STEP


def _renamed(call: ast.expr, names: Mapping[str, str]) -> str:
    assert isinstance(call, ast.Call)
    assert isinstance(call.func, ast.Name)
    call.func.id = names[call.func.id]
    return ast.unparse(call)
