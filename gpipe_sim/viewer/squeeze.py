"""Leave out of a script what nobody reads in a page: comments, and spaces that separate no words."""

import re

TOKEN = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)
    |(?P<kept>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'                            # texts
        |`(?:\\.|\$\{(?:[^{}`]|`[^`]*`|\{[^{}]*\})*\}|[^`\\])*`              # and those with values in them
        |(?<=[(,=:\[!&|?{};\s])/(?![*/\s])(?:\\.|\[(?:\\.|[^\]\\])*\]|[^/\\\n\[])+/(?!\s*\d))  # and patterns
    |(?P<line>\s*\n\s*)
    |(?P<space>[ \t]+)""",
    re.VERBOSE | re.DOTALL,
)


def squeeze(script: str) -> str:
    """The same script, with its lines and without the rest of its white space."""
    text = TOKEN.sub(lambda found: found["kept"] or ("\n" if found["line"] else _space(found)), script)
    return re.sub(r"\n\n+", "\n", text).strip()


def _space(found: re.Match) -> str:
    """A space between two words, or between two signs that would become another one."""
    if found["comment"]:
        return ""
    before, after = (
        found.string[found.start() - 1 : found.start()],
        found.string[found.end() : found.end() + 1],
    )
    words = all(re.match(r"[\w$]", each) for each in (before, after))
    return " " if words or (before and before in "+-" and after in "+-") else ""
