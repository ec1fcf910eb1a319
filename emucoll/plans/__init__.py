"""Whole initializations. `PLANS` lists what there is by name."""

from emucoll.plans.nccl import NCCL_PLANS
from emucoll.plans.pytorch import PYTORCH
from emucoll.plans.steps import Plan

PLANS: dict[str, Plan] = {plan.name: plan for plan in (*NCCL_PLANS, PYTORCH)}
