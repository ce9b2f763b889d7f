"""Parsers of the command line, one file per verb.  They import nothing heavy, so that help is printed at once."""
