"""Assembles the product: the only code that knows every app."""
