"""SymPy → JAX by a table: comes in an expression and what its symbols stand for, goes out its value on arrays."""
