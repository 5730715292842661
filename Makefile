# Two commands matter: `make demo` and `make test`. The application and its tools are installed into .venv, what runs
# models (vLLM, PyTorch) into .venv-engine.
PYTHON ?= python3
BIN := .venv/bin
ENGINE := .venv-engine/bin
# PyTorch's own index, used only if the configured one has no CPU build of torch.
TORCH_INDEX := https://download.pytorch.org/whl/cpu

# Each module is compiled once, not in every process that the tests start.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo environments engine unit test test-all chaos soak system-packages check conformance docs format lock audit-dependencies sbom wheel clean

demo: environments
	$(BIN)/reelabel demo $(ARGS)

# Both at the same time, which takes two cores about half as long.
environments:
	@$(MAKE) --silent --jobs=2 .venv/installed .venv-engine/installed

# The engine's environment on a machine without a GPU.
engine: .venv-engine/installed

# Tests of pure computation, without services: under a minute, while you write.
UNIT := $(addprefix tests/,domain evaluation engine search relevance survey embedding report live manifest \
  model/prompts infra/settings flows/serve/requests reelabel/containers reelabel/sampling test_docs.py)
unit: .venv/installed
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m "not system and not service" \
	  --ignore=tests/manifest/test_bombs.py $(UNIT) $(ARGS)

# Everything but the system tier; ARGS="-n 0" uses one process.
test: environments
	$(BIN)/python -m pytest -n 4 --dist loadgroup -m "not system" $(ARGS)

# Everything, including tests that need engines, servers, a browser or minutes.
test-all: environments system-packages
	$(BIN)/python -m pytest -n 2 --dist loadgroup $(ARGS)

# Injects faults into runs at random moments, and checks that no job is lost: make chaos ARGS="--trials 20 --engine vllm --seed 1".
chaos: environments
	PYTHONPATH=. $(BIN)/python -P -m tests.chaos $(ARGS)

# Everything on one machine for an hour; memory must stay flat, and everything reconcile: make soak ARGS="--minutes 60".
soak: environments
	PYTHONPATH=. $(BIN)/python -P -m tests.soak $(ARGS)

# Debian's packages; root needs no sudo.
system-packages:
	command -v chromium >/dev/null && command -v prometheus >/dev/null && command -v ip >/dev/null || { \
	  sudo=$$(test $$(id -u) = 0 || echo sudo); \
	  $$sudo apt-get update -qq && $$sudo env DEBIAN_FRONTEND=noninteractive \
	    apt-get install -y -qq --no-install-recommends chromium prometheus iproute2; }

check: .venv/installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

conformance: .venv/installed
	$(BIN)/python -m benchmarks conformance --write docs/conformance.md

# The site in site/, built in its own environment; --strict fails on a broken link.
docs: .venv-docs/installed
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict --quiet

.venv-docs/installed: requirements/docs.txt
	$(PYTHON) -m venv .venv-docs
	.venv-docs/bin/python -m pip install --quiet --no-deps --require-hashes -r requirements/docs.txt
	touch $@

format: .venv/installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# Every package is locked by its hash, and nothing is resolved here, so that no CUDA package gets in.
.venv/installed: requirements/worker.txt requirements/dev.txt pyproject.toml engine/pyproject.toml reelabel/pyproject.toml
	@echo 'Installing the application and its tools into .venv ...'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --no-deps --require-hashes -r requirements/worker.txt -r requirements/dev.txt
	$(BIN)/python -m pip install --quiet --no-deps -e reelabel -e engine -e .
	touch $@

# torch for CPUs alone is locked only by its version, because each index has its own build. Next to it, PyPI's
# torchvision can be imported only with the finder that the last lines install.
TORCHVISION_FINDER := engine/reelabel_engine/torchvision_shim/sitecustomize.py
.venv-engine/installed: requirements/engine-cpu.txt requirements/torch-cpu.txt engine/pyproject.toml reelabel/pyproject.toml $(TORCHVISION_FINDER)
	@echo 'Installing vLLM into .venv-engine ...'
	$(PYTHON) -m venv .venv-engine
	$(ENGINE)/python -m pip install --quiet --upgrade pip
	$(ENGINE)/python -m pip install --quiet --no-deps -r requirements/torch-cpu.txt \
	  || $(ENGINE)/python -m pip install --quiet --no-deps --extra-index-url $(TORCH_INDEX) -r requirements/torch-cpu.txt
	$(ENGINE)/python -m pip install --quiet --no-deps --require-hashes -r requirements/engine-cpu.txt
	$(ENGINE)/python -m pip install --quiet --no-deps -e reelabel -e engine
	site=$$($(ENGINE)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') \
	  && cp $(TORCHVISION_FINDER) $$site/_torchvision_on_cpu.py \
	  && echo 'import _torchvision_on_cpu' > $$site/_torchvision_on_cpu.pth
	touch $@

# Pinned versions stay if they still fit; `make lock LOCK_ARGS=--upgrade` takes the newest of all packages.
LOCK_OPTIONS = --universal --python-version 3.11 --generate-hashes --no-header --no-annotate --quiet $(LOCK_ARGS)
LOCK = uv pip compile pyproject.toml $(LOCK_OPTIONS) --no-emit-package reelabel --no-emit-package reelabel-engine \
	--extra kubernetes --extra server
LOCK_ENGINE = uv pip compile engine/pyproject.toml $(LOCK_OPTIONS) --no-emit-package reelabel
# Development needs everything that a worker needs, so dev.txt has only the packages that worker.txt lacks.
# rfc3987-syntax builds its grammar whenever jsonschema is imported: over a second in each of Prefect's processes.
lock:
	$(LOCK) --output-file requirements/worker.txt
	$(LOCK) --extra embedded --extra iceberg --extra lake --extra mlflow --extra ray --group dev --no-emit-package rfc3987-syntax \
	  --constraint requirements/worker.txt --output-file requirements/dev.txt
	awk 'NR == FNR { locked[$$0]; next } /^[^ ]/ { is_new = !($$0 in locked) } is_new' requirements/worker.txt \
	  requirements/dev.txt > requirements/dev.new && mv requirements/dev.new requirements/dev.txt
	$(LOCK_ENGINE) --extra gpu --output-file requirements/engine-gpu.txt
	$(LOCK_ENGINE) --extra cpu --overrides requirements/cpu-overrides.txt --config-file requirements/cpu-uv.toml \
	  $(addprefix --no-emit-package ,torch torchaudio torchcodec triton) --output-file requirements/engine-cpu.txt
	uv pip compile reelabel/pyproject.toml $(LOCK_OPTIONS) --output-file requirements/library.txt
	uv pip compile --group build $(LOCK_OPTIONS) --output-file requirements/build.txt
	uv pip compile --group docs $(LOCK_OPTIONS) --output-file requirements/docs.txt
	sed -n 's/^torch==.*/&+cpu/p' requirements/cpu-overrides.txt > requirements/torch-cpu.txt

# Queries the advisories of PyPI's JSON API; fails for a package that cannot be looked up.
LOCKED := worker engine-gpu engine-cpu
audit-dependencies: .venv/installed
	$(BIN)/pip-audit --strict --disable-pip --require-hashes --progress-spinner off \
	  $(foreach name,$(LOCKED),--requirement requirements/$(name).txt)

# CycloneDX: a file for each lock, with the hashes of its packages.
sbom: .venv/installed
	mkdir -p dist
	$(foreach name,$(LOCKED),PYTHONWARNINGS=ignore $(BIN)/cyclonedx-py requirements requirements/$(name).txt \
	  --pyproject $(if $(filter worker,$(name)),.,engine)/pyproject.toml --output-reproducible --output-file dist/sbom-$(name).json &&) true

wheel: .venv/installed
	rm -rf dist
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist ./reelabel ./engine .

clean:
	rm -rf .venv .venv-engine .venv-docs dist site
