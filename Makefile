# make demo      set up missing tools, build what the demo runs (minutes, once), attach two namespaces to a network, ping, tear down
# make check     the quick loop: format, clippy, unit tests, one real attachment
# make test      the tests of each change: see tests/README.md
# make test-all  emulated machines, other runtimes, a plugin in C
# make test-long campaigns, before a release: random sequences and kills, every fault (some hours)
# make fuzz      random sequences of host calls against an oracle, for an hour (POSTERN_FUZZ_SECONDS, _RUNS, _SEED); then files
#                of lists and caches of results, each for a tenth of that time
# make faults    a fault in every operation and system call, and at every instant, of every plugin (some hours)
# make kills     random SIGKILLs while many containers come and go (POSTERN_KILLS=5000, POSTERN_KILL_SEED)
# make bench     times, memory and sizes beside the native plugins, in one run (RUNS=50); tests/bench draw puts them into the pages
# make build     target/cni/bin, a CNI bin directory ready for use, and target/release/postern
# make install   install the built files, as root: DESTDIR=, PREFIX=/usr/local, CNI_BIN=/opt/cni/bin
# make dist      archives and packages of a release, in target/dist/ARCH: ARCH=x86_64 or aarch64 (default: this machine's)
# make dist-check  make dist, a second build in another place, and a comparison of all bytes (test-long)
# make release   VERSION=X.Y.Z KEY=FILE: all tests, archives and packages, signed checksums, changelog and tag (packages/release says more)
# make uninstall remove all installed files; with CNI_BIN= only this directory's plugins

# `postern --version` says the commit. An archive of the sources has no git: whoever builds it names the commit.
POSTERN_COMMIT ?= $(shell git --git-dir=.git rev-parse HEAD 2>/dev/null)
export POSTERN_COMMIT := $(POSTERN_COMMIT)

PREFIX  ?= /usr/local
# If the caller of `make uninstall` names a directory, no other directory loses plugins.
ONLY_BIN := $(CNI_BIN)
CNI_BIN ?= /opt/cni/bin
DESTDIR ?=
RUNS    ?= 50
ARCH    ?= $(shell uname -m)

# The only list of Postern's plugins: each directory of guests/ with a policy.
ALL     := $(patsubst guests/%/policy.toml,%,$(sort $(wildcard guests/*/policy.toml)))
GUESTS  := $(ALL)
# The plugins' packages; each has a program `postern-PLUGIN`.
PACKAGES := $(foreach guest,$(ALL),$(shell sed -n 's/^name = "\(.*\)"/\1/p;T;q' guests/$(guest)/Cargo.toml))
# The host executable, the DHCP service, and the sandbox of components that import all of WASI. These programs have no compiler.
PROGRAMS := postern postern-dhcpd postern-wasi
HOST     = $(shell rustc -vV | sed -n 's/^host: //p')
# These programs are linked with musl, so that they start sooner. If Rust has no musl target, this machine's C library is linked.
RUN     ?= $(shell tests/run-target)
BIN     := target/cni/bin
LIB      = $(DESTDIR)$(PREFIX)/lib/postern

# Postern does not trust files that other users can write (docs/design/places.md).
SHELL := /bin/sh
.SHELLFLAGS := -ec 'umask 022; eval "$$1"' sh

.PHONY: demo build here setup parts part-run part-wasi part-guests part-admin part-tests part-test-guests part-fetched bin check test test-all test-long fuzz faults kills lint bench install uninstall dist dist-check release clean

# The demo runs two plugins and no service, so only these are built for it. `make build` then builds the rest.
DEMO := PROGRAMS=postern GUESTS="bridge host-local"

demo:
	@echo "==> 1 of 4: look for missing tools"
	@tests/setup build
	@echo "==> 2 of 4: build postern, two plugins and their compiler (5 minutes on two cores if nothing is built yet)"
	@$(PARTS) $(DEMO)
	@echo "==> 3 of 4: compile the plugins for this machine (seconds)"
	@$(MAKE) --no-print-directory bin $(DEMO)
	@echo "==> 4 of 4: connect two containers (seconds)"
	@tests/demo

build:
	@echo "==> 1 of 3: look for missing tools"
	@tests/setup build
	@echo "==> 2 of 3: build the programs, all plugins and their compiler (8 minutes on two cores if nothing is built yet)"
	@$(PARTS)
	@echo "==> 3 of 3: compile the plugins for this machine (10 seconds)"
	@$(MAKE) --no-print-directory bin
	@echo "==> $(BIN) is ready"

setup:
	@tests/setup build

# The parts are built at the same time, one more than there are processors. The last step of each part keeps one processor busy for
# a minute, and downloads wait for the network. `+` lets make and all calls of cargo share the processors. Progress bars of several
# calls at once would not be readable.
PARTS = CARGO_TERM_PROGRESS_WHEN=never $(MAKE) --no-print-directory -j$(shell echo $$(($$(nproc) + 1))) parts

# Demo and build name the same packages in every call, because cargo gives a crate the features that any named package wants.
# `--bin` then selects the programs. So nothing is built twice.
parts: part-run part-guests part-admin $(if $(filter postern-wasi,$(PROGRAMS)),part-wasi)

part-run:
	+@cargo build --release --target $(RUN) -p postern -p postern-dhcp-service $(patsubst %,--bin %,$(filter-out postern-wasi,$(PROGRAMS)))
	@echo "--> built: $(filter-out postern-wasi,$(PROGRAMS))"

# This machine compiles the plugins, and starts what it builds. An x86_64 postern-admin beside an arm64 host would fit neither machine.
part-run part-wasi part-guests part-admin part-tests bin: | here
here:
	@case "$(RUN)" in "$(firstword $(subst -, ,$(HOST)))"-*) ;; *) \
		echo "RUN=$(RUN) is for another architecture than this machine ($(HOST)): make dist ARCH=$(firstword $(subst -, ,$(RUN))) builds for other nodes" >&2; \
		exit 1 ;; esac

# This part waits for part-run, because cargo lets only one call use a build directory.
part-wasi: part-run
	+@cargo build --release --target $(RUN) -p postern-wasi
	@echo "--> built: postern-wasi"

# If the environment has flags or a wrapper, cargo ignores those of a configuration file.
part-guests:
	+@env -u RUSTFLAGS -u CARGO_ENCODED_RUSTFLAGS -u RUSTC_WRAPPER -u CARGO_BUILD_RUSTC_WRAPPER cargo build --config guests/link.toml --profile guest --target wasm32-wasip2 \
		$(PACKAGES:%=-p %) $(GUESTS:%=--bin postern-%)
	@echo "--> built: the plugins, as WASI components"

part-admin:
	+@cargo build --profile admin --target $(HOST) -p postern-admin
	+@cargo build --profile admin --target $(HOST) -p postern-compiler
	@echo "--> built: postern-admin, which people call, and postern-compiler"

part-tests:
	+@bash -euc '. tests/lib/programs.sh; build_tests'
	@echo "--> built: the tests"

part-test-guests: part-guests
	+@tests/setup guests
	@echo "--> built: the guests of the tests"

part-fetched:
	+@tests/setup fetch
	@echo "--> fetched: native plugins and packages"

# Puts the built files into $(BIN).
bin:
	@mkdir -p $(BIN) target/release
	@for program in $(PROGRAMS:%=$(RUN)/release/%) $(HOST)/admin/postern-admin $(HOST)/admin/postern-compiler; do \
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

# Builds only the demo's programs, and links no test program of tests/tests. `make test` builds and links everything.
check:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --features postern-tests/measure --quiet -- -D warnings
	@tests/setup build
	@$(PARTS) $(DEMO)
	@$(MAKE) --no-print-directory bin $(DEMO)
	@tests/check

test test-all test-long:
	@echo "==> 1 of 4: look for missing tools"
	@tests/setup build
	@echo "==> 2 of 4: build the other programs and the tests; fetch native plugins (6 minutes on two cores after the demo)"
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

# Installs the built files: root needs neither cargo nor rustc, and owns the installed files. `make demo` builds only a part of
# these files, and does not change postern-wasi.
WHOLE   := $(addprefix $(BIN)/,$(PROGRAMS) postern-admin postern-compiler $(GUESTS))
install: $(if $(filter-out $(wildcard $(WHOLE)),$(WHOLE)),build)
	@$(BIN)/postern-admin install --from $(BIN) --destdir "$(DESTDIR)" --prefix "$(PREFIX)" --bin-dir "$(CNI_BIN)" $(GUESTS)
	@newer=$$(find Cargo.lock wit host guests guest-sdk -newer $(BIN)/postern-wasi -type f | sed -n 1p); \
	if [ -n "$$newer" ]; then echo "note: $$newer is newer than the installed build; \`make build\` updates the build" >&2; fi

uninstall:
	@admin=$(LIB)/postern-admin; \
	if [ -x $(BIN)/postern-admin ]; then admin=$(BIN)/postern-admin; fi; \
	if [ ! -x "$$admin" ]; then echo "there is no postern-admin in $(BIN) or $(LIB): make build" >&2; exit 1; fi; \
	"$$admin" uninstall --yes --destdir "$(DESTDIR)" --prefix "$(PREFIX)" $(if $(ONLY_BIN),--bin-dir "$(CNI_BIN)")

# Every artefact is made of one staging tree.
ARTEFACTS := archive deb rpm image sysext
dist:
	@tests/install-packages dist
	@packages/programs $(ARCH)
	@packages/stage $(ARCH)
	@for artefact in $(ARTEFACTS); do packages/$$artefact $(ARCH); done
	@packages/checksums $(ARCH)

dist-check: dist
	@packages/rebuild $(ARCH)

release:
	@packages/release "$(VERSION)" "$(KEY)" $(if $(DRY_RUN),--dry-run)

clean:
	cargo clean
