"""Bottlenecks, planted in copies of formations, plans and servers: `emucoll profile` names them."""
