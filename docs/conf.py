"""How Sphinx builds the site; ``python -m docs`` gathers what it reads."""

import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

import gpipe_sim  # noqa: E402
from docs.api import linked, shortened  # noqa: E402

project, author = "gpipe_sim", "the gpipe_sim authors"
release = version = gpipe_sim.__version__
copyright = "the gpipe_sim authors. MIT for the code, CC BY 4.0 for the lessons' prose"
extensions = ["myst_nb", "sphinx.ext.autodoc"]
exclude_patterns = ["served"]
smartquotes = False

root_doc = "contents"  # the first page is no page of Sphinx's
html_theme = "pydata_sphinx_theme"
html_title = "gpipe_sim"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_extra_path = [str(ROOT / "build" / "docs-source" / "served")]
html_copy_source = html_show_sourcelink = html_domain_indices = False
ALONE = (
    "contents",
    "tour",
    "gallery/index",
    "torch",
    "glossary",
    "install",
    "code",
    "changelog",
    "genindex",
    "search",
)
html_sidebars: dict[str, list[str]] = {page: [] for page in ALONE}
html_theme_options = {
    "show_toc_level": 2,
    "secondary_sidebar_items": ["page-toc"],
    "show_prev_next": True,
    "navbar_persistent": ["search-button"],
    "header_links_before_dropdown": 6,
    "back_to_top_button": False,
}

myst_enable_extensions = ["attrs_inline"]
myst_heading_anchors = 3
nb_execution_mode = "auto"  # what stores its outputs is not run
nb_execution_excludepatterns = ["lessons/*"]
nb_execution_raise_on_error = True
nb_execution_timeout = 120
nb_execution_in_temp = True
nb_merge_streams = True
nb_ipywidgets_js = {}  # nothing here is a widget, and these would be loaded from elsewhere
nb_code_prompt_show = "The code of this cell"
nb_code_prompt_hide = "The code of this cell"

#: Other packages, whose pages are elsewhere; types of this one that nobody makes or gets.
INSIDE = "CostColumn|Chain|VShaped|Bidirectional|Drawn|Sizes|Transfer|T"
nitpick_ignore_regex = [("py:.*", r"(?!gpipe_sim).*"), ("py:class", rf"gpipe_sim\.[\w.]+\.({INSIDE})")]
autodoc_preserve_defaults = True
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
toc_object_entries_show_parents = "hide"
python_maximum_signature_line_length = 80


def setup(app):
    app.connect("autodoc-process-docstring", linked)
    app.connect("autodoc-process-signature", shortened)
