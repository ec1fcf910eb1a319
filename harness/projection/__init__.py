"""What a plan's initialization would take on a cluster, and how sure that is."""
