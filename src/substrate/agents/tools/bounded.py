"""Steps that must not hold up or spoil what they stand beside: stores and journals."""

from __future__ import annotations

import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

from substrate.agents.tools.deadline import (
    STEP_S,
    DeadlineExceededError,
    OnLate,
    run_bounded,
)

__all__ = ["attempt"]

T = TypeVar("T")
_log = logging.getLogger("substrate.invoker")


async def attempt(what: str, step: Coroutine[Any, Any, T], leave: OnLate) -> T | None:
    """The step's value, or None where it fails or takes longer than `STEP_S`; that is logged.

    Raises only the caller's own cancellation.
    """
    try:
        return await run_bounded(step, STEP_S, leave)
    except DeadlineExceededError:
        _log.warning("%s gave no answer within %gs", what, STEP_S)
    except Exception as error:  # its words may hold what is not to be logged
        _log.warning("%s failed (%s)", what, type(error).__name__)
    return None
