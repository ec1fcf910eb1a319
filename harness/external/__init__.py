"""The real programs that stand beside ours: libnccl's root, and later torch's store."""
