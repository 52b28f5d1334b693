# The short commands of the README. Each one installs the Debian packages that it needs and that are missing,
# so that git and make are enough to begin with. CMakePresets.json holds the builds behind them.
JOBS ?= $(shell nproc)
BUILD := build/release
# Machine code of GPUs (src/kernels/gpu/CMakeLists.txt), besides PTX.
MACHINE_CODE := "-DSTRATA_CUDA_ARCHITECTURES=80;90a;100a"

.PHONY: help arrow cuda demo test quick test-long fuzz build format format-check lint deploy-check dist dist-check gpu-bundle install clean
.DEFAULT_GOAL := help

help:
	@echo "make demo          install what is missing, build, train a small model on real text, show what it writes"
	@echo "make test          install what is missing, build, run the tests"
	@echo "make quick         the same for ops, kernels, configuration and base only: under a minute of tests"
	@echo "make test-long     lint, sanitizers, the long tests, the fuzzers, AMD: hours, continues where it stopped (PARTS="asan …")"
	@echo "make fuzz          the fuzzers of everything that reads a file, a minute each (STRATA_FUZZ_SECONDS; FUZZERS=quick_fuzzers: those that compile in minutes)"
	@echo "make build         the program: $(BUILD)/bin/strata"
	@echo "make arrow         fetch Apache Arrow (50 MB) and build with it: Parquet, Arrow IPC, s3:// and gs://"
	@echo "make cuda          fetch NVIDIA's compiler of GPU code (100 MB) and build with the kernels of GPUs"
	@echo "make format        lay the sources out with clang-format (format-check changes nothing; it also checks wording)"
	@echo "make lint          clang-tidy over the sources that differ from main (FILES=all: over all of them)"
	@echo "make deploy-check  validate the Slurm, Kubernetes and container files of deploy/"
	@echo "make dist          an archive of the program that runs without installing anything: build/dist"
	@echo "make dist-check    run that archive in bare Debian 12, Debian 13 and Ubuntu 24.04 roots; needs root and the network"
	@echo "make gpu-bundle    the archive with bench/gpu.sh, which checks and measures a GPU on another machine; needs nvcc"
	@echo "make install       put program, library, headers and manual pages under PREFIX (/usr/local)"
	@echo "make clean         remove build/; runs, corpora and caches stay"
	@echo "Variables: JOBS=$(JOBS) (processes at once), STRATA_DEMO_SECONDS (how long the demo trains), SUITES (of dist-check)"

# Configuring again is a fraction of a second, and finds packages that have come since.
$(BUILD)/configured:
	@tools/packages.sh build
	@cmake --preset release $(CONFIGURE)
.PHONY: $(BUILD)/configured

build: $(BUILD)/configured
	@cmake --build $(BUILD) --parallel $(JOBS)

# The choice stays: later builds go on with Arrow. cmake -U STRATA_ARROW_ROOT takes it back.
arrow:
	@tools/packages.sh build
	@root=$$(tools/arrow.sh build/arrow) && cmake --preset release $(CONFIGURE) -DSTRATA_ARROW_ROOT="$$root"
	@cmake --build $(BUILD) --parallel $(JOBS)

# The choice stays, as with Arrow. An nvcc on the PATH or of CUDA_HOME is taken instead if it is recent enough.
cuda:
	@tools/packages.sh build
	@tools/cuda.sh build/cuda >/dev/null && cmake -U STRATA_NVCC --preset release $(CONFIGURE) $(MACHINE_CODE)
	@cmake --build $(BUILD) --parallel $(JOBS)

demo: $(BUILD)/configured
	@cmake --build $(BUILD) --parallel $(JOBS) --target strata
	@tools/demo.sh

test: build
	@tools/test.sh release $$(($(JOBS) + 1))  # ranks and processes often wait

quick: $(BUILD)/configured
	@cmake --build $(BUILD) --parallel $(JOBS) --target quick_tests
	@tools/test.sh release $$(($(JOBS) + 1)) --label-regex quick

fuzz:
	@tools/packages.sh all
	@tools/fuzz.sh $(or $(STRATA_FUZZ_SECONDS),60) $(JOBS) $(FUZZERS)

test-long:
	@tools/packages.sh long
	@tools/test-long.sh $(JOBS) $(PARTS)

format:
	@tools/packages.sh all
	@tools/format.sh

format-check:
	@tools/packages.sh all
	@tools/format.sh --check

lint: $(BUILD)/configured
	@tools/packages.sh all
	@JOBS=$(JOBS) tools/lint.py $(FILES)

deploy-check:
	@tools/packages.sh all
	@tools/deploy-check.sh

# The modules of MPI and of GPUs are targets only if MPI and nvcc were found.
dist: $(BUILD)/configured
	@cmake --preset release $(CONFIGURE) $(MACHINE_CODE) >/dev/null
	@targets=$$(cmake --build $(BUILD) --target help | grep -oEw 'strata_mpi|strata_cuda' | sort -u | tr '\n' ' ') && \
	  cmake --build $(BUILD) --parallel $(JOBS) --target strata $$targets
	@tools/dist.sh

# Needs nvcc, for the program's machine code and the kernels that the twin of the driver executes.
gpu-bundle: dist
	@cmake --build $(BUILD) --parallel $(JOBS) --target gpu_record gpu_kernels
	@tools/gpu-bundle.sh

dist-check:
	@tools/packages.sh all
	@tools/dist-check.sh $(SUITES)

install: build
	@cmake --install $(BUILD) $(if $(PREFIX),--prefix $(PREFIX))

clean:
	rm -rf build
