"""The verbs of the command line as functions: Python values in, results out.

Each is imported from its own module, so that a command loads only the libraries that it needs.
"""
