GO ?= go
export CGO_ENABLED ?= 0

.PHONY: all build test unit long vet cross deps bench fuzz clean

all: build

build:
	$(GO) build -trimpath -o bin/ ./cmd/...

# Everything: what the tests need is installed first if it is missing.
test: deps vet cross unit

deps:
	@sh scripts/deps.sh

vet:
	@test -z "$$(gofmt -l $$(git ls-files '*.go'))" || { echo "gofmt would change:"; gofmt -l $$(git ls-files '*.go'); exit 1; }
	$(GO) vet ./...

# verify and what it rests on run anywhere; the recorder is Linux only.
cross:
	GOOS=js GOARCH=wasm $(GO) build ./verify ./attest ./contraband ./receipt ./scope ./scope/footprint ./submission ./disclosure ./tlog/entry ./tlog/proof
	@if command -v node >/dev/null; then \
	  GOOS=js GOARCH=wasm $(GO) test -exec="$$($(GO) env GOROOT)/lib/wasm/go_js_wasm_exec" -run 'TamperVectors|ExitCodes' ./verify; \
	else echo "cross: no node here: verify is built for js/wasm, not run"; fi
	GOOS=darwin GOARCH=arm64 $(GO) build -o /dev/null ./cmd/cleanrun
	GOOS=windows GOARCH=amd64 $(GO) build -o /dev/null ./cmd/cleanrun
	GOOS=darwin GOARCH=arm64 $(GO) test -c -o /dev/null ./surface
	GOOS=darwin GOARCH=arm64 $(GO) test -c -o /dev/null ./scope/footprint
	GOOS=windows GOARCH=amd64 $(GO) test -c -o /dev/null ./scope/footprint
	GOOS=windows GOARCH=amd64 $(GO) test -c -o /dev/null ./surface

unit:
	$(GO) test -timeout 20m ./...

# The example benchmark with all its tasks, three trials of each (in test: six tasks,
# one trial), and README's with a task in Go; a real go build of a repository and the
# standard library under it, without namespaces too (in test: of one package); a log
# that is killed in 10,000 adds (1,000), and one under ten minutes of mixed load (two
# seconds); 200,000 opens under signals (20,000); the recorder's tests a second time as
# an ordinary user and without namespaces, all of them (in test: most).
long: deps
	CLEANRUN_LONG=1 $(GO) test -timeout 60m -v -run 'TestExampleBenchmark|TestReadmeBenchmark|HonestPrograms' ./cmd/cleanrun
	CLEANRUN_LONG=1 $(GO) test -timeout 60m -v -run TestLogServe ./cmd/cleanrun
	CLEANRUN_LONG=1 $(GO) test -timeout 60m ./sandbox

# Reported ratios, never a pass or a fail.
bench:
	$(GO) run ./bench

FUZZTIME ?= 20s
fuzz:
	@for p in $$($(GO) list ./...); do \
	  for f in $$($(GO) test -list '^Fuzz' $$p | grep '^Fuzz'); do \
	    echo "$$p $$f"; $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $(FUZZTIME) $$p || exit 1; \
	  done; done

clean:
	rm -rf bin
