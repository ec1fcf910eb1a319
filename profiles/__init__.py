"""Data only: clusters, hosts, training jobs, checks and baselines as TOML and JSON.

They ship in the wheel; `importlib.resources.files("profiles")` finds them there and in a checkout.
No code belongs here.
"""
