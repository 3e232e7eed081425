# `make demo` and `make test` need nothing but Python >= 3.11 and make.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
SOURCES := advisor scripts tests examples
# A file's tests run in one process, which shares its fixtures.
PARALLEL := --numprocesses 2 --dist loadfile

.PHONY: demo install test quick-tests lint check-all oldest-torch reliability bench fit accuracy docs clean

demo: $(VENV)/installed
	$(BIN)/advise examples/resnet50.py

install: $(VENV)/installed $(VENV)/models-installed

$(VENV)/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

# torchvision has no CPU build of its own operators: without its dependencies it brings none of torch's.
$(VENV)/models-installed: $(VENV)/installed
	$(BIN)/pip install --quiet --constraint constraints.txt transformers
	$(BIN)/pip install --quiet --constraint constraints.txt --no-deps torchvision timm
	$(BIN)/pip install --quiet --constraint constraints.txt pillow safetensors huggingface-hub
	$(BIN)/pip install --quiet --constraint constraints.txt --no-deps accelerate peft psutil
	$(BIN)/pip install --quiet --constraint constraints.txt --no-deps lightning lightning-utilities torchmetrics
	touch $@

lint: install
	$(BIN)/ruff format --check $(SOURCES)
	$(BIN)/ruff check $(SOURCES)
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

# Lint keeps one core busy for a minute, so it runs beside the tests.
test: install
	$(MAKE) --jobs 2 lint quick-tests

quick-tests: install
	$(BIN)/pytest -m "not slow" $(PARALLEL)

check-all: lint
	$(BIN)/pytest $(PARALLEL)

# The oldest torch of pyproject.toml, for tests/test_torch_versions.py. PyPI's build of it needs its CUDA libraries.
oldest-torch:
	$(PYTHON) -m venv .venv-oldest
	.venv-oldest/bin/pip install --quiet 'torch==2.6.*' --editable . transformers

reliability: install
	$(BIN)/pytest tests/reliability --attack-count 1000 --attack-page docs/internals/reliability.md

bench: install
	$(BIN)/python scripts/bench.py

fit: install
	$(BIN)/python scripts/fit.py --measured tests/data/measured --out profiles/efficiency
	$(BIN)/python scripts/fit_apple.py
	$(BIN)/python scripts/fit_engine_kernels.py --measured tests/data/measured --out profiles/efficiency
	$(BIN)/python scripts/fit_collectives.py --measured tests/data/measured/collectives.csv --engine profiles/engines/vllm.yaml
	$(BIN)/python scripts/fit_engine.py --measured tests/data/measured/served/vllm.csv --engine profiles/engines/vllm.yaml --final
	$(BIN)/python scripts/fit_experts.py --measured tests/data/measured/kernels --engine profiles/engines/vllm.yaml

accuracy: install
	$(BIN)/python scripts/write_accuracy.py --measured tests/data/measured --sample
	$(BIN)/python scripts/write_accuracy.py --measured tests/data/measured

docs: install
	$(BIN)/python scripts/write_flag_docs.py
	$(BIN)/python scripts/write_keywords.py
	$(BIN)/python scripts/write_schema.py
	$(BIN)/python scripts/write_demo.py
	$(BIN)/advise profile examples/mlp.py -o advisor/serve/example_workload.json

clean:
	rm -rf $(VENV) dist build
