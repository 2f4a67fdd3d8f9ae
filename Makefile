# `make demo` shows the whole thing, `make test` checks the whole thing. Both install first.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
EXTRAS := torch,train,bench,tools,dev

.PHONY: help install gguf demo test lint types floors compose-check clean

help:
	@echo "make install   create $(VENV) with what the demo and the tests need"
	@echo "make gguf      add the llama.cpp engine (compiles for about five minutes)"
	@echo "make demo      three questions, a benchmark, tools; about a minute when installed"
	@echo "make test      style, types, floors, compose file, and the whole test suite"
	@echo "make clean     remove $(VENV)"

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Switchyard needs Python 3.11 or newer; name it by make PYTHON=/path/to/python3.11"; exit 1; }
	@$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv --clear $(VENV) || \
	  { echo "the venv module is missing (on Debian: apt-get install python3-venv)"; exit 1; }
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	  --constraint constraints.txt --editable '.[$(EXTRAS)]'
	@touch $@

# Beside whose checker ours is tested. It pins an old NumPy and every vendor's client, so it gets a
# folder of its own, without what it depends on.
$(VENV)/bfcl-eval: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade \
	  --constraint constraints.txt --target $@ bfcl-eval
	@touch $@

# trl, beside whose losses ours are tested.
$(VENV)/.peers: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	  --constraint constraints.txt --editable '.[peers]'
	@touch $@

# Compiles llama.cpp: about five minutes on two cores.
gguf: install
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	  --constraint constraints.txt --editable '.[gguf]'

demo: install
	@$(BIN)/python -m runtime.demo

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: install
	$(BIN)/pyright

floors: install
	$(BIN)/lint-imports

# Only the file is checked: running it needs a container engine.
compose-check:
	@if command -v docker-compose >/dev/null 2>&1; then \
	  SWITCHYARD_REDIS_PASSWORD=check docker-compose --file compose.yaml config --quiet && \
	  echo "compose.yaml: valid"; \
	else echo "compose.yaml: not checked (no docker-compose on PATH)"; fi

test: $(VENV)/.peers $(VENV)/bfcl-eval lint types floors compose-check
	$(BIN)/pytest --numprocesses 2 --dist loadfile --durations 40

clean:
	rm -rf $(VENV)
