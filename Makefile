# The task runner. `make help` lists the tasks; CI calls the same ones.
SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

TARGET_DIR := $(abspath $(or $(CARGO_TARGET_DIR),target))
POSTRIDER  := $(TARGET_DIR)/release/postrider
# Tools that Cargo builds for us: kept in the build folder, never in the user's home.
TOOLS      := $(TARGET_DIR)/tools
CARGO_DENY := $(TOOLS)/bin/cargo-deny
CARGO_DENY_VERSION := 0.20.2
GRPC_TOOLS := $(TOOLS)/grpc
RATELIMIT_VERSION := v1.4.1-0.20260122083618-3fb702589d36
# The authority that ACME is tested with.
PEBBLE         := $(TOOLS)/bin/pebble
PEBBLE_VERSION := v2.10.1
FUZZ_SECONDS ?= 600
SOAK_SECONDS ?= 1800
SOAK_UPDATES ?= 1000

.PHONY: help run build test ratelimit soak lint fmt qq qa bench runtimes coldstart modules gates fuzz deny examples clean

help: ## list the tasks
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

run: ## build and start the proxy on examples/quickstart.yaml, in front of a demo upstream
	@.ci/need cargo cc curl
	cargo build --release --locked --package postrider
	@examples/quickstart.sh $(POSTRIDER)

build: ## build the release binary
	@.ci/need cargo cc
	cargo build --release --locked --package postrider

# The end-to-end tests drive the release binary, the very file that ships; unit tests run with overflow checks on.
test: build $(GRPC_TOOLS)/built $(PEBBLE) ## pass all tests (unit, wire, end to end, examples)
	@.ci/need curl openssl nginx wrk ab python3 nghttp h2load chromium testssl prometheus
	@.ci/autobahn $(TOOLS)/autobahn
	@.ci/envoy $(TOOLS)/envoy
	@.ci/golang $(TOOLS)/golang
	@.ci/pyvoy $(TOOLS)/pyvoy
	@.ci/wasm $(TOOLS)/wasm
	POSTRIDER_BIN=$${POSTRIDER_BIN:-$(POSTRIDER)} ENVOY_BIN=$${ENVOY_BIN:-$(TOOLS)/envoy/bin/envoy} PEBBLE=$(PEBBLE) PYVOY=$(TOOLS)/pyvoy cargo test --locked --workspace --no-fail-fast
	cargo xtask examples $${POSTRIDER_BIN:-$(POSTRIDER)}

# gRPC's own interoperability client and server, grpcurl and h2spec: see tests/grpc/README.md.
$(GRPC_TOOLS)/built: tests/grpc/go.mod tests/grpc/go.sum
	@.ci/need go
	@printf '%s\n' go1.24 "$$(go env GOVERSION)" | sort --version-sort --check=quiet || \
		{ echo "the gRPC clients of the tests need Go 1.24 or later; this is $$(go env GOVERSION)" >&2; exit 1; }
	@echo "building grpcurl, h2spec and gRPC's interoperability programs into $(GRPC_TOOLS)"
	mkdir -p $(GRPC_TOOLS)
	cd tests/grpc && go build -mod=readonly -trimpath -ldflags='-s -w' -o $(GRPC_TOOLS)/ tool
	touch $@

# What most people run behind the rate limit filter. Not part of `test`: it is built from the network, by Go.
ratelimit: build ## pass the test with the real rate limit service on Redis
	@.ci/need go redis-server
	test -x $(TOOLS)/ratelimit || { GOBIN=$(TOOLS) go install github.com/envoyproxy/ratelimit/src/service_cmd@$(RATELIMIT_VERSION) \
		&& mv $(TOOLS)/service_cmd $(TOOLS)/ratelimit; }
	POSTRIDER_BIN=$${POSTRIDER_BIN:-$(POSTRIDER)} RATELIMIT_SERVICE=$(TOOLS)/ratelimit \
		cargo test --locked -p postrider-tests --test ratelimit_service -- --ignored

# Not part of `test`: it takes as long as it is told to.
soak: build ## change plugins a thousand times in SOAK_SECONDS, then SOAK_UPDATES times in each runtime, and see that the process is as large as before
	@.ci/golang $(TOOLS)/golang
	@.ci/wasm $(TOOLS)/wasm
	POSTRIDER_BIN=$${POSTRIDER_BIN:-$(POSTRIDER)} SOAK_SECONDS=$(SOAK_SECONDS) \
		cargo test --locked -p postrider-tests --test plugin_soak -- --ignored --nocapture
	POSTRIDER_BIN=$${POSTRIDER_BIN:-$(POSTRIDER)} SOAK_UPDATES=$(SOAK_UPDATES) \
		cargo test --locked -p postrider-tests --test plugin_runtimes -- --ignored --nocapture

$(PEBBLE):
	@.ci/need go
	GOBIN=$(TOOLS)/bin GOFLAGS=-mod=mod go install github.com/letsencrypt/pebble/v2/cmd/pebble@$(PEBBLE_VERSION)

lint: deny ## formatting, clippy, dependencies and the rules of the house
	@.ci/need cargo cc
	cargo fmt --all --check
	cargo clippy --locked --workspace --all-targets -- -D warnings
	cargo xtask all

fmt: ## format the code
	cargo fmt --all

qq: ## quick check while you work: formatting, clippy, the rules that need no build
	cargo fmt --all --check
	cargo clippy --locked --workspace -- -D warnings
	@for rule in arrows words unsafe sans-io links; do cargo xtask $$rule; done

qa: lint test ## everything that a change must pass before it is proposed

# What the bench runs in plugin runtimes.
modules:
	@.ci/wasm $(TOOLS)/wasm c go rust
	@.ci/golang $(TOOLS)/golang
	@.ci/native $(TOOLS)/native

runtimes: build modules ## measure every plugin runtime side by side, Postrider beside Envoy (installs it)
	@.ci/need cargo cc
	bench/install.sh
	cargo run --locked --release --package postrider-bench -- r1 --postrider $(POSTRIDER) $(BENCH)

coldstart: build modules ## measure how long a module of WebAssembly takes until it serves
	@.ci/need cargo cc
	bench/install.sh
	cargo run --locked --release --package postrider-bench -- cold-start --postrider $(POSTRIDER) $(BENCH)

bench: build modules ## measure against the peers (installs them; see bench/README.md)
	@.ci/need cargo cc
	bench/install.sh
	cargo run --locked --release --package postrider-bench -- run --postrider $(POSTRIDER) --out bench $(BENCH)

gates: build ## the noise-free cost gates: instructions and system calls per request, what accounts of plugins cost of them
	@.ci/need valgrind strace addr2line
	cargo run --locked --package postrider-bench -- gate-instructions --postrider $(POSTRIDER)
	cargo run --locked --package postrider-bench -- gate-accounting --postrider $(POSTRIDER)
	cargo run --locked --package postrider-bench -- gate-syscalls --postrider $(POSTRIDER)

# libFuzzer's instrumentation is a stable code generation option, so no nightly toolchain and no cargo-fuzz is needed.
FUZZ_FLAGS := --cfg fuzzing -Cdebug-assertions -Cpasses=sancov-module \
	-Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
	-Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares
FUZZ_HOST = $(shell rustc -vV | sed -n 's/^host: //p')

fuzz: ## run every fuzz target for FUZZ_SECONDS (default 600) each
	@.ci/need cargo cc c++
	CARGO_TARGET_DIR=$(TARGET_DIR)/fuzz RUSTFLAGS="$(FUZZ_FLAGS)" \
		cargo build --release --manifest-path fuzz/Cargo.toml --target $(FUZZ_HOST)
	@for file in fuzz/fuzz_targets/*.rs; do \
		target=$$(basename $$file .rs); echo "== $$target, $(FUZZ_SECONDS) s"; \
		found=$(TARGET_DIR)/fuzz/found/$$target; mkdir -p $$found fuzz/corpus/$$target; \
		$(TARGET_DIR)/fuzz/$(FUZZ_HOST)/release/$$target -max_total_time=$(FUZZ_SECONDS) \
			-artifact_prefix=$$found/ $$found fuzz/corpus/$$target; \
	done

deny: $(CARGO_DENY) ## licences, duplicate versions and sources of the dependencies
	$(CARGO_DENY) check bans licenses sources

# Unoptimised: it runs for two seconds, and building it well takes minutes.
$(CARGO_DENY):
	@.ci/need cargo cc
	@echo "installing cargo-deny $(CARGO_DENY_VERSION) into $(TOOLS)"
	CARGO_PROFILE_DEV_DEBUG=0 CARGO_PROFILE_DEV_INCREMENTAL=false CARGO_TARGET_DIR=$(TOOLS)/build \
		cargo install cargo-deny --version $(CARGO_DENY_VERSION) --locked --no-default-features --profile dev --root $(TOOLS)
	rm -rf $(TOOLS)/build

examples: build ## validate and start every config of examples/ and docs/
	cargo xtask examples $(POSTRIDER)

clean: ## remove build output
	cargo clean
