"""Secret values are whole where they run and hidden wherever something is shown."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from substrate import (
    ChainPolicy,
    HookEvent,
    HookManager,
    InMemoryBlobStore,
    Secret,
    Toolbox,
    ToolCallRequest,
    ToolChainTool,
    ToolExecutionResult,
    ToolInvoker,
    run_script_sync,
    tool,
)
from substrate.kernel.content import TextBlock
from substrate.kernel.hooks import ProgressStep
from substrate.kernel.secrets import (
    HIDDEN,
    declared_secrets,
    hide,
    is_secret_name,
    scrub,
    secrets_in,
)
from substrate.kernel.tools.approval import ApprovalDecision, ApprovalRequest

KEY = "sk-very-secret-1234"


@pytest.mark.parametrize(
    "name",
    ["password", "API_KEY", "apiKey", "x-api-key", "Authorization", "client_secret", "db_password",
     "accessToken", "Set-Cookie", "token"],
)  # fmt: skip
def test_usual_names_are_secret_however_they_are_written(name: str) -> None:
    assert is_secret_name(name)


@pytest.mark.parametrize("name", ["name", "tokens", "page_token", "next_page_token", "key", "path"])
def test_other_names_are_not(name: str) -> None:
    assert not is_secret_name(name)


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: (
        st.lists(inner) | st.dictionaries(st.sampled_from(["a", "b", "password", "own"]), inner)
    ),
    max_leaves=20,
)


@given(PLAIN)
def test_hiding_changes_nothing_but_what_is_secret(value: Any) -> None:
    before = json.dumps(value)
    shown = hide(value, frozenset(["own"]))
    assert json.dumps(value) == before
    assert not _secrets(shown, frozenset(["own"])) - {HIDDEN}
    if shown is not value:
        assert HIDDEN in json.dumps(shown)
    assert hide(shown, frozenset(["own"])) == shown


def _secrets(value: Any, names: frozenset[str]) -> frozenset[str]:
    return secrets_in(value, names)


def test_a_schema_declares_secrets_at_any_depth() -> None:
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": "string", "format": "password"},
            "b": {"type": "array", "items": {"properties": {"c": {"writeOnly": True}}}},
            "d": {"anyOf": [{"type": "string", "writeOnly": True}, {"type": "null"}]},
            "e": {"type": "string"},
        },
    }
    assert declared_secrets(schema) == {"a", "c", "d"}


def test_longer_secrets_are_scrubbed_first() -> None:
    assert scrub("abcdef abcd", ["abcd", "abcdef"]) == f"{HIDDEN} {HIDDEN}"


@pytest.mark.req("secrets.mask")
@pytest.mark.parametrize("fails", ["not", "raises", "says", "refused"])
@pytest.mark.parametrize("name", ["api_key", "pin_code", "extra"])
def test_no_secret_is_shown_to_a_model_a_log_a_hook_or_in_a_trace(
    name: str, fails: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    seen: list[str] = []
    got: list[str] = []
    asked: list[ApprovalRequest] = []

    schema = {
        "type": "object",
        "properties": {
            "api_key": {"type": "string", "maxLength": 5 if fails == "refused" else 99},
            "pin_code": {"type": "string", "writeOnly": True, "maxLength": 99},
            "extra": {"type": "string", "maxLength": 5 if fails == "refused" else 99},
        },
    }

    class Call:
        description = "calls"
        risk = "high"
        input_schema = schema
        name = "act"

        async def execute(self, *, ctx: object = None, **kwargs: Any) -> ToolExecutionResult:
            got.extend(kwargs.values())
            if fails == "raises":
                msg = f"401 for {kwargs[name]}"
                raise ValueError(msg)
            if fails == "says":
                return ToolExecutionResult([TextBlock(f"401 for {kwargs[name]}")], is_error=True)
            return ToolExecutionResult([], {"token": KEY, "user": "me"})

    class Approver:
        async def request(self, req: ApprovalRequest, /) -> ApprovalDecision:
            asked.append(req)
            return ApprovalDecision.APPROVED

    def watch(context: Mapping[str, Any]) -> None:
        seen.append(str(dict(context)))

    hooks = HookManager()
    hooks.register(HookEvent.TOOL_START, watch)
    hooks.register(HookEvent.TOOL_END, watch)

    def note(step: ProgressStep) -> None:
        seen.append(str(step))

    policy = ChainPolicy(secret_names=frozenset(["extra"]))
    invoker = ToolInvoker(Toolbox([Call()]), Approver(), None, policy, hooks)
    chain = ToolChainTool(invoker, progress_sink=note)
    result = asyncio.run(chain.run(f"r = await act({name}={KEY!r})\nr"))
    (record,) = result.call_trace
    if fails == "refused" and name != "pin_code":
        assert (record.reason, got) == ("invalid_arguments", [])
    else:
        assert got == [KEY]  # what runs is whole
        assert asked[0].call.arguments == {name: KEY}
        assert name in asked[0].context["secrets"] or is_secret_name(name)
    shown = [record.args_preview, record.result_preview, record.message, *seen, caplog.text]
    if result.status == "ok":
        shown.append(result.output_text)
        assert result.value == {"token": KEY, "user": "me"}
        assert '"user": "me"' in result.output_text
    assert KEY not in "\n".join(shown)
    assert HIDDEN in record.args_preview


@pytest.mark.req("secrets.mask")
def test_a_parameter_is_marked_as_secret_in_python() -> None:
    @tool(risk="safe")
    def login(user: str, code: Annotated[str, Secret]) -> str:
        return code

    result = run_script_sync(f"await login(user='me', code={KEY!r})", tools=[login])
    assert result.value == KEY
    assert result.call_trace[0].args_preview == f'{{"user":"me","code":"{HIDDEN}"}}'


@pytest.mark.req("secrets.mask")
def test_a_preview_of_an_offloaded_result_hides_what_the_artifact_keeps() -> None:
    @tool(risk="safe")
    def load() -> dict[str, Any]:
        return {"password": KEY, "rows": ["x" * 100] * 100}

    async def main() -> None:
        store = InMemoryBlobStore()
        invoker = ToolInvoker(Toolbox([load]), None, store)
        async with invoker.open_session() as session:
            result = await invoker.invoke(ToolCallRequest("load"), session=session)
            assert result.artifact_ref is not None
            assert KEY not in (result.preview or "")
            assert KEY.encode() in await store.resolve(result.artifact_ref)

    asyncio.run(main())
