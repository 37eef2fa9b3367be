"""The command line, `huginn`: one module for each family of verbs.

Every verb takes `--json` (then standard output carries one JSON value and nothing else) and
`--home`. Exit status: 0 done, 1 failed, 2 used wrongly. Modules here import nothing heavy at their
top: a verb pays for what it needs when it runs, so `huginn version` answers in a tenth of a second.
"""
