"""The site that `make docs` built: what leads somewhere gets there, nothing is fetched, no answer is open."""

import base64
import inspect
import json
import re
import xml.etree.ElementTree as ElementTree
import zipfile
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from pages import FIRST, ROOT, SITE, named, page, paths, words

import gpipe_sim as gp
from docs.__main__ import build
from docs.api import chapters, public, target
from docs.gallery import DEVICES, GROUPS, MICROBATCHES, SIZES

if not SITE.exists():
    pytest.exit("tests/docs looks at the built site, and there is none: make test-docs", returncode=1)

NAMES = [str(path.relative_to(SITE).with_suffix("")) for path in paths()]
LESSONS = sorted((ROOT / "notebooks").glob("*.ipynb"))
MOST_BYTES = 500_000
AWAY = re.compile(r"(https?:)?//")


@pytest.fixture(params=NAMES)
def built(request):
    return named(request.param)


def found(start: Path, address: str) -> tuple[Path, str]:
    """The file and the anchor of a relative address."""
    parts = urlsplit(address)
    return (start.parent / unquote(parts.path)).resolve() if parts.path else start, unquote(parts.fragment)


def broken(start: Path, address: str) -> bool:
    path, anchor = found(start, address)
    if not (path.is_file() and path.is_relative_to(SITE)):
        return True
    if path == FIRST:  # there it is no place, but what the page shows
        return bool(anchor) and "=" not in anchor
    return bool(anchor) and path.suffix == ".html" and anchor not in page(path).ids


# What leads somewhere


def test_every_link_of_its_own_gets_there(built):
    links = [each["href"] for each in built.all("a") if each.get("href", "#") != "#"]
    own = [link for link in links if not urlsplit(link).scheme]
    assert own and [link for link in own if broken(built.path, link)] == []
    assert {urlsplit(link).scheme for link in links} <= {"", "https"}


def test_every_image_is_there(built):
    for image in built.all("img"):
        kind, _, data = image["src"].partition(";base64,")
        if data:
            raw = base64.b64decode(data, validate=True)
            assert kind == "data:image/svg+xml" and ElementTree.fromstring(raw).tag.endswith("svg")
        else:
            assert not broken(built.path, image["src"]), image["src"]


def test_every_image_is_told_in_words(built):
    for image in built.all("img"):
        said = image.get("alt", "").strip()
        assert len(said) > 10 and not said.startswith("data:"), image["src"][:60]
        assert Path(image["src"]).name not in said and not re.search(r"\.(png|svg)$", said)


def test_nothing_is_fetched_from_elsewhere(built):
    sources = [each[name] for tag, each in built.tags for name in ("src", "srcset", "data") if name in each]
    sources += [each["href"] for each in built.all("link")]
    assert sources and [each for each in sources if AWAY.match(each)] == []
    assert [each for each in sources if "data:" not in each and broken(built.path, each.split("?")[0])] == []


def test_no_stylesheet_fetches_from_elsewhere():
    sheets = [path.read_text(encoding="utf-8") for path in SITE.rglob("*.css")]
    urls = [url for sheet in sheets for url in re.findall(r"url\(\s*['\"]?([^'\")]+)", sheet)]
    assert urls and [url for url in urls if AWAY.match(url)] == []
    imported = [name for sheet in sheets for name in re.findall(r"@import\s+([^;]*)", sheet)]
    assert not any("//" in name for name in imported)


def test_each_page_is_small_enough(built):
    assert built.path.stat().st_size < MOST_BYTES


# Lessons


class Details(HTMLParser):
    """The text within the folds of a stored output."""

    def __init__(self, html: str):
        super().__init__()
        self.open, self.text = [], []
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        if tag in ("details", "summary"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag in ("details", "summary"):
            self.open.pop()

    def handle_data(self, data):
        if self.open and "summary" not in self.open:
            self.text.append(data)


def cells(path: Path) -> list[dict]:
    return json.loads(path.read_text(encoding="utf-8"))["cells"]


def outputs(path: Path) -> list[dict]:
    return [output for cell in cells(path) for output in cell.get("outputs", ())]


@pytest.fixture(params=LESSONS, ids=lambda path: path.stem[:2])
def lesson(request):
    return request.param


def test_no_fold_is_open(built):
    assert [each for each in built.all("details") if "open" in each] == []


def test_an_answer_is_in_a_fold_and_nowhere_else(lesson):
    built = named(f"lessons/{lesson.stem}")
    answers = [
        answer
        for cell in cells(lesson)
        if "answer" in cell["metadata"].get("tags", ())
        for answer in re.findall(r"```python\n(.*?)```", "".join(cell["source"]), re.S)
    ]
    shown, folded = words(built.shown), words(built.folded)
    assert answers
    for answer in map(words, answers):
        assert answer in folded and answer not in shown


def test_what_a_cell_folds_away_is_folded_on_the_page(lesson):
    built = named(f"lessons/{lesson.stem}")
    htmls = ["".join(output.get("data", {}).get("text/html", "")) for output in outputs(lesson)]
    told = [words(Details(html).text) for html in htmls if "<details" in html]
    folded = words(built.folded)
    assert any(told) and all(each in folded for each in told)


def test_what_a_cell_printed_is_on_the_page(lesson):
    built = named(f"lessons/{lesson.stem}")
    everything = words(built.shown) + words(built.folded)
    for output in outputs(lesson):
        assert words(output.get("text", "")) in everything


def test_hidden_code_is_folded(lesson):
    hidden = [cell for cell in cells(lesson) if cell["metadata"].get("jupyter", {}).get("source_hidden")]
    hidden = [cell for cell in hidden if cell["id"] != "colab"]
    shown, folded = (
        words(text)
        for text in (named(f"lessons/{lesson.stem}").shown, named(f"lessons/{lesson.stem}").folded)
    )
    for cell in hidden:
        assert words(cell["source"]) in folded and words(cell["source"]) not in shown


def test_the_notebook_can_be_taken_home(lesson):
    assert (SITE / "notebooks" / lesson.name).read_bytes() == lesson.read_bytes()
    links = [each.get("href") for each in named(f"lessons/{lesson.stem}").all("a")]
    assert f"../notebooks/{lesson.name}" in links


def test_all_can_be_taken_home_with_the_pictures_that_they_show(lesson):
    with zipfile.ZipFile(SITE / "lessons.zip") as archive:
        (folder,) = {name.split("/")[0] for name in archive.namelist()}
        text = archive.read(f"{folder}/notebooks/{lesson.name}")
        shown = re.findall(r"\.\./(figures/[\w.]+)", text.decode())
        assert text == lesson.read_bytes()
        assert all(archive.read(f"{folder}/{name}") == (ROOT / name).read_bytes() for name in shown)
    built = named(f"lessons/{lesson.stem}")
    assert "../lessons.zip" in [each.get("href") for each in built.all("a")]
    assert (words(", without its pictures") in words(built.shown)) == bool(shown)


def test_the_table_of_lessons_leads_to_all_of_them_and_gives_no_answer():
    built = named("lessons/index")
    links = {each.get("href") for each in built.all("a")}
    where = {path.name: name for name, path in ((link, found(built.path, link)[0]) for link in links if link)}
    assert {f"{path.stem}.html" for path in LESSONS} | {"lessons.zip"} <= set(where)
    assert "K-1" not in words(built.shown)


# The API


@pytest.mark.parametrize("chapter", chapters(), ids=lambda chapter: chapter.name)
def test_a_chapter_has_every_public_name_with_words(chapter):
    built = named(f"api/{chapter.name}")
    names = [
        f"{prefix}.{name}".replace("gp", "gpipe_sim", 1)
        for prefix, all_ in chapter.groups.items()
        for name in all_
    ]
    for name in names:
        thing = public()[name]
        assert ("module-" if inspect.ismodule(thing) else "") + target(name) in built.ids
        if callable(thing):
            first = thing.__doc__.strip().split("\n\n")[0].replace("``", "")
            assert words(first) in words(built.shown), name


def test_all_public_names_are_in_a_chapter():
    assert len(public()) > 150 and set(map(id, public().values())) >= {
        id(gp.simulate),
        id(gp.why.critical_path),
    }


def test_examples_in_docstrings_are_code_not_quotations():
    pages = [path for path in paths() if path.parent.name in ("api", "gallery")]
    assert len(pages) > 15 and not any(page(path).all("blockquote") for path in pages)
    assert named("api/torch_backend").all("pre")


def test_the_torch_backend_has_every_public_name_though_torch_is_not_here():
    source = (ROOT / "gpipe_sim" / "torch_backend" / "__init__.py").read_text(encoding="utf-8")
    names = re.findall(r'"(\w+)"', source.split("__all__")[1])
    built = named("api/torch_backend")
    assert len(names) > 8 and {f"gpipe_sim.torch_backend.{name}" for name in names} <= built.ids
    assert words("four CPU processes") in words(built.shown)


# The gallery


def rows(name: str) -> list[list[str]]:
    """The cells of the tables' bodies on a page."""
    text = (SITE / f"{name}.html").read_text(encoding="utf-8")
    lines = re.findall(r"<tr[^>]*>(.*?)</tr>", text, re.S)
    each = [re.findall(r"<td[^>]*>(.*?)</td>", line, re.S) for line in lines]
    return [[re.sub(r"<[^>]+>", "", cell).strip() for cell in line] for line in each if line]


def test_the_gallerys_numbers_are_those_of_a_simulation_with_shared_layers():
    """``compare`` cuts layers; here each of V stages on a device takes one V-th of what the device takes."""
    expected = []
    for families in GROUPS.values():
        for devices, microbatches in SIZES:
            for family in families:
                schedule = family(devices, microbatches)
                each = devices / schedule.stages
                timeline = gp.simulate(schedule, gp.Costs(forward=each, input_grad=each, weight_grad=each))
                messages = sum(1 for _ in timeline.messages)
                expected.append(
                    [f"{timeline.makespan:g}", f"{gp.bubble_fraction(timeline):.1%}", f"{messages:,}"]
                )
    assert [[row[1], row[2], row[5]] for row in rows("gallery/index")] == expected


def test_the_gallery_draws_every_family():
    families = [family for group in GROUPS.values() for family in group]
    drawn = [image["alt"] for image in named("gallery/index").all("img")]
    assert [
        family(DEVICES, MICROBATCHES).name in alt for family, alt in zip(families, drawn, strict=True)
    ] == [True] * len(families)


def test_no_table_has_the_share_that_lesson_01_asks_for():
    eight = f"{gp.bubble_fraction(gp.simulate(gp.Naive(8))):.1%}"
    shares = {row[2] for row in rows("gallery/index")}
    assert eight == "87.5%" and eight not in shares and len(shares) > 10


# The first page, how to, and the build itself


def test_how_to_pages_show_what_their_code_gave():
    written = [ROOT / "docs" / "tour.md", *sorted((ROOT / "docs" / "howto").glob("*.md"))]
    for path in written:
        if asked := path.read_text(encoding="utf-8").count("```{code-cell}"):
            page_of_it = (SITE / path.relative_to(ROOT / "docs").with_suffix(".html")).read_text(
                encoding="utf-8"
            )
            assert page_of_it.count("cell_output") >= asked / 2, path
    assert len(written) > 1


@pytest.mark.parametrize(
    "text",
    [
        "[a page](nowhere.md)",
        "[a place](#nowhere)",
        "![](nothing.png)",
        "{py:func}`gpipe_sim.spam`",
        "```{spam}\n```",
    ],
)
@pytest.mark.filterwarnings("ignore")  # Sphinx's own, of its next release
def test_a_site_with_a_fault_is_not_built(tmp_path, capfd, text):
    source = tmp_path / "source"
    source.mkdir()
    (source / "contents.md").write_text(f"# A page\n\n{text}\n")
    assert build(source, tmp_path / "site") != 0
    assert "WARNING" in capfd.readouterr().err
