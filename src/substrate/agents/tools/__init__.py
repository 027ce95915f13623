"""Toolbox, ToolInvoker and what they are made of."""
