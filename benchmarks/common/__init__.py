"""What the programs share: options, processes, the machine, tables and data."""
