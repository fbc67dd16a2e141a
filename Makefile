# The front door. CMake does the work; these targets install what is missing first.
#
#   make quickstart    the whole way on the embedded default target (MINUTES=6 of training)
#   make quickstart-short  the same steps on 8 prompts: shows only that they work
#   make test          builds and runs every test and style check
#   make build         only the program: build/release/dflash-cpp
#   make oracles       the Python peers that some tests and benchmarks compare with
#   make prove         drafters trained with one mistake each: the doctor names it (long)
#   make bench         measurements, beside the peers where these are installed
#   make format        clang-format over the tree
#
# TORCH_DIR=/path/to/libtorch uses an existing LibTorch instead of installing one.

PRESET ?= release
MINUTES ?= 6
TORCH_DIR ?=
BUILD = build/$(PRESET)
PROGRAM = $(BUILD)/dflash-cpp

.PHONY: quickstart quickstart-short test build setup configure oracles prove bench format clean

quickstart: build
	$(PROGRAM) quickstart --minutes $(MINUTES)

quickstart-short: build
	$(PROGRAM) quickstart --short --out quickstart-short

test: configure
	cmake --build $(BUILD)
	cd $(BUILD) && ctest --output-on-failure

build: configure
	cmake --build $(BUILD) --target dflash-cpp

configure: setup
	@cmake --preset $(PRESET) $(if $(TORCH_DIR),-DTORCH_DIR=$(TORCH_DIR)) > build/configure.log \
	  || { cat build/configure.log; exit 1; }

setup:
	@TORCH_DIR="$(TORCH_DIR)" scripts/setup.sh

oracles: setup
	scripts/oracles.sh

bench: build oracles
	cmake --build $(BUILD) --target benches
	-scripts/llama_cpp.sh
	.venv-oracles/bin/python bench/run.py $(BUILD)

prove: build
	cmake --build $(BUILD) --target prove
	@test -d quickstart/run || $(PROGRAM) quickstart --minutes $(MINUTES)
	$(BUILD)/prove quickstart/run quickstart/dataset bench/results/prove-$$(date +%F).json

format: setup
	git ls-files '*.cpp' '*.h' | xargs clang-format -i

clean:
	rm -rf build
