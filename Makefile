# Two commands matter: `make up` runs the product, `make test` tests it. Both need only Python 3.11+.
# make up    [ARGS=--no-lab] [KVAUDIT_PORT=8000] [KVAUDIT_STATE=var] [KVAUDIT_ADMIN_PASSWORD=...]
# make test  [ARGS='tests/server/ops -k port']
# make redteam [ARGS='-v band']
# Before a change lands, also: make drill (worker clocks that are wrong, full disks, ...) and make lint.
PYTHON ?= python3
ARGS ?=
BIN := .venv/bin
export PYTHON

.PHONY: up test drill redteam lint soak bench requirements clean

up:
	@deploy/install.sh server
	@exec $(BIN)/kvaudit up --with-parent $(ARGS)

# Whatever the shell says, compiled files are kept: else each worker, and each process that a test starts, compiles all.
test drill redteam: export PYTHONDONTWRITEBYTECODE :=

# Three workers for two cores: each waits half of its time for PostgreSQL or the browser.
test:
	@deploy/install.sh dev
	@deploy/browser.sh
	@exec $(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder -m "not drill and not soak" $(ARGS)

# What goes wrong with machines: real processes whose clock is wrong, whose disk is full, and so on.
drill:
	@deploy/install.sh dev
	@deploy/browser.sh
	@deploy/faketime.sh
	@exec $(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m drill $(ARGS)

# Gateways in front of the lab, in memory: leaks and healthy oddities, each against the verdict that it has to bring
# out. `make drill` has the same cases as tests, `make test` a few of them.
redteam:
	@deploy/install.sh dev
	@exec $(BIN)/python -m tests.redteam $(ARGS)

lint:
	@deploy/install.sh dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python -m mypy
	$(BIN)/lint-imports --no-logo
	git ls-files -z 'templates/*.html' | xargs -0 $(BIN)/djade --check --target-version 5.2
	$(BIN)/python -W "ignore:Got an error checking" manage.py makemigrations --check --dry-run --settings tests.lint_settings

# The long flows: ten minutes of audits while workers, broker and database are killed, thousands of random
# lives of the lab's engine, and of states and compliance.
soak:
	@deploy/install.sh dev
	@mkdir -p bench/results
	@{ KVAUDIT_SOAK=1 $(BIN)/python -m pytest -p no:randomly -m soak tests/flows $(ARGS) \
	  && KVAUDIT_LAB_LIVES=200 $(BIN)/python -m pytest -n 2 tests/lab/test_interleavings.py \
	  && KVAUDIT_DRAW=20 $(BIN)/python -m pytest -n 2 -m hypothesis tests/server && echo "exit code 0" \
	  || echo "exit code $$?"; } | tee bench/results/soak.log
	@tail -n 1 bench/results/soak.log | grep -qx 'exit code 0'

# Every measurement, one after the other; each leaves its log in bench/results.
bench:
	@deploy/install.sh dev
	@mkdir -p bench/results
	@set -e; for script in bench/*.py; do \
	  name=$$(basename $$script .py); \
	  case $$name in _*) continue;; esac; \
	  echo "== $$name"; \
	  { $(BIN)/python $$script $(ARGS) 2>&1 && echo "exit code 0" || echo "exit code $$?"; } | tee bench/results/$$name.log; \
	  tail -n 1 bench/results/$$name.log | grep -qx 'exit code 0'; \
	done

# After a change of pyproject.toml. The files name no registry: they hold names, versions and hashes.
requirements:
	@deploy/requirements.sh

clean:
	rm -rf .venv build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
