"""Who is asked whether a call may run: a function, a set of rules, a person at a terminal."""

from substrate.capabilities.approval.callback import CallbackApproval
from substrate.capabilities.approval.policy import PolicyApproval, Rule
from substrate.capabilities.approval.terminal import TerminalApproval
from substrate.capabilities.approval.visible import visible

__all__ = ["CallbackApproval", "PolicyApproval", "Rule", "TerminalApproval", "visible"]
