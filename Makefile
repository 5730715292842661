# Two commands matter: `make demo` and `make test`. Everything installs into .venv.
PYTHON ?= python3
BIN := .venv/bin
# Only where the configured index has no CPU build of torch is PyTorch's own asked.
TORCH_INDEX := https://download.pytorch.org/whl/cpu

.PHONY: demo test test-all system-packages check conformance format lock wheel clean

demo: .venv/installed
	$(BIN)/reelabel demo $(ARGS)

test: .venv/installed
	$(BIN)/python -m pytest --ignore=tests/full $(ARGS)

# What `make test` leaves out because it needs a browser.
test-all: .venv/installed system-packages
	$(BIN)/python -m pytest tests/full $(ARGS)

# Debian's own; asks for no password as root.
system-packages:
	command -v chromium >/dev/null || { \
	  sudo=$$(test $$(id -u) = 0 || echo sudo); \
	  $$sudo apt-get update -qq && $$sudo DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium; }

check: .venv/installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

conformance: .venv/installed
	$(BIN)/python -m benchmarks.conformance_document docs/conformance.md

format: .venv/installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# The lock names every package, so nothing is resolved here: what must stay away on a CPU stays away.
.venv/installed: requirements/dev.txt pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --no-deps $$(grep '^torch==' $<) \
	  || $(BIN)/python -m pip install --quiet --no-deps --extra-index-url $(TORCH_INDEX) $$(grep '^torch==' $<)
	$(BIN)/python -m pip install --quiet --no-deps -r $<
	$(BIN)/python -m pip install --quiet --no-deps -e .
	touch $@

# Resolves anew; the last three of [tool.uv] are left out.
LOCK := uv pip compile pyproject.toml --extra cpu --extra embedded --universal --python-version 3.11 \
	--no-header --no-annotate --quiet
lock:
	$(LOCK) | grep -vE "sys_platform == '(never|win32|emscripten)'$$" > requirements/cpu.txt
	$(LOCK) --extra ray --group dev | grep -vE "sys_platform == '(never|win32|emscripten)'$$" > requirements/dev.txt

wheel: .venv/installed
	rm -rf dist
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .

clean:
	rm -rf .venv dist
