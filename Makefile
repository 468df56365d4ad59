# Tidemark. `make run` starts the demo, `make test` runs the tests; both fetch what they need.

GO      ?= go
BIN     := bin
VERSION ?= $(shell git describe --always --dirty 2>/dev/null || echo unknown)
BUILD   := $(GO) build -ldflags '-s -w -X tidemark/internal/process.Version=$(VERSION)'
# Nothing here needs cgo: the binaries are static, run on any Linux and in an empty container, and share what is compiled
# with the tests.
export CGO_ENABLED := 0

.PHONY: build run test readers test-e2e lint chaos test-etcd test-s3 test-web screenshots test-deploy demo-compose check sim sim-mutants specs fuzz bench bench-scale clean help

help: ## Show these targets
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  %-12s %s\n",$$1,$$2}' $(MAKEFILE_LIST)

build: ## Build bin/tidemark, bin/tidemark-master and bin/tidemark-executor
	@mkdir -p $(BIN)
	$(BUILD) -o $(BIN)/tidemark ./cmd/tidemark
	$(BUILD) -o $(BIN)/tidemark-master ./cmd/master
	$(BUILD) -o $(BIN)/tidemark-executor ./cmd/executor

$(BIN)/etcd: go.mod # etcd itself, of the version in go.mod
	@mkdir -p $(BIN)
	$(GO) build -ldflags '-s -w' -o $(BIN)/etcd go.etcd.io/etcd/server/v3

run: build ## Start everything in one process tree with a live demo (stop with ctrl-c)
	$(BIN)/tidemark dev --demo

test: ## Run the tests
	$(GO) test ./...

readers: .venv/ready ## Install delta-rs and DuckDB, the independent readers of the end-to-end suite, into .venv

.venv/ready: test/e2e/requirements.txt
	python3 -m venv .venv
	.venv/bin/pip install --quiet --disable-pip-version-check -r test/e2e/requirements.txt
	@touch $@

test-e2e: build readers ## Run the slower suite: real processes, kills, real input, independent readers
	TIDEMARK_E2E=1 TIDEMARK_S3_TESTS=1 $(GO) test -count=1 -timeout 40m -v ./test/e2e/...
	TIDEMARK_E2E=1 $(GO) test -count=1 -timeout 10m -v -run TwoGiB ./internal/merge

test-web: build ## Run what looks at the page in headless Chromium: every page, width and action (2 min; part of test-e2e)
	TIDEMARK_E2E=1 $(GO) test -count=1 -timeout 15m -v -run TestPage ./test/e2e

screenshots: build ## Draw the pictures of the page in docs/img anew
	TIDEMARK_E2E=1 TIDEMARK_PICTURES=$(CURDIR)/docs/img $(GO) test -count=1 -timeout 15m -run TestPagePictures ./test/e2e

test-etcd: ## Run the fleet, and claims alone, over three real etcd processes: kills, cuts, delays, no space, a wipe (4 min)
	TIDEMARK_TEST_ETCD=1 $(GO) test -count=1 -timeout 15m -v ./test/etcd/

test-s3: ## Run what needs a real S3 server: contract, races, faults, fences, requests (versitygw, fetched; 1 min)
	TIDEMARK_S3_TESTS=1 $(GO) test -count=1 -timeout 15m ./internal/objstore/...
	TIDEMARK_S3_TESTS=1 $(GO) test -count=1 -timeout 15m -v -run S3 ./internal/master ./internal/merge

lint: ## gofmt, vet, staticcheck
	@unformatted=$$(gofmt -l $$(git ls-files '*.go')); if [ -n "$$unformatted" ]; then echo "not gofmt'd:"; echo "$$unformatted"; exit 1; fi
	$(GO) vet ./...
	$(GO) tool staticcheck ./...

check: lint test ## gofmt, vet, staticcheck and the tests

chaos: build readers ## Run the chaos rig for 15 minutes (TIDEMARK_CHAOS changes that): kills, stops, cuts, a full etcd
	TIDEMARK_E2E=1 TIDEMARK_S3_TESTS=1 TIDEMARK_CHAOS=$${TIDEMARK_CHAOS:-15m} $(GO) test -count=1 -timeout 60m -v -run Chaos ./test/e2e

test-deploy: build $(BIN)/etcd readers ## Run the commands of docker-compose.yml and of the docs as plain processes (1 min)
	TIDEMARK_DEPLOY_TESTS=1 TIDEMARK_S3_TESTS=1 $(GO) test -count=1 -timeout 15m -v ./test/deploy

demo-compose: build $(BIN)/etcd ## Start a whole deployment in containers, load the demo through it, and verify it
	docker compose up --build --detach --wait
	docker compose run --rm cli demo

sim: ## Run SEEDS histories of the simulated system from seed FROM on (500 from 1), or replay one: SEED=n
	TIDEMARK_SIM_SEED=$(SEED) TIDEMARK_SIM_SEEDS=$(or $(SEEDS),500) TIDEMARK_SIM_FROM=$(or $(FROM),1) \
		$(GO) test -count=1 -timeout 0 -v -run '$(if $(SEED),TestOneSeed,TestEveryHistoryKeepsTheInvariants)' ./test/sim

sim-mutants: ## Print the first seed, of SEEDS (2000), that catches each deliberate bug (docs/correctness.md)
	TIDEMARK_SIM_MUTANT_SEEDS=$(or $(SEEDS),2000) $(GO) test -count=1 -timeout 0 -run TestMutants ./test/sim

specs: ## Check the models of specs/ with spin: every verdict of specs/expectations (3 min)
	specs/check

fuzz: ## Fuzz every parser of outside bytes, each for FUZZTIME (30s), FUZZJOBS (1) at a time
	FUZZTIME=$(or $(FUZZTIME),30s) FUZZJOBS=$(or $(FUZZJOBS),1) test/fuzz/run

bench: build readers ## Measure merges: speed as ratios to DuckDB, delta-rs and plain copies, and memory (CASES=pack-wide,small for some)
	$(GO) run ./bench --only "$(CASES)"

bench-scale: ## Measure coordination at 13,400 tables and 27,000 shards, each figure beside its goal (about 6 min)
	$(GO) run ./bench/scale

clean: ## Remove what the targets above made
	rm -rf $(BIN) .cache .venv
