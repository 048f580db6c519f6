# make demo      set up what is missing, build what this needs (minutes, once), attach two namespaces to a network, ping, tear down
# make check     the quick loop: format, clippy, unit tests, one real attachment
# make test      what each change waits for: see tests/README.md
# make test-all  emulated machines, other runtimes, a plugin in C
# make test-long campaigns, before a release: random sequences and kills, every fault (some hours)
# make fuzz      random sequences of host calls against an oracle, for an hour (POSTERN_FUZZ_SECONDS, _RUNS, _SEED); then list
#                files and caches of results, each for a tenth of that time
# make faults    every operation, system call and instant of every plugin goes wrong, one after the other (some hours)
# make kills     random SIGKILLs while many containers come and go (POSTERN_KILLS=5000, POSTERN_KILL_SEED)
# make bench     times, memory and sizes beside the native plugins, in one run (RUNS=50); tests/bench draw puts them into the pages
# make build     target/cni/bin, a CNI bin directory ready for use, and target/release/postern
# make install   what is built, as root: DESTDIR=, PREFIX=/usr/local, CNI_BIN=/opt/cni/bin
# make uninstall takes all of that away again; with CNI_BIN= only the plugins' files of that directory, if others have some too

PREFIX  ?= /usr/local
# Whoever names a directory for `make uninstall` wants nothing taken from another.
ONLY_BIN := $(CNI_BIN)
CNI_BIN ?= /opt/cni/bin
DESTDIR ?=
RUNS    ?= 50

# The one list of the plugins that come with Postern: whatever has a policy in guests/.
ALL     := $(patsubst guests/%/policy.toml,%,$(sort $(wildcard guests/*/policy.toml)))
GUESTS  := $(ALL)
# Their packages; each has a program `postern-PLUGIN`.
PACKAGES := $(foreach guest,$(ALL),$(shell sed -n 's/^name = "\(.*\)"/\1/p;T;q' guests/$(guest)/Cargo.toml))
# What runtimes start, the DHCP service, and what runs components that import all of WASI. No compiler is in them.
PROGRAMS := postern postern-dhcpd postern-wasi
HOST     = $(shell rustc -vV | sed -n 's/^host: //p')
# What runtimes start is linked with musl: it starts sooner. Where Rust has no musl target, it is linked with this machine's C library.
RUN     ?= $(shell tests/run-target)
BIN     := target/cni/bin
LIB      = $(DESTDIR)$(PREFIX)/lib/postern

# Whatever others can write is not trusted (docs/design/places.md).
SHELL := /bin/sh
.SHELLFLAGS := -ec 'umask 022; eval "$$1"' sh

.PHONY: demo build setup parts part-run part-wasi part-guests part-admin part-tests part-test-guests part-fetched bin check test test-all test-long fuzz faults kills lint bench install uninstall clean

# The demo runs two plugins and no service: only that is built for it. `make build` then builds the rest.
DEMO := PROGRAMS=postern GUESTS="bridge host-local"

demo:
	@echo "==> 1 of 4: look for what is missing here"
	@tests/setup build
	@echo "==> 2 of 4: build postern, two plugins and their compiler (5 minutes on two cores if nothing is built yet)"
	@$(PARTS) $(DEMO)
	@echo "==> 3 of 4: compile the plugins for this machine (seconds)"
	@$(MAKE) --no-print-directory bin $(DEMO)
	@echo "==> 4 of 4: connect two containers (seconds)"
	@tests/demo

build:
	@echo "==> 1 of 3: look for what is missing here"
	@tests/setup build
	@echo "==> 2 of 3: build the programs, all plugins and their compiler (8 minutes on two cores if nothing is built yet)"
	@$(PARTS)
	@echo "==> 3 of 3: compile the plugins for this machine (10 seconds)"
	@$(MAKE) --no-print-directory bin
	@echo "==> $(BIN) is ready"

setup:
	@tests/setup build

# The parts are built side by side, one more at a time than there are processors: the last step of each keeps one processor busy for
# a minute, and what is fetched waits for the network. `+` lets make and all calls of cargo share the processors. A bar of progress
# for each call would not be readable.
PARTS = CARGO_TERM_PROGRESS_WHEN=never $(MAKE) --no-print-directory -j$(shell echo $$(($$(nproc) + 1))) parts

# Every call names the same packages for demo and build, for cargo gives a crate the features that any of them wants. With
# `--bin` only a part of them is built, and nothing is built twice.
parts: part-run part-guests part-admin $(if $(filter postern-wasi,$(PROGRAMS)),part-wasi)

part-run:
	+@cargo build --release --target $(RUN) -p postern -p postern-dhcp-service $(patsubst %,--bin %,$(filter-out postern-wasi,$(PROGRAMS)))
	@echo "--> built: $(filter-out postern-wasi,$(PROGRAMS))"

# Behind it, since cargo lets only one call use a directory.
part-wasi: part-run
	+@cargo build --release --target $(RUN) -p postern-wasi
	@echo "--> built: postern-wasi"

# cargo ignores the flags of a file if the environment has some.
part-guests:
	+@env -u RUSTFLAGS -u CARGO_ENCODED_RUSTFLAGS cargo build --config guests/link.toml --profile guest --target wasm32-wasip2 \
		$(PACKAGES:%=-p %) $(GUESTS:%=--bin postern-%)
	@echo "--> built: the plugins, as WASI components"

part-admin:
	+@cargo build --profile admin -p postern-admin
	@echo "--> built: postern-admin, which compiles plugins"

part-tests:
	+@bash -euc '. tests/lib/programs.sh; build_tests'
	@echo "--> built: the tests"

part-test-guests: part-guests
	+@tests/setup guests
	@echo "--> built: the guests of the tests"

part-fetched:
	+@tests/setup fetch
	@echo "--> fetched: native plugins and packages"

# Places what is built.
bin:
	@mkdir -p $(BIN) target/release
	@for program in $(PROGRAMS:%=$(RUN)/release/%) $(HOST)/admin/postern-admin; do \
		install -m 755 target/$$program $(BIN)/; \
		ln -sf ../cni/bin/$${program##*/} target/release/$${program##*/}; \
	done
	@for guest in $(GUESTS); do \
		case "$(CURDIR)" in \
			*[[:space:]]*) ln -sf postern $(BIN)/$$guest; file= ;; \
			*) file="--bin $(BIN)" ;; \
		esac; \
		$(BIN)/postern add target/wasm32-wasip2/guest/postern-$$guest.wasm --name $$guest \
			--policy guests/$$guest/policy.toml --catalog $(BIN)/postern.d --shipped $$file; \
	done

# Only what the demo runs is built, and no test program of tests/tests is linked: `make test` does both.
check:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --features postern-tests/measure --quiet -- -D warnings
	@tests/setup build
	@$(PARTS) $(DEMO)
	@$(MAKE) --no-print-directory bin $(DEMO)
	@tests/check

test test-all test-long:
	@echo "==> 1 of 4: look for what is missing here"
	@tests/setup build
	@echo "==> 2 of 4: build what the demo lacks, and the tests; fetch native plugins (4 minutes on two cores after the demo)"
	@$(PARTS) part-tests part-test-guests part-fetched
	@echo "==> 3 of 4: compile the plugins for this machine (10 seconds)"
	@$(MAKE) --no-print-directory bin
	@tests/setup test
	@echo "==> 4 of 4: tests/suite $@"
	@tests/suite $@

fuzz: build
	@tests/setup test
	POSTERN_FUZZ_SECONDS=$${POSTERN_FUZZ_SECONDS:-3600} \
		cargo test --quiet --package postern-tests --test security -- --nocapture attack::sequences
	POSTERN_FUZZ_SECONDS=$$(($${POSTERN_FUZZ_SECONDS:-3600} / 10)) \
		cargo test --quiet --package postern-tests --test commands -- --nocapture net_files::

faults: build
	@tests/setup test
	POSTERN_FAULTS=all cargo test --quiet --package postern-tests --test campaigns -- --nocapture faults:: disk::

kills: build
	@tests/setup test
	POSTERN_KILLS=$${POSTERN_KILLS:-5000} cargo test --quiet --package postern-tests --test campaigns -- --nocapture kills::

lint:
	cargo fmt --all --check
	cargo xtask surface --check
	cargo clippy --workspace --all-targets --features postern-tests/measure -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --quiet --workspace --no-deps
	@if command -v cargo-deny >/dev/null; then cargo deny check licenses bans sources; \
		if cargo deny fetch db 2>/dev/null; then cargo deny check advisories; \
		else echo "SKIPPED: advisories: their database can't be fetched here"; fi; \
	else echo "SKIPPED: cargo-deny is not installed (cargo install cargo-deny)"; fi

bench: build
	@tests/setup test
	@tests/bench --runs $(RUNS)

# What is built is installed: root needs neither cargo nor rustc for it, and owns what is placed. `make demo` builds a part of
# it, and leaves postern-wasi as the last `make build` left it.
WHOLE   := $(addprefix $(BIN)/,$(PROGRAMS) postern-admin $(GUESTS))
install: $(if $(filter-out $(wildcard $(WHOLE)),$(WHOLE)),build)
	@$(BIN)/postern-admin install --from $(BIN) --destdir "$(DESTDIR)" --prefix "$(PREFIX)" --cni-bin "$(CNI_BIN)" $(GUESTS)
	@newer=$$(find Cargo.lock wit host guests guest-sdk -newer $(BIN)/postern-wasi -type f | sed -n 1p); \
	if [ -n "$$newer" ]; then echo "note: $$newer is newer than the build that was installed; \`make build\` brings it up to date" >&2; fi

uninstall:
	@admin=$(LIB)/postern-admin; \
	if [ -x $(BIN)/postern-admin ]; then admin=$(BIN)/postern-admin; fi; \
	if [ ! -x "$$admin" ]; then echo "there is no postern-admin in $(BIN) or $(LIB): make build" >&2; exit 1; fi; \
	"$$admin" uninstall --yes --destdir "$(DESTDIR)" --prefix "$(PREFIX)" $(if $(ONLY_BIN),--cni-bin "$(CNI_BIN)")

clean:
	cargo clean
