"""The rules put to work: registry, invoker, hooks and the agent loop."""
