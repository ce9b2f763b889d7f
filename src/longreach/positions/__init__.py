"""Where tokens stand: `ids` assigns position IDs, `encodings` says how IDs enter attention."""
