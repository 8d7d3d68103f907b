"""A script in fewer bytes: without what nobody reads in a page, and with each word that is frequent once."""

import re
from collections import Counter

TOKEN = re.compile(
    r"""(?P<comment>//[^\n]*|/\*.*?\*/)
    |(?P<kept>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'                            # texts
        |`(?:\\.|\$\{(?:[^{}`]|`[^`]*`|\{[^{}]*\})*\}|[^`\\])*`              # and those with values in them
        |(?<=[(,=:\[!&|?{};\s])/(?![*/\s])(?:\\.|\[(?:\\.|[^\]\\])*\]|[^/\\\n\[])+/(?!\s*\d))  # and patterns
    |(?P<line>\s*\n\s*)
    |(?P<space>[ \t]+)""",
    re.VERBOSE | re.DOTALL,
)
SIGNS = range(0x100, 0x300)  #: letters that stand for words: two bytes each, and in no script
WORD = re.compile(r"[A-Za-z_$][\w$]{2,}", re.ASCII)


def squeeze(script: str) -> str:
    """The same script, with its lines and without comments and spaces that separate no words."""
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


def written_once(script: str) -> tuple[list[str], str]:
    """(words, the script with a sign for each of them): the page puts the words back before it runs it."""
    if clash := {each for each in script if ord(each) in SIGNS} or re.search("</?script|<!--", script):
        raise ValueError(f"the script has {clash}, which stands for something else in a page")
    saves = {
        word: count * (len(word) - 2) - len(word) - 1 for word, count in Counter(WORD.findall(script)).items()
    }
    words = sorted(
        (word for word, bytes_saved in saves.items() if bytes_saved > 0), key=lambda word: -saves[word]
    )
    sign = {word: chr(code) for word, code in zip(words, SIGNS, strict=False)}
    return list(sign), WORD.sub(lambda found: sign.get(found[0], found[0]), script)
