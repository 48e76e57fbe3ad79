# The two commands of the README, each with its complete set-up, and further commands for developers.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
READY_WITH_SPARK := $(VENV)/.ready-with-spark
SITE := build/website/site
SITE_BIN := $(VENV)-site/bin
READY_FOR_SITE := $(VENV)-site/.ready
READY_FOR_LOOK := website/look/node_modules/.ready
# Rooms that start almost nothing: their tests work in memory, or on one Redis.
QUICK_ROOMS := checkers clients docs environment house ledger observe report website
# Tests mostly wait for what they have started.
TEST_PROCESSES = $$((3 * $$(getconf _NPROCESSORS_ONLN)))
TIER ?= full
SAMPLE ?= 20
SEED ?= 0
BASE_IMAGE := bullmq-conformance/base:debian
BUGS ?= --all
RUN_TESTS = $(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist loadgroup
FULL_RUN = $(BIN)/bullmq-conformance run --tier $(TIER) $(if $(JOBS),--jobs $(JOBS))

# A run and the tests start hundreds of Python processes: they must not compile the kit each time.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: run test test-files test-slow test-all quick full full-reference full-node full-reference-cluster full-node-cluster full-node-without-clock oracles chaos images hunt check bugs mutants steady telemetry coverage generate vectors site site-look ten-minutes lock clean

run: $(READY) ## check the reference client against real Node.js BullMQ 5.62.0
	$(BIN)/bullmq-conformance run --client reference

test: $(READY_WITH_SPARK) ## in five minutes: the tests that find most for their time, and the smoke tier on the reference client
	$(RUN_TESTS) --slow-share 0 --tier smoke $(TESTS) tests conformance

test-files: $(READY_WITH_SPARK)
	$(RUN_TESTS) $(TESTS)

test-slow: $(READY_WITH_SPARK) ## the tests that `make test` leaves out (SLOW='--slow-share 0.1' for some of them)
	$(RUN_TESTS) -m slow $(SLOW) tests

test-all: check run test ## everything, in hours
	$(BIN)/python -m tests.parts

quick: $(READY_WITH_SPARK) ## in a minute: the tests that start little, and the smoke tier on the reference client
	$(BIN)/python -m pytest -q -n auto --dist loadgroup $(addprefix tests/,$(QUICK_ROOMS))
	$(BIN)/bullmq-conformance run --client reference --tier smoke

full: full-reference full-node full-node-without-clock full-reference-cluster full-node-cluster ## every scenario on the reference and on Node, on a single Redis and on a cluster (with -j2: two at a time)

full-reference full-node: full-%: $(READY)
	$(FULL_RUN) --client $*

full-reference-cluster full-node-cluster: full-%-cluster: $(READY)
	$(FULL_RUN) --client $* --redis cluster:3

full-node-without-clock: $(READY) ## Node as a client whose time cannot be set, like most clients
	$(FULL_RUN) -- $(abspath $(BIN)/python) -m tests.gate.clockless_node

oracles: $(addprefix oracle-,5.81.5 6.7.0) ## every scenario with each newer oracle that is supported, on itself

oracle-%: $(READY)
	$(FULL_RUN) --oracle $* --client node@$*

chaos: $(READY_WITH_SPARK) ## every fault, crash point and broken client, on local processes and in containers
	$(BIN)/python -m pytest chaos $(CHAOS)

images: $(READY_WITH_SPARK) ## build the images of the container mode of chaos from Debian's packages (root, Docker)
	docker image inspect $(BASE_IMAGE) >/dev/null 2>&1 || chaos/images/build-base.sh $(BASE_IMAGE)
	$(BIN)/python -m chaos.images.build --base $(BASE_IMAGE)

hunt: $(READY_WITH_SPARK) ## every client that chaos is known to find, hunted with the command of a user; NAMES='close.hangs' for some of them
	$(BIN)/python -m chaos.mutants.hunt $(NAMES)

check: $(READY_WITH_SPARK) ## formatting, lint, types, import arrows, one thing per class name, loops that end, dead code
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/python -m tests.house.class_names
	$(BIN)/python -m tests.house.bounded_loops
	$(BIN)/python -m tests.house.plain_english
	$(BIN)/python -m tests.house.foreign_output
	$(BIN)/python -m tests.house.weight
	$(BIN)/vulture

# CI draws its seed from the commit, so that no scenario is written for its mutants.
mutants: $(READY) ## generated broken clients (SAMPLE=20 SEED=0), in tier core: fails if the detection rate is significantly below 85 %
	$(BIN)/bullmq-conformance mutants --tier core --sample $(SAMPLE) --seed $(SEED) --cases 80 --at-least 85 --significant

steady: $(READY) ## the full tier on Node and the reference, with suspended drivers and on busy cores: no client is blamed
	$(BIN)/python -m tests.steady

telemetry: $(READY) ## traces cross between Node with bullmq-otel (from npm) and the reference, both ways; WRITE=1 records Node again
	$(BIN)/python -m tests.reference_impl.telemetry $(if $(WRITE),--write)

coverage: $(READY) ## lines and branches of the reference client that its tests and the scenarios reach
	rm -f .coverage*
	$(BIN)/coverage run -m pytest -q tests/reference_impl
	$(BIN)/coverage run -m conformance run --client reference --tier full --jobs 1
	$(BIN)/coverage combine -q
	$(BIN)/coverage report

generate: $(READY) ## write the files that are made from the code (their tests say when)
	$(BIN)/python -m conformance.driver.schema --write
	$(BIN)/python -m conformance.report.json_summary > conformance/report/schema/summary.schema.json.new
	mv conformance/report/schema/summary.schema.json.new conformance/report/schema/summary.schema.json
	$(BIN)/python -m conformance.report.matrix > conformance/report/schema/matrix.schema.json.new
	mv conformance/report/schema/matrix.schema.json.new conformance/report/schema/matrix.schema.json
	$(BIN)/python -m conformance.report.mixed docs/reference/versions/mixed/*.json
	$(BIN)/python -m tests.report.recorded --write
	$(BIN)/python -m conformance.cli.option_tables
	$(BIN)/bullmq-conformance bugs page docs/reference/bugs.md
	$(BIN)/bullmq-conformance ledger page > docs/reference/requirements.md.new
	mv docs/reference/requirements.md.new docs/reference/requirements.md
	$(BIN)/python -m conformance.mutants.generated.record docs/reference/kill-matrix.json > docs/reference/kill-matrix.md.new
	mv docs/reference/kill-matrix.md.new docs/reference/kill-matrix.md

bugs: $(READY) ## prove with their releases all real bugs that the kit catches (BUGS='--sample 8' for some of them)
	$(BIN)/bullmq-conformance bugs prove $(BUGS)

vectors: $(READY) ## record the test vectors of the oracle again (Node and a separate Redis; a minute)
	$(BIN)/python -m tests.vectors.writing --write

# --strict is in mkdocs.yml: a link or an anchor that leads nowhere is an error, here and in the last line.
site: $(READY_WITH_SPARK) $(READY_FOR_SITE) ## the documentation as a site, in build/website/site
	$(BIN)/python -m website.assembly build/website/pages
	$(BIN)/python -m website.report_pictures build/website/pages
	NO_MKDOCS_2_WARNING=1 $(SITE_BIN)/mkdocs --quiet build
	$(BIN)/python -m website.sample_report $(SITE)
	$(BIN)/python -m website.built_site $(SITE)

# A browser takes some seconds for each of the hundreds of pages, longer than CI has.
site-look: $(READY_FOR_LOOK) ## check the built site in Chromium, narrow and wide, light and dark, with axe; PAGES='ci/ tap/' for some of it
	node website/look/look.mjs $(SITE) build/website/look $(PAGES)

# Debian's packages once for each client, then the packages of PyPI, npm and crates.io every time: longer than CI has.
ten-minutes: $(READY) ## follow docs/tutorial/first-gate*.md and the Go section of docs/how-to/ci.md in bare Debian containers (Docker; CLIENTS='node' for one of them)
	$(BIN)/python -m tests.packaging.ten_minutes $(CLIENTS)

lock: ## rewrite the lists of requirements (needs uv)
	uv pip compile --quiet --universal --generate-hashes --no-annotate --group dev pyproject.toml -o requirements.lock
	uv pip compile --quiet --universal --generate-hashes --no-annotate --extra spark --group spark -c requirements.lock pyproject.toml -o requirements-spark.lock
	uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-annotate website/requirements.in -o requirements-site.lock
	sed -i ':join; /\\$$/ {N; s/ *\\\n */ /; t join}' requirements.lock requirements-spark.lock requirements-site.lock # a line each

clean:
	rm -rf $(VENV) $(VENV)-site build dist *.egg-info

$(READY): pyproject.toml requirements.lock
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $(READY)

# Spark is some 400 MB, which `make run` does without.
$(READY_WITH_SPARK): $(READY) requirements-spark.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-spark.lock
	-if command -v java >/dev/null; then $(BIN)/python -m reports.prepare_spark; fi
	-$(BIN)/python -m pytest -q --collect-only tests conformance >/dev/null # compiled here once, else by each process of the tests
	touch $(READY_WITH_SPARK)

# The packages that build the site are separate from those of the kit, which needs none of them.
$(READY_FOR_SITE): requirements-site.lock
	$(PYTHON) -m venv $(VENV)-site
	$(SITE_BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-site.lock
	touch $(READY_FOR_SITE)

$(READY_FOR_LOOK): website/look/package-lock.json
	npm ci --silent --prefix website/look
	touch $(READY_FOR_LOOK)
