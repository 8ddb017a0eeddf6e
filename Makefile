# The front door: every target installs what it lacks, then builds what it needs.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory
SHELL := /bin/bash

TEST_ENV := scripts/test_env
FUZZ_SECONDS ?= 60
SOAK_SECONDS ?= 600
# Those with threads of ours and without OpenVINO, in which the thread sanitizer cannot see.
TSAN_TESTS := base_test engine_test stage_worker_test transport_test transport_test_worker

.PHONY: help
help: ## this list
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1|\2/' \
	    | column -t -s '|'

.PHONY: demo
demo: release ## two workers, a question, an answer, figures; serves until Ctrl-C (ONCE=1: ends)
	@scripts/fetch_models smollm2
	@ONCE=$(ONCE) scripts/demo

.PHONY: test
test: fixtures ## every fast test
	@$(TEST_ENV) ctest --preset release

.PHONY: test-fast
test-fast: fixtures ## the tests of the rooms only, in two minutes
	@$(TEST_ENV) ctest --preset rooms

.PHONY: test-slow
test-slow: fixtures ## the tests that need large models or much time
	@scripts/fixtures --slow
	@$(TEST_ENV) ctest --preset slow

.PHONY: soak
soak: fixtures ## 32 clients that come and go against a small KV pool for SOAK_SECONDS (600)
	@$(TEST_ENV) build/venv/bin/python tests/e2e/soak.py --seconds $(SOAK_SECONDS)

.PHONY: bench
bench: fixtures ## speed and memory as ratios in one run
	@build/release/shardline bench step build/models/smollm2

.PHONY: bench-serve
bench-serve: fixtures ## the engine alone, many streams over two workers, then over paced stages
	@build/release/shardline bench engine
	@build/release/shardline bench serve build/models/smollm2 --local-workers 2
	@build/release/shardline bench serve build/fixtures/tiny/llama-int8 --threads 1 \
	    --pace 20ms,22ms,20ms+0.5ms/row --streams 1,3,24

.PHONY: bench-peers
bench-peers: fixtures ## many streams against GenAI and llama.cpp; the first run builds the latter
	@scripts/bench_peers

.PHONY: bench-load
bench-load: fixtures ## a public load generator (aiperf) against the server
	@scripts/bench_load

.PHONY: release
release: bootstrap ## build/release/shardline
	@scripts/build release

.PHONY: dev
dev: bootstrap ## the same with debug information, and all tests
	@scripts/build dev

.PHONY: asan
asan: fixtures ## fast tests under the address and undefined behaviour sanitizers
	@scripts/build asan
	@$(TEST_ENV) ctest --preset asan

.PHONY: tsan
tsan: fixtures ## tests of the threaded rooms under the thread sanitizer
	@scripts/build tsan $(TSAN_TESTS)
	@$(TEST_ENV) ctest --preset tsan

.PHONY: fuzz
fuzz: bootstrap ## each fuzz target for FUZZ_SECONDS (60)
	@scripts/build fuzz
	@scripts/run_fuzzers $(FUZZ_SECONDS)

.PHONY: lint
lint: bootstrap ## formatting, clang-tidy, ruff, the tidy test
	@scripts/lint

.PHONY: format
format: bootstrap ## lay out every source file
	@scripts/format

.PHONY: bootstrap
bootstrap: ## install what is missing on this machine
	@scripts/bootstrap

.PHONY: fixtures
fixtures: release
	@scripts/fixtures

.PHONY: clean
clean: ## remove what was built; keep the Python environment and the models
	@for directory in asan dev fixtures fuzz lint release tsan; do rm -rf "build/$$directory"; done
