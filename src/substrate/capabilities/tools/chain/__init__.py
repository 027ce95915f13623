"""Running a model's script: `ToolChainTool` and the bridge under it."""

from substrate.capabilities.tools.chain.stubs import stub_of, stubs_of
from substrate.capabilities.tools.chain.tool import ToolChainTool

__all__ = ["ToolChainTool", "stub_of", "stubs_of"]
