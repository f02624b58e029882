"""How fast layers, models and the command are, and how much memory they take."""
