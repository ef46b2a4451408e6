# Three commands matter: `make demo`, `make test` and, before a release, `make proof`. They set up what they need in .venv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: demo test lint types check proof bench docs clean

demo: $(STAMP)
	@$(BIN)/python demo/demo.py

test: lint types check

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP)
	$(BIN)/mypy

check: $(STAMP)
	$(BIN)/python -m pytest -n 2 --dist worksteal

# Everything, in parts: what has passed on this commit is not run again. `make proof PART=crash` or `make proof-crash`.
proof: $(STAMP)
	@$(BIN)/python tests/proof.py $(PART)

proof-%: $(STAMP)
	@$(BIN)/python tests/proof.py $*

bench: $(STAMP)
	$(BIN)/python bench/bench.py

docs: $(STAMP)
	$(BIN)/python docs/make_commands.py

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Holdfast needs Python 3.11 or newer; '$(PYTHON)' is older. Try: make PYTHON=python3.11 $(MAKECMDGOALS)"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null \
	  || { echo "This Python has no venv module. On Debian: apt-get install python3-venv"; exit 1; }
	@echo "Setting up $(VENV) (once)..."
	@$(PYTHON) -m venv $(VENV)
	@# uv makes the install quick; where it cannot be had, pip does the same.
	@if $(BIN)/python -m pip install --quiet --disable-pip-version-check uv 2>/dev/null \
	  && VIRTUAL_ENV=$(CURDIR)/$(VENV) $(BIN)/uv pip install --quiet -e '.[dev]' 2>/dev/null; then :; \
	  else $(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'; fi
	@touch $@

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis .proof
