# Sluice. Needs Python 3.11 or later with venv, and a package index.
#   make run     everything, with a demo cluster (DEMO=0 leaves the demo out)
#   make test    the whole suite, on SQLite and on PostgreSQL
#   make check   format, lint, types, import contracts, migrations, translations
#   make bench   the data plane against its peers, as ratios
#   make lock    resolve the two lock files anew

PYTHON ?= python3
DEMO ?= 1
BIN := .venv/bin
UV := $(BIN)/uv
# Byte code is compiled while installing, so that the first start is fast too.
SYNC := $(UV) pip sync --quiet --require-hashes --compile-bytecode

.PHONY: run test check bench lock messages

run: .venv/.runtime
	@exec $(BIN)/python manage.py up $(if $(filter 0,$(DEMO)),--no-demo)

test: .venv/.dev
	$(BIN)/python -m tests

check: .venv/.dev
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy .
	$(BIN)/lint-imports
	$(BIN)/python manage.py makemigrations --check --dry-run
	$(BIN)/python manage.py check --fail-level WARNING
	$(BIN)/python manage.py check_messages

bench: .venv/.dev
	$(BIN)/python -m tests.bench

messages: .venv/.dev
	$(BIN)/python manage.py makemessages --all --no-obsolete --no-wrap --no-location --ignore=.venv --ignore=var --ignore=tests
	$(BIN)/python manage.py compilemessages --ignore=.venv --ignore=var --ignore=tests

LOCK := $(UV) pip compile --quiet --universal --generate-hashes --custom-compile-command "make lock"

lock: $(UV)
	$(LOCK) pyproject.toml -o requirements.lock
	$(LOCK) pyproject.toml --group dev -c requirements.lock -o requirements-dev.lock

$(UV):
	$(PYTHON) -m venv .venv
	$(BIN)/pip install --quiet --disable-pip-version-check "uv==$$(sed -n 's/^uv==\([^ ]*\).*/\1/p' requirements.lock)"

.venv/.runtime: requirements.lock requirements-dev.lock | $(UV)
	@if test -e .venv/.dev; then $(SYNC) requirements-dev.lock; else $(SYNC) requirements.lock; fi
	@touch $@

.venv/.dev: requirements-dev.lock | $(UV)
	@$(SYNC) requirements-dev.lock
	@touch .venv/.runtime $@
