"""What ``save`` writes is what the suffix says, as large as asked, and shows what the SVG shows."""

import re
import zlib
from inspect import isclass, isfunction
from io import BytesIO
from xml.etree import ElementTree

import numpy as np
import pytest
from cases import over, overlapped
from drawn import bounds, points, words_in
from matplotlib.colors import to_rgb
from matplotlib.image import imread
from measured import metered

import gpipe_sim as gp
from gpipe_sim import ZBH1, Explicit, GPipe, OneFOneB, compare, draw, mlp, overlay, remat, simulate, split
from gpipe_sim.drawing import draw_deadlock, draw_parts, draw_stages
from gpipe_sim.drawing.document import Drawn, Svg
from gpipe_sim.drawing.palette import INK
from gpipe_sim.drawing.plots import plot_pushed, plot_timeline
from gpipe_sim.drawing.printed import save_printed

TIMELINE = simulate(OneFOneB(4, 8))
STUCK = Explicit.parse("0F0 0B0 0F1 0B1\n1F1 1B1 1F0 1B0")
INCH, SHARP = 96, 2  #: pixels of a drawing to the inch, and of a PNG to one of the drawing


def size_of(svg: str) -> tuple[float, float]:
    root = ElementTree.fromstring(svg)
    return float(root.get("width")), float(root.get("height"))


def box_of_pdf(data: bytes) -> list[float]:
    """Its width and height, in inches."""
    return [float(side) / 72 for side in re.search(rb"/MediaBox \[ *0 0 (\S+) (\S+) *\]", data).groups()]


def words_of_pdf(data: bytes) -> str:
    """All that is written in it, without spaces, in letters of two bytes; fi and fl are a letter each."""
    streams = re.findall(rb"stream\r?\n(.*?)endstream", data, re.S)
    pages = (zlib.decompress(each) for each in streams if each[:1] == b"\x78")
    texts = (re.findall(rb"\(((?:\\.|[^\\)])*)\)", page, re.S) for page in pages if b" Tf" in page)
    return re.sub(r"[^!-\[\]-~]", "", b"".join(each for page in texts for each in page).decode("latin-1"))


DRAWINGS = {
    "draw": draw(TIMELINE, in_flight=True, messages=True, pushed=True),
    "overlay": overlay(TIMELINE, TIMELINE),
    "compare": compare([OneFOneB, ZBH1], 2, 3),
    "draw_deadlock": draw_deadlock(STUCK),
    "draw_stages": draw_stages(split(mlp([64, 32, 10]), stages=2)),
    "draw_parts": draw_parts([np.eye(2), np.ones((2, 2))], np.ones((2, 2))),
}
every_drawing = pytest.mark.parametrize("drawing", DRAWINGS.values(), ids=DRAWINGS)


def test_these_are_all_drawings_that_there_are():
    public = [getattr(place, name) for place in (gp, gp.drawing) for name in dir(place)]
    made = {each.__name__: each.__annotations__.get("return") for each in public if isfunction(each)}
    drawn = {name for name, kind in made.items() if isclass(kind) and issubclass(kind, (Svg, Drawn))}
    assert drawn == {*DRAWINGS}


@every_drawing
@pytest.mark.parametrize("width", [317, 1234.5])
def test_every_drawing_is_saved_as_wide_as_asked(drawing, width, tmp_path):
    """The same drawing, smaller or larger; a page that was laid out for a width, too."""
    svg = getattr(drawing, "drawing", drawing)
    drawing.save(tmp_path / "it.svg", width=width)
    text, (wide, high) = (tmp_path / "it.svg").read_text(encoding="utf-8"), svg.size
    assert size_of(text) == pytest.approx((width, width / wide * high), abs=0.05)
    assert f'viewBox="0 0 {wide:.1f}'.removesuffix(".0") in text
    assert words_in(text) == words_in(str(svg)) and svg.size == (wide, high)
    for wrong, error in ((0, ValueError), (20_000, ValueError), (float("nan"), ValueError), ("3", TypeError)):
        with pytest.raises(error, match=r"^save needs .*width"):
            drawing.save(tmp_path / "no.svg", width=wrong)
    assert not (tmp_path / "no.svg").exists()


@pytest.mark.parametrize("name", ["draw_parts", "compare"])
@pytest.mark.parametrize("width", [317, 1234.5])
def test_a_pdf_and_a_png_are_as_wide_as_asked(name, width, tmp_path):
    """They are painted from the SVG that was saved for the width: a drawing of each class stands for all."""
    drawing = DRAWINGS[name]
    for file in ("it.pdf", "it.png"):
        drawing.save(tmp_path / file, width=width)
    wide, high = getattr(drawing, "drawing", drawing).size
    inches = [width / INCH, width / wide * high / INCH]
    assert box_of_pdf((tmp_path / "it.pdf").read_bytes()) == pytest.approx(inches, abs=1e-3)
    found = imread(tmp_path / "it.png").shape[1::-1]
    assert found == pytest.approx([SHARP * INCH * side for side in inches], abs=2)


def test_a_page_that_was_laid_out_for_a_width_is_saved_at_another(tmp_path):
    drawing = draw(TIMELINE, width=400, font_size=18)
    drawing.save(tmp_path / "it.svg", 200)
    assert size_of((tmp_path / "it.svg").read_text(encoding="utf-8"))[0] == 200 and drawing.scale == 1.5


@every_drawing
def test_the_suffix_says_what_is_written(drawing, tmp_path):
    """All three were SVG. The words of a PDF are words."""
    for name in ("it.svg", "it.PDF", "it.png"):
        drawing.save(tmp_path / name)
    svg, data = (tmp_path / "it.svg").read_text(encoding="utf-8"), (tmp_path / "it.PDF").read_bytes()
    assert svg == str(getattr(drawing, "drawing", drawing))
    assert data.startswith(b"%PDF") and box_of_pdf(data) == pytest.approx(
        [side / INCH for side in size_of(svg)], abs=1e-5
    )
    found, plain = words_of_pdf(data), re.compile(r"[ \w:;,.%+-]+")
    expected = [re.sub(" |fi|fl", "", word.words) for word in words_in(svg) if plain.fullmatch(word.words)]
    assert len(expected) > 5 and all(words in found for words in expected)
    assert imread(tmp_path / "it.png").shape[:2] == tuple(int(SHARP * side) for side in size_of(svg)[::-1])


def test_a_pdf_is_the_same_bytes_whenever_it_is_written(tmp_path):
    for name in ("once.pdf", "again.pdf"):
        DRAWINGS["draw_parts"].save(tmp_path / name)
    assert (tmp_path / "once.pdf").read_bytes() == (tmp_path / "again.pdf").read_bytes()


@pytest.mark.parametrize("name", ["it.jpg", "it", "it.svg.gz", ".svgz", "it.eps"])
def test_any_other_suffix_is_refused(name, tmp_path):
    with pytest.raises(ValueError, match=r"save writes what the suffix says: .svg, .pdf or .png \(got '.*"):
        draw(TIMELINE).save(tmp_path / name)
    assert not list(tmp_path.iterdir())


SHOWN = {
    "plain": {},
    "narrow": {"width": 400},
    "strips": {"in_flight": True, "width": 900, "font_size": 18},
    "memory": {"memory": metered(TIMELINE)},
}


@pytest.mark.parametrize("options", SHOWN.values(), ids=SHOWN)
def test_every_area_has_its_colour_in_the_image(options, tmp_path):
    """At its first corner, unless something else is on top there: numbers and patterns are in the middle."""
    drawing = draw(TIMELINE, **options)
    drawing.save(tmp_path / "it.png")
    image, svg = imread(tmp_path / "it.png")[:, :, :3], str(drawing)
    scale = SHARP * size_of(svg)[0] / drawing.size[0]
    checked = 0
    for path in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}g"):
        fill = path.get("fill")
        for box in path if path.get("stroke") == "#fff" else ():
            left, top, right, _ = bounds(points(box.get("d"))[0])
            if right - left > 5:
                at = image[int((top + 2) * scale), int((left + 2.5) * scale)]
                assert at == pytest.approx(to_rgb(fill), abs=0.01), box[0].text
                checked += 1
    assert checked == 64
    axis = next(path for path in ElementTree.fromstring(svg).iter() if path.get("stroke") == INK)
    x, y = points(axis.get("d"))[0][0]
    assert image[int((y + 2) * scale), int(x * scale)] == pytest.approx(to_rgb(INK), abs=0.3), "lines, too"
    page = image[int(scale), int(scale)]
    assert page == pytest.approx((1, 1, 1))


@over([remat(GPipe(3, 4), "always"), ZBH1(3, 4)])
def test_patterns_are_white_on_the_lower_part_of_their_boxes(schedule):
    svg, held = str(draw(simulate(schedule))), BytesIO()
    save_printed(svg, held, "png", "it")
    image = imread(BytesIO(held.getvalue()))[:, :, :3]
    [path, *_] = [each for each in ElementTree.fromstring(svg).iter() if "url(#" in each.get("fill", "")]
    bands = [bounds(outline) for outline in points(path.get("d"))]
    assert len(bands) == 12
    for left, top, right, bottom in bands:
        left, top, right, bottom = (int(SHARP * edge) for edge in (left + 1, top + 1, right - 1, bottom - 1))
        light = image[top:bottom, left:right].min(axis=2)
        assert light.max() > 0.9 > 0.6 > light.min()


@pytest.mark.parametrize("options", [{}, {"in_flight": True, "messages": True, "pushed": True}], ids=repr)
@pytest.mark.parametrize(("width", "font"), [(317, 9), (317, 12), (1200, 12), (1200, 24), (80, 4), (700, 6)])
@over([OneFOneB(4, 8), overlapped(3, 6), GPipe(1, 1), OneFOneB(8, 300)])
def test_a_page_is_as_wide_as_asked_and_all_its_words_are_on_it(schedule, width, font, options):
    timeline = simulate(schedule)
    drawing = draw(timeline, width=width, font_size=font, titles=["A rather long title: " * 4], **options)
    svg, scale = str(drawing), font / 12
    assert size_of(svg)[0] == width
    wide, high = drawing.size
    assert f'viewBox="0 0 {wide:.1f}'.removesuffix(".0") in svg
    assert 'font-size="12"' in svg and wide == pytest.approx(width / scale)
    for word in words_in(svg):
        half = 0.5 * word.size * len(word.words) * (1.08 if word.bold else 1)
        left = word.x - {"start": 0, "middle": half / 2, "end": half}[word.anchor]
        assert left >= 0 and left + half <= wide + 0.1 and word.size <= word.y <= high, word
    lines = [word for word in words_in(svg) if word.bold and word.size == 14]
    assert "A rather long title: A" in " ".join(word.words for word in lines)


def test_letters_of_a_page_are_as_large_as_asked():
    usual, large = (words_in(str(draw(TIMELINE, width=w, font_size=f))) for w, f in ((700, 12), (1400, 24)))
    assert usual == large, "twice of everything is the same page, twice as large"
    assert str(draw(TIMELINE)) != str(draw(TIMELINE, font_size=12))  # which does not grow in a narrow window


@pytest.mark.parametrize("words", ["\ud800", "a\0b", "\x1b[1m", "\uffff"], ids=ascii)
def test_titles_that_no_file_can_hold_are_refused(words, tmp_path):
    """A lone surrogate was a raw UnicodeEncodeError, and NUL an invalid file."""
    for owner, call in (
        ("draw", lambda: draw(TIMELINE, titles=[words])),
        ("plot_timeline", lambda: plot_timeline(TIMELINE, title=words)),
        ("plot_pushed", lambda: plot_pushed(TIMELINE, title=words)),
    ):
        with pytest.raises(ValueError, match=rf"^{owner} needs .*title.*; '.*' cannot be written \(got "):
            call()
    drawing = draw(TIMELINE, titles=["Größe\t→ \U0001f600 < & > 漢"])
    drawing.save(tmp_path / "it.svg")
    assert ElementTree.parse(tmp_path / "it.svg").getroot()[0].text.startswith("Chart: Größe")


@pytest.mark.parametrize(
    "options", [{"width": 100}, {"width": 1e9}, {"font_size": 0}, {"width": float("nan")}, {"font_size": 101}]
)
def test_a_page_of_no_size_is_refused(options):
    [name] = options
    with pytest.raises(ValueError, match=rf"draw needs \S+ <= {name} < \S+ \(got "):
        draw(TIMELINE, **options)
    with pytest.raises(TypeError, match=f"draw needs {name} to be a number"):
        draw(TIMELINE, **{name: "wide"})


# Without colours

IN_GREY = {
    "plain": (TIMELINE, {}),
    "narrow": (TIMELINE, {"width": 400, "font_size": 11}),
    "everything": (TIMELINE, {"in_flight": True, "messages": True, "critical_path": True, "pushed": True}),
    "memory": (TIMELINE, {"memory": metered(TIMELINE), "highlight": ["0F0"]}),
    "every kind": (simulate(remat(gp.ZBV(3, 6), "always"), gp.Costs(comm=1)), {}),
    "pairs": (simulate(gp.with_updates(gp.families.DualPipe(4, 8)), gp.Costs(update=1)), {}),
    "sums": (
        gp.all_reduce(simulate(gp.replicate(GPipe(2, 2), 2)), 4, links=gp.Link(bandwidth=1), clip=True),
        {},
    ),
    "coarse": (simulate(ZBH1(32, 512)), {}),
}


@pytest.mark.parametrize("name", IN_GREY)
def test_a_chart_without_colours_has_none_and_is_the_same_chart(name):
    """No dark page is made of white paper."""
    timeline, options = IN_GREY[name]
    drawing, coloured = draw(timeline, grey=True, **options), draw(timeline, **options)
    grey, usual = str(drawing), str(coloured)
    colours = {each if len(each) > 4 else 2 * each[1:] for each in re.findall(r"#[0-9a-fA-F]{3,6}\b", grey)}
    assert len(colours) > 4
    assert all(len({*re.findall("..", each.strip("#"))}) == 1 for each in colours), colours
    assert "prefers-color-scheme" in usual and "prefers-color-scheme" not in grey
    places = re.compile(r' d="([^"]*)"')
    assert sorted("".join(places.findall(grey))) == sorted("".join(places.findall(usual)))
    assert sorted(each.words for each in words_in(grey)) == sorted(each.words for each in words_in(usual))


@pytest.mark.parametrize("name", ["everything", "every kind"])
def test_a_saved_chart_without_colours_has_none(name, tmp_path):
    """With arrows and strips, and with every pattern. What a PDF writes stays words."""
    timeline, options = IN_GREY[name]
    drawing, coloured = draw(timeline, grey=True, **options), draw(timeline, **options)
    for each in ("it.pdf", "it.png"):
        drawing.save(tmp_path / each, width=700)
    coloured.save(tmp_path / "usual.pdf", width=700)
    image = imread(tmp_path / "it.png")[:, :, :3]
    assert np.ptp(image, axis=2).max() == 0 and len(np.unique(image)) > 4
    data, other = (tmp_path / "it.pdf").read_bytes(), (tmp_path / "usual.pdf").read_bytes()
    assert sorted(words_of_pdf(data)) == sorted(words_of_pdf(other)) != []
    assert [each for each in fills_of_pdf(data) if len({*each}) > 1] == []
    assert any(len({*each}) > 1 for each in fills_of_pdf(other))


def fills_of_pdf(data: bytes) -> set[tuple[bytes, ...]]:
    """The colours that it paints with, as red, green and blue."""
    streams = re.findall(rb"stream\r?\n(.*?)endstream", data, re.S)
    pages = b"\n".join(zlib.decompress(each) for each in streams if each[:1] == b"\x78")
    return {*re.findall(rb"(\S+) (\S+) (\S+) (?:rg|RG)\b", pages)}


def test_grey_is_asked_for_with_true_or_false():
    with pytest.raises(TypeError, match="draw needs grey to be True or False"):
        draw(TIMELINE, grey="yes")
