"""How fast models are beside the engines that others wrote for them."""
