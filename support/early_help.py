"""Answers --help as soon as it is imported, before torch, whose import takes seconds. Python 3.8.

Only where that is all that a command says, and the comments of Args have each default that a program computes; else
arguments.parse answers, in the same words.
"""

import ast
import sys
from pathlib import Path

from support import usage


def _answer() -> None:
    path = Path(getattr(sys.modules["__main__"], "__file__", None) or "")
    if len(sys.argv) != 2 or sys.argv[1] not in usage.HELP or path.suffix != ".py":
        return
    found = usage.fields(path)
    if not found or any(field.default is usage.UNKNOWN and "default" not in field.text for field in found):
        return
    usage.show(usage.text(path, ast.get_docstring(ast.parse(path.read_text())) or ""))


_answer()
