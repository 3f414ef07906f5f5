"""Front ends: one per framework, each importing its framework only when it is used."""
