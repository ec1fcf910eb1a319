"""The servers that a bootstrap needs: pure state machines, and coroutines that serve them."""
