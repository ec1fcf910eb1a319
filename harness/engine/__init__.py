"""From a spec to a result: one module a world."""
