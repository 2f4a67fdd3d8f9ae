# `make demo` shows the whole thing, `make test` checks the whole thing. Both install first.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
EXTRAS := torch,train,bench,tools,dev

.PHONY: help install gguf packages demo test suite lint types floors compose-check clean

help:
	@echo "make install   create $(VENV) with what the demo and the tests need"
	@echo "make gguf      add the llama.cpp engine (compiles for about five minutes)"
	@echo "make demo      three questions, a benchmark, tools; about a minute when installed"
	@echo "make test      style, types, floors, compose file, and the whole test suite; compiles"
	@echo "               llama.cpp the first time, and as root installs the packages of the system"
	@echo "               that tests use; tests of what is missing are skipped, and counted at the end"
	@echo "make clean     remove $(VENV)"

install: $(STAMP)

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Loopline needs Python 3.11 or newer; name it by make PYTHON=/path/to/python3.11"; exit 1; }
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

# Compiles llama.cpp: about five minutes on two cores, once; pip keeps the wheel for the next $(VENV).
$(VENV)/.gguf: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	  --constraint constraints.txt --editable '.[gguf]'
	@touch $@

gguf: $(VENV)/.gguf

# Servers that the openai engine is tested against: llama-cpp-python's and `transformers serve`.
$(VENV)/.servers: $(VENV)/.gguf
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	  --constraint constraints.txt --editable '.[servers]'
	@touch $@

# LiteLLM's proxy, another of them. Whole, it brings 120 packages and versions that are not ours; what
# starts it and passes requests on is this, in a folder of its own, beside what $(VENV) has.
LITELLM := litellm litellm-proxy-extras aiohappyeyeballs aiohttp aiosignal apscheduler backoff \
  dnspython email-validator expression fastapi-sso fastuuid frozenlist importlib-metadata \
  lazy-importer multidict oauthlib propcache restrictedpython soundfile tiktoken tzlocal websockets \
  yarl zipp

$(VENV)/litellm: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade \
	  --constraint constraints.txt --target $@ $(LITELLM)
	@touch $@

# What tests use of the system: a second Redis, the sandbox of generated programs, a reader of
# compose.yaml. Only root of a Debian machine can install them without asking.
packages:
	@missing=; \
	for pair in redis-server:redis-server bwrap:bubblewrap docker-compose:docker-compose; do \
	  command -v "$${pair%%:*}" >/dev/null || missing="$$missing $${pair##*:}"; \
	done; \
	if [ -n "$$missing" ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  export DEBIAN_FRONTEND=noninteractive; \
	  { apt-get update -qq && apt-get install -y -qq --no-install-recommends $$missing; } \
	    >/dev/null 2>&1 || echo "not installed:$$missing (their tests are skipped)"; \
	fi

demo: install
	@$(BIN)/python -m loopline.runtime.demo

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
	  LOOPLINE_REDIS_PASSWORD=check docker-compose --file compose.yaml config --quiet && \
	  echo "compose.yaml: valid"; \
	else echo "compose.yaml: not checked (no docker-compose on PATH)"; fi

test: lint types floors compose-check suite

# Its tests wait for processes more than they compute: more of them than cores are faster.
suite: $(VENV)/.peers $(VENV)/bfcl-eval $(VENV)/litellm packages
	@$(MAKE) --no-print-directory $(VENV)/.servers || \
	  echo "llama.cpp: not compiled (is there a C compiler?); its tests are skipped"
	$(BIN)/pytest --numprocesses 4 --dist loadfile --durations 40 $(PYTEST)

clean:
	rm -rf $(VENV)
