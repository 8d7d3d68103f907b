# Every target installs what it needs in .venv, once; a change of pyproject.toml or constraints.txt installs again.
# Plain enough for the GNU make 3.81 of macOS. Serial, because two pips in one environment, or tests that read
# figures while these are rebuilt, would break each other under `make -j`.
.NOTPARALLEL:
.DEFAULT_GOAL := help
.PHONY: help figures test test-course test-random test-torch test-docs test-page docs lessons lessons-torch exercises lab look prove lint bench bench-page bench-torch reset clean

PYTHON ?= python3
PYTHONS := $(PYTHON) $(if $(filter file,$(origin PYTHON)),python3.13 python3.12 python3.11)
RUN := .venv/bin/python -m
INSTALL = $(RUN) pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable
# The arrays of tests and lessons are small: a second thread spins more than it computes.
export OPENBLAS_NUM_THREADS ?= 1
# A run of the tests starts dozens of Pythons: what one has compiled serves them all.
unexport PYTHONDONTWRITEBYTECODE
NBVAL := pytest -q --nbval --nbval-current-env --nbval-cell-timeout 120
# What torch's own tests and lessons are; every other one does without it. TORCH is the release they install.
TORCH ?= 2.13.0
# Where pip finds it, unless where it finds everything: TORCH_INDEX=<PyTorch's address of CPU builds>
TORCH_INDEX ?=
TORCH_TESTS := $(wildcard tests/test_torch_*.py)
TORCH_LESSONS := $(wildcard notebooks/20_*.ipynb)
LESSONS := $(filter-out $(TORCH_LESSONS),$(wildcard notebooks/*.ipynb))

# A slow cell prints in several pieces, which the second command joins.
again = $(RUN) nbconvert --to notebook --execute --inplace --ExecutePreprocessor.record_timing=False \
	    --ExecutePreprocessor.extra_arguments=--log-level=ERROR $(1) && \
	$(RUN) nbconvert --to notebook --inplace --coalesce-streams $(1)

help:  ## this list (also plain `make`)
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1|/p' Makefile | awk -F'|' '{ printf "make %-13s %s\n", $$1, $$2 }'

figures: .venv/figures  ## rebuild every figure and the numbers it draws
	@$(RUN) figures

test: .venv/test  ## run the tests, and every lesson against its stored output
	@$(RUN) $(NBVAL) tests $(LESSONS)

test-course: .venv/test  ## run every lesson as students run it, and the grader on what students hand in
	@$(RUN) pytest -q $(wildcard tests/classroom/test_*.py)

test-random: .venv/test  ## run the tests that draw their examples on many new ones
	@$(RUN) pytest -q -m hypothesis --hypothesis-profile=random tests

test-torch: .venv/torch-$(TORCH)  ## install torch, and run its tests and its lesson
	@$(RUN) $(NBVAL) $(TORCH_TESTS) $(TORCH_LESSONS)

test-docs: docs  ## build the site, and test its pages
	@$(RUN) pytest -q $(wildcard tests/docs/test_*.py)

test-page: .venv/test .venv/look .venv/page/made  ## test gp.view's page: its scripts in node, all of it in a real browser
	@$(RUN) gpipe_sim.viewer build/page
	@.venv/page/node_modules/.bin/eslint --config tests/page/eslint.config.js gpipe_sim/viewer tests/page
	@node --test $(wildcard tests/page/*.test.js)
	@$(RUN) pytest -q $(wildcard tests/page/test_*.py)

docs: .venv/docs  ## build the site in build/docs: lessons, how-to, gallery, API
	@$(RUN) docs

lessons: .venv/test  ## run every lesson again and store its output
	@$(call again,$(LESSONS))

lessons-torch: .venv/torch-$(TORCH)  ## run the lesson on real devices again and store its output
	@$(call again,$(TORCH_LESSONS))

exercises: .venv/test  ## make the exercises and their solutions again from their sources
	@$(RUN) notebooks.exercises

lab: .venv/test  ## read the lessons in JupyterLab
	@$(RUN) jupyterlab --preferred-dir=notebooks

look: .venv/look  ## see every lesson in a real browser, opened and then run; screenshots in build/look
	@$(RUN) look

prove: .venv/prove  ## show that no order of a puzzle takes less than par
	@$(RUN) prove

lint: .venv/test  ## check style, format and types, in notebooks too
	@$(RUN) ruff check
	@$(RUN) ruff format --check
	@$(RUN) tests.typed

bench: .venv/figures  ## time the library against plain loops
	@$(RUN) benchmarks

bench-page: .venv/look  ## time gp.view's page in a real browser
	@$(RUN) benchmarks page

bench-torch: .venv/torch-$(TORCH)  ## time PyTorch's engine: against the simulator, and against its own classes
	@$(RUN) benchmarks torch

reset:  ## forget what a student wrote: the file in which lessons keep it; notebooks stay as they are
	rm -f notebooks/my_pipeline.py notebooks/my_tries.json

clean:  ## remove .venv and every cache; figures and lessons stay
	rm -rf .venv .pytest_cache .ruff_cache .mypy_cache .hypothesis build dist *.egg-info
	find . -name __pycache__ -prune -exec rm -rf {} +
	find . -name .ipynb_checkpoints -prune -exec rm -rf {} +

.venv/made:
	@for python in $(PYTHONS); do \
	    recent=$$("$$python" -c 'import sys; print(sys.version_info >= (3, 11))' 2>/dev/null); \
	    [ "$$recent" = True ] || continue; \
	    echo "Making .venv with $$python"; \
	    "$$python" -m venv .venv && touch $@ && exit; \
	    rm -rf .venv; \
	    echo "$$python could not make a virtual environment. On Debian or Ubuntu: sudo apt install python3-venv" >&2; \
	    exit 1; \
	done; \
	echo "gpipe_sim needs Python 3.11 or newer. Found:" >&2; \
	for python in $(PYTHONS); do \
	    version=$$("$$python" -c 'import sys; print(sys.version.split()[0])' 2>/dev/null); \
	    echo "  $$python: $${version:-none}" >&2; \
	done; \
	echo "Install a newer Python, or name one: make PYTHON=/path/to/python3.12 ..." >&2; \
	exit 1

.venv/figures: pyproject.toml constraints.txt .venv/made
	@echo "Installing NumPy and matplotlib in .venv (once, 200 MB)"
	@$(INSTALL) ".[plot]"
	@touch $@

.venv/test: .venv/figures
	@echo "Installing Jupyter, pytest, ruff and mypy in .venv (once, 280 MB more)"
	@$(INSTALL) ".[test]"
	@touch $@

.venv/look: .venv/figures
	@echo "Installing Jupyter and playwright in .venv (once, 400 MB more)"
	@$(INSTALL) ".[look]"
	@touch $@

.venv/prove: .venv/figures
	@echo "Installing OR-Tools in .venv (once, 170 MB more)"
	@$(INSTALL) ".[prove]"
	@touch $@

.venv/docs: .venv/test
	@echo "Installing Sphinx in .venv (once, 90 MB more)"
	@$(INSTALL) ".[docs]"
	@touch $@

# What pip does not have: eslint for the page's scripts, axe-core for who cannot see it.
.venv/page/made: tests/page/package.json tests/page/package-lock.json .venv/made
	@for tool in node npm; do \
	    command -v $$tool >/dev/null && continue; \
	    echo "make test-page needs $$tool, and a Chromium. On Debian or Ubuntu: sudo apt install nodejs npm chromium" >&2; \
	    exit 1; \
	done
	@echo "Installing eslint and axe-core in .venv (once, 18 MB)"
	@mkdir -p $(@D) && cp tests/page/package.json tests/page/package-lock.json $(@D)
	@cd $(@D) && npm ci --silent --no-fund --no-audit
	@touch $@

# pip takes the build that its index has: on Linux that is usually one with CUDA libraries, several GB.
.venv/torch-$(TORCH): .venv/test
	@echo "Installing torch $(TORCH) in .venv (once)"
	@$(RUN) pip install --quiet --disable-pip-version-check --constraint constraints.txt "torch==$(TORCH)" \
	    $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX))
	@$(INSTALL) ".[torch]"
	@rm -f .venv/torch-*
	@touch $@
