"""What --help says of a program, read from the text of its class Args: nothing of the program is imported. Python 3.8.

tyro could group the fields of classes in classes, not those of one.
"""

import ast
import os
import shutil
import sys
import textwrap
from pathlib import Path
from typing import Any, Dict, Iterator, List, NamedTuple, NoReturn, Optional, Set, Tuple

from support import catalog

HELP = {"-h", "--help"}
GROUPS: Dict[str, Tuple[str, ...]] = {  # the arguments of a training script; the algorithm has the others
    "run": (
        *("env_id", "env_kwargs", "total_timesteps", "seed", "num_seeds", "run_name", "runs_dir", "runs"),
        *("resume_from", "eval_episodes", "eval_max_steps", "checkpoint_minutes", "num_logs", "diagnostics"),
        *("probe_size", "capture_video", "track", "wandb_project_name", "wandb_entity", "exp_name"),
    ),
    "algorithm": (),
    "speed": (
        *("num_threads", "env_workers", "cuda", "bf16", "tf32", "compile", "cuda_graphs", "torch_deterministic"),
    ),
}
WORDS = {"int": "INT", "float": "FLOAT", "str": "STR", "Path": "PATH", "bool": ""}  # of types; a flag has no value
TYPES = Path(__file__).with_name("arguments.py")  # has those of most fields
COLUMN = 26  # where the texts begin
BY_TASK = ("ppo_envpool", "ppo_isaacgym")  # scripts whose defaults depend on --env-id
UNKNOWN = ...  # a default that only the program knows


class Field(NamedTuple):
    """A field of Args."""

    name: str
    value: str  # what stands for its value: INT; "" for a flag
    positional: bool
    default: Any  # None: there is none
    text: str  # what the comment says

    @property
    def flag(self) -> str:
        """As it is written on a command line."""
        name = self.name.replace("_", "-")
        if self.positional:
            return self.value if self.value.startswith("{") else self.name.upper()
        return f"--{name} {self.value}" if self.value else f"--[no-]{name}"

    def lines(self, width: int) -> List[str]:
        """The lines about it, of so many characters at most."""
        shown = " ".join(map(str, self.default)) if isinstance(self.default, (list, tuple)) else self.default
        shown = {True: "on", False: "off"}.get(shown, shown) if isinstance(shown, bool) else shown
        default = "" if shown in (None, "", UNKNOWN) or "default" in self.text else f" (default: {shown})"
        lines = textwrap.wrap(self.text + default, width - COLUMN, break_on_hyphens=False) or [""]
        first = f"  {self.flag}"
        if len(first) >= COLUMN:
            return [first, *(" " * COLUMN + line for line in lines)]
        return [first.ljust(COLUMN) + lines[0], *(" " * COLUMN + line for line in lines[1:])]


def _aliases(tree: ast.Module) -> Dict[str, Any]:
    """{name: the expression} of what is assigned to names at the top of a module."""
    return {
        target.id: node.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _names(node: Any, aliases: Dict[str, Any]) -> Iterator[str]:
    """The names in a type, those of its aliases too."""
    for part in ast.walk(node):
        name = part.id if isinstance(part, ast.Name) else part.attr if isinstance(part, ast.Attribute) else ""
        if name in aliases:
            yield from _names(aliases[name], {key: aliases[key] for key in aliases if key != name})
        elif name:
            yield name


def _value(node: Any, aliases: Dict[str, Any]) -> str:
    """What stands for the value of a field of this type."""
    names = list(_names(node, aliases))
    several = " ..." if "Tuple" in names else ""
    if "Literal" in names:
        return "{" + ",".join(str(part.value) for part in ast.walk(node) if isinstance(part, ast.Constant)) + "}"
    for part in ast.walk(aliases.get(getattr(node, "id", ""), node)):
        if isinstance(part, ast.keyword) and part.arg == "metavar" and isinstance(part.value, ast.Constant):
            return f"{part.value.value!s}{several}"
    return next((f"{WORDS[name]}{several}" for name in names if name in WORDS), "VALUE")


def _comment(lines: List[str], first: int, last: int) -> str:
    """The comment beside the lines of a field, or else above them."""
    for line in lines[first - 1 : last]:
        if "  # " in line:
            return line.partition("  # ")[2]
    above: List[str] = []
    while first > 1 and lines[first - 2].strip().startswith("# "):
        above.insert(0, lines[first - 2].strip()[2:])
        first -= 1
    return " ".join(above)


def fields(path: Path, name: str = "Args") -> List[Field]:
    """The fields of a class in a file, after those of the class that it inherits from; [] if there is no such class."""
    text = path.read_text()
    tree, lines = ast.parse(text), text.splitlines()
    aliases = {**_aliases(ast.parse(TYPES.read_text())), **_aliases(tree)}
    found: List[Field] = []
    for node in tree.body:
        if not isinstance(node, ast.ClassDef) or node.name != name:
            continue
        for base in node.bases:  # as in class Args(figures.Args)
            if isinstance(base, ast.Attribute) and isinstance(base.value, ast.Name):
                found += fields(path.with_name(f"{base.value.id}.py"), base.attr)
        for field in node.body:
            if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                last = getattr(field, "end_lineno", field.lineno)
                value, comment = _value(field.annotation, aliases), _comment(lines, field.lineno, last)
                positional = "Positional" in _names(field.annotation, aliases)
                found.append(Field(field.target.id, value, positional, _literal(field.value, path), comment))
    return found


def _literal(node: Any, path: Path) -> Any:
    """The value of a default; UNKNOWN for an expression that is more than its value."""
    if node is None:
        return None
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Path":
        node = node.args[0]
    if any(getattr(part, "id", "") == "__file__" for part in ast.walk(node)):
        return path.stem  # exp_name
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError):
        return UNKNOWN


def _groups(stem: str, found: List[Field]) -> Iterator[Tuple[str, List[Field]]]:
    """(title, fields) of each group: of a training script those of GROUPS, else the positional ones and the others."""
    if stem not in catalog.SCRIPTS:
        yield "arguments", [field for field in found if field.positional]
        yield "options", [field for field in found if not field.positional]
        return
    named: Set[str] = set().union(*GROUPS.values())
    by_name = {field.name: field for field in found}
    for title, names in GROUPS.items():
        own = [by_name[name] for name in names if name in by_name]
        yield title, own or [field for field in found if field.name not in named]


def text(path: Path, description: str, name: str = "Args", defaults: Optional[Dict[str, Any]] = None) -> str:
    """What --help prints for a program. name: of the class of its arguments; defaults: in place of the class's own."""
    width = min(120, shutil.get_terminal_size((120, 24)).columns)
    found = [field._replace(default=(defaults or {}).get(field.name, field.default)) for field in fields(path, name)]
    words = "".join(f" {field.flag}" for field in found if field.positional)
    lines = [f"usage: python {Path(sys.argv[0]).name}{words} [--flag value ...]", "", description.split("\n")[0]]
    for title, of_group in _groups(path.stem, found):
        if of_group:
            lines += ["", f"{title}:", *(line for field in of_group for line in field.lines(width))]
    if path.stem in BY_TASK:
        lines += ["", "Some defaults depend on the task: --env-id NAME --help shows those of another one."]
    return "\n".join(lines)


def show(words: str) -> NoReturn:
    """Prints a help and ends the program; `... --help | head` is no error."""
    try:
        print(words, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    sys.exit(0)
