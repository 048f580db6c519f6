# make demo      set up what is missing, build, attach two namespaces to a network, ping, tear down
# make test      everything that can fail: see tests/README.md
# make fuzz      random sequences of host calls against an oracle, for an hour (POSTERN_FUZZ_SECONDS, _RUNS, _SEED)
# make faults    every operation, system call and instant of every plugin goes wrong, one after the other (an hour)
# make kills     random SIGKILLs while many containers come and go (POSTERN_KILLS=5000, POSTERN_KILL_SEED)
# make bench     latency beside the native plugins, in one run (RUNS=50)
# make build     target/cni/bin, a CNI bin directory ready for use, and target/release/postern
# make install   DESTDIR=, PREFIX=/usr/local, CNI_BIN=/opt/cni/bin; make uninstall takes it away again

PREFIX  ?= /usr/local
CNI_BIN ?= /opt/cni/bin
DESTDIR ?=
RUNS    ?= 50

GUESTS  := bridge host-local loopback ptp static
HOST     = $(shell rustc -vV | sed -n 's/^host: //p')
BIN     := target/cni/bin
LIB      = $(DESTDIR)$(PREFIX)/lib/postern

# Whatever others can write is not trusted (docs/design.md, "Places").
SHELL := /bin/sh
.SHELLFLAGS := -ec 'umask 022; eval "$$1"' sh

.PHONY: demo build setup test fuzz faults kills lint bench install uninstall clean

demo: build
	@tests/demo

setup:
	@tests/setup build

build: setup
	@echo "==> the executable that runtimes start (no compiler in it)"
	cargo build --release -p postern
	@echo "==> the plugins, as WASI components"
	cargo build --profile guest --target wasm32-wasip2 $(GUESTS:%=-p postern-%)
	@echo "==> postern-admin, with the compiler: what installs plugins"
	cargo build --profile admin -p postern-admin
	@mkdir -p $(BIN) target/release
	@for program in release/postern admin/postern-admin; do \
		install -m 755 target/$(HOST)/$$program $(BIN)/; \
		ln -sf ../cni/bin/$${program#*/} target/release/$${program#*/}; \
	done
	@for guest in $(GUESTS); do \
		$(BIN)/postern add target/wasm32-wasip2/guest/postern-$$guest.wasm --name $$guest \
			--policy guests/$$guest/policy.toml --catalog $(BIN)/postern.d --bin $(BIN); \
	done
	@echo "==> $(BIN) is ready"

test: build
	@tests/setup test
	@tests/all

fuzz: build
	@tests/setup test
	POSTERN_FUZZ_SECONDS=$${POSTERN_FUZZ_SECONDS:-3600} \
		cargo test --quiet --package postern-tests --test attack -- --nocapture sequences

faults: build
	@tests/setup test
	POSTERN_FAULTS=all cargo test --quiet --package postern-tests --test faults --test disk -- --nocapture

kills: build
	@tests/setup test
	POSTERN_KILLS=$${POSTERN_KILLS:-5000} cargo test --quiet --package postern-tests --test kills -- --nocapture

lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets -- -D warnings
	@if command -v cargo-deny >/dev/null; then cargo deny check licenses bans sources; \
		if cargo deny fetch db 2>/dev/null; then cargo deny check advisories; \
		else echo "SKIPPED: advisories: their database can't be fetched here"; fi; \
	else echo "SKIPPED: cargo-deny is not installed (cargo install cargo-deny)"; fi

bench: build
	@tests/setup test
	@tests/bench --runs $(RUNS)

install: build
	install -d -m 755 $(LIB) $(LIB)/postern.d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(CNI_BIN)
	install -m 755 $(BIN)/postern $(BIN)/postern-admin $(LIB)/
	install -m 644 $(BIN)/postern.d/* $(LIB)/postern.d/
	ln -sfn $(PREFIX)/lib/postern/postern $(DESTDIR)$(PREFIX)/bin/postern
	@for guest in $(GUESTS); do \
		if [ -e $(DESTDIR)$(CNI_BIN)/$$guest ] && [ ! -L $(DESTDIR)$(CNI_BIN)/$$guest ]; then \
			echo "keeping the native $$guest as $$guest.native"; \
			mv $(DESTDIR)$(CNI_BIN)/$$guest $(DESTDIR)$(CNI_BIN)/$$guest.native; \
		fi; \
		ln -sfn $(PREFIX)/lib/postern/postern $(DESTDIR)$(CNI_BIN)/$$guest; \
	done

uninstall:
	@for guest in $(GUESTS); do \
		if [ -L $(DESTDIR)$(CNI_BIN)/$$guest ]; then rm $(DESTDIR)$(CNI_BIN)/$$guest; fi; \
		if [ -e $(DESTDIR)$(CNI_BIN)/$$guest.native ]; then \
			mv $(DESTDIR)$(CNI_BIN)/$$guest.native $(DESTDIR)$(CNI_BIN)/$$guest; \
		fi; \
	done
	rm -f $(DESTDIR)$(PREFIX)/bin/postern
	rm -rf $(LIB)

clean:
	cargo clean
