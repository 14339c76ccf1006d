from __future__ import annotations

from tests.service.conftest import each_stack, embedded_stack, heloc, real_stack_or_none, stack, toy

__all__ = ["each_stack", "embedded_stack", "heloc", "real_stack_or_none", "stack", "toy"]
