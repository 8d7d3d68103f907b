"""Take progress home, and bring it back: for servers and Colab, which forget a folder sooner or later.

Progress is ``my_pipeline.py``, one plain file. Here it only moves; nothing of it runs.
"""

import ast
import base64
import sys
from pathlib import Path

from gpipe_sim.course import mine
from gpipe_sim.course.reply import Reply, keep_working, listed, quoted

HOW = (
    f"upload {mine.FILE} into the folder of the notebooks, where lessons find it. If it has another name, "
    'say that: gp.course.bring_back("my_pipeline (1).py")'
)


class Download(Reply):
    """A reply with a link that saves the file, which a notebook shows."""

    text_of_file: str

    def _repr_html_(self) -> str:
        data = base64.b64encode(self.text_of_file.encode()).decode()
        link = f'<a download="{mine.FILE}" href="data:text/x-python;base64,{data}">Download {mine.FILE}</a>'
        return f"{super()._repr_html_()}<p>{link}</p>"


def download() -> Reply:
    """Save ``my_pipeline.py`` on your own computer: in Colab at once, elsewhere by a link below the cell."""
    if not (text := mine.stored()):
        return keep_working(f"nothing has passed its check yet, so there is no {mine.FILE}")
    if "google.colab" in sys.modules:
        sys.modules["google.colab"].files.download(str(mine.place()))
    reply = Download("progress", f"{_pieces(text)}. Bring it back with gp.course.bring_back()")
    reply.text_of_file = text
    return reply


def bring_back(file: str | Path | None = None) -> Reply:
    """Put what a downloaded ``my_pipeline.py`` has where lessons look for it; in Colab without a name.

    What stands there already stays. A file that is no progress is refused, and nothing changes.
    """
    try:
        text = _uploaded() if file is None else _read(file)
        both = mine.stored()
        here, brought = mine.sections(both), mine.sections(text)
        brought.pop("", "")
        new = [name for name in brought if name not in here]
        stay = [name for name in brought if name in here and here[name].strip() != brought[name].strip()]
        for name in new:
            both = mine.with_section(both, name, brought[name])
        if new:
            mine.keep(both)
    except Reply as reply:
        return reply.with_traceback(None)
    except RuntimeError as error:
        return keep_working(str(error))
    says = f"brought back: {listed(new)}" if new else "all of it was here already"
    if stay:
        says += f". Yours of here stay: {listed(stay)}. For the others, delete {mine.FILE} first"
    return Reply("progress", says)


def _pieces(text: str) -> str:
    names = [name for name in mine.sections(text) if name]
    return f"{len(names)} piece{'s' * (len(names) != 1)} in {mine.place()}: {listed(names)}"


def _uploaded() -> str:
    """What is chosen in Colab's own dialogue."""
    if "google.colab" not in sys.modules:
        raise keep_working(HOW)
    for name, data in sys.modules["google.colab"].files.upload().items():
        return _progress(name, data)
    raise keep_working("no file was chosen")


def _read(file: str | Path) -> str:
    if not isinstance(file, str | Path):
        raise keep_working(f"give the name of a file, not {quoted(file)}")
    try:
        with Path(file).open("rb") as opened:
            return _progress(str(file), opened.read(mine.MOST + 1))
    except (OSError, ValueError) as error:
        raise keep_working(f"{file} cannot be read: {error}") from error


def _progress(name: str, data: bytes) -> str:
    """The text of a file, if that is what lessons keep."""
    no = f"{name} is no progress file: "
    if len(data) > mine.MOST:
        raise keep_working(f"{no}it is over {mine.MOST:,} bytes long")
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n")
        ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise keep_working(f"{no}it is no Python ({error})") from error
    if not any(mine.sections(text)):
        raise keep_working(f"{no}no line in it begins a piece, such as # --- clock")
    return text
