"""What was asked for, on which machine, and how far the numbers reach."""

import msgspec

from harness.report.html.material import Material
from harness.report.html.parts import Block, Folded, Section, Table, Text
from harness.report.profile import CANNOT_TELL as PROFILE_CANNOT_TELL
from harness.report.table import cannot_tell, of_environment
from harness.results.profile import ProfileResult


def section(material: Material) -> Section:
    """Always there."""
    result = material.result
    blocks: list[Block] = []
    if result.warnings:
        rows = [(each.code, each.text) for each in result.warnings]
        blocks.append(Table(("warning", ""), rows, words=2))
    told = PROFILE_CANNOT_TELL if isinstance(result, ProfileResult) else cannot_tell(result)
    if told is not None:
        blocks.append(Text(f"What this cannot tell: {told}"))
    if result.environment is not None:
        blocks.append(Text(of_environment(result.environment), "quiet"))
    if isinstance(result, ProfileResult) and result.inputs:
        inputs = [
            (each.name, each.origin, each.because, f"{each.value:g} {each.unit or ''}".rstrip())
            for each in result.inputs
        ]
        head = ("value of the cluster", "from", "because", "value")
        blocks.append(Table(head, inputs, words=3))
    if result.spec is not None:
        spec = msgspec.json.format(msgspec.json.encode(result.spec)).decode()
        blocks.append(Folded("What was asked for, defaults filled in", spec))
    return Section("environment", "Warnings, limits and environment", blocks)
