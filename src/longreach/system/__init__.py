"""Files, imports, interrupts and memory of the machine."""
