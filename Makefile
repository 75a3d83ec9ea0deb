# Two commands do everything on a fresh machine: make run-parties, make test. Each sets up what it
# needs: a virtual environment with the locked versions of requirements.lock.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
COMPILED := $(VENV)/.compiled
# Compiled modules are kept even where the environment says otherwise: a process starts three times
# as fast with them.
export PYTHONDONTWRITEBYTECODE :=

DATASET ?= visits
PASSIVES ?= 2
EPSILON ?= 1
DELTA ?= 1e-5
GUARANTEE ?= sound
SEED ?= 0
OUT ?= .
RUN ?= latest
MOVES ?= 1000000
JOBS ?= 2
option = $(if $($(1)),--$(2) $($(1)))

.PHONY: help setup run-parties predict test test-failed test-fast coverage check bench bench-peers check-speed profile reproduce soak attack fuzz audit-privacy mutants test-slow docs sbom lock clean

help:
	@echo "make run-parties    a federation of real processes on this machine trains a model"
	@echo "                    DATASET=$(DATASET) PASSIVES=$(PASSIVES) EPSILON=$(EPSILON) DELTA=$(DELTA) GUARANTEE=$(GUARANTEE) SEED=$(SEED)"
	@echo "                    EPOCHS= BATCH= LOSS= PENALTY= OUT=$(OUT) RESUME=last"
	@echo "make predict        score the held-out rows of a run: RUN=$(RUN) NOISED=1 EPSILON= DELTA= OUT= EXACT=1 ROWS="
	@echo "make test           all quick tests            make check   formatting, types, architecture"
	@echo "make test-fast      the quickest of them         make coverage   lines and branches"
	@echo "make bench          ratios to other systems, measured side by side (FULL=1 for the large ones; RECORD=1: docs/results/bench.md)"
	@echo "make bench-peers    environments of the systems it is measured against, under build/peers (about 8 GB)"
	@echo "make check-speed    fails if a round has become slower against its floor     make profile   where time goes, by file"
	@echo "make reproduce      the paper's evaluation (QUICK=1: a few minutes)"
	@echo "make audit-privacy  attack the guarantee, 13 planted bugs; a million moves of an adversary (MOVES=)"
	@echo "make mutants        plant every fault of tests/mutants.toml and see that the tests notice"
	@echo "make attack         every attack we know, on real processes, as one table (WRITE=1: docs/attacks.md)"
	@echo "make fuzz           20 million signed frames (FRAMES=)"
	@echo "make soak           a thousand kills, 5,000 liars, every bit of a journal flipped, 1,000 bad networks"
	@echo "make test-slow      all slow tests"
	@echo "make docs           the site; runs its notebooks (NOTEBOOKS=0: not)  make sbom    bill of materials (CycloneDX)"
	@echo "make clean          remove what was made       make lock    choose versions again"

setup: $(READY)

$(READY): requirements.lock pyproject.toml
	@test -x $(BIN)/python || { echo "making $(VENV) ..."; $(PYTHON) -m venv $(VENV); }
	@echo "installing locked versions ..."
	@$(BIN)/python -m scripts.install_lock
	@touch $(READY)

run-parties: $(READY)
	@$(BIN)/hdpvfl up --dataset $(DATASET) --passives $(PASSIVES) --epsilon $(EPSILON) --delta $(DELTA) \
	  --guarantee $(GUARANTEE) --seed $(SEED) --out $(OUT) $(call option,EPOCHS,epochs) $(call option,BATCH,batch) \
	  $(call option,LOSS,loss) $(call option,PENALTY,penalty) $(call option,RESUME,resume)

predict: $(READY)
	@$(BIN)/hdpvfl predict $(RUN) --epsilon $(EPSILON) --delta $(DELTA) --out $(OUT) $(if $(EXACT),--exact) $(if $(NOISED),--noised) $(call option,ROWS,rows)

# A file stays in one worker, so what its tests share is made once. tests/conftest.py puts small
# files last, so all workers end together. There are more workers than cores, because tests of real
# processes and sockets wait for much of their time.
WORKERS ?= 4
SPREAD = -n $(WORKERS) --dist loadfile --no-loadscope-reorder

# Two processes compile what tests import; else all workers of the first run would compile the same.
$(COMPILED): $(READY)
	@echo "compiling ..."
	@$(BIN)/python -m pytest --collect-only -q tests/unit >/dev/null & \
	  $(BIN)/python -m pytest --collect-only -q --ignore tests/unit tests >/dev/null; wait; touch $@

test: $(COMPILED)
	@$(BIN)/python -m pytest $(SPREAD)

# What failed last time, one after the other.
test-failed: $(READY)
	@$(BIN)/python -m pytest --last-failed --last-failed-no-failures none -v

# Unit tests, contracts and golden journals without the files marked `seconds`: no process, no whole
# federation, no long fuzzing. For use while editing. Nothing waits here, so a worker for each core.
test-fast: WORKERS = 2
test-fast: $(READY)
	@$(BIN)/python -m pytest $(SPREAD) -x tests/unit tests/contracts tests/golden -m "not slow and not seconds"

# The floor is enforced: fail_under in pyproject.toml. Processes that tests start are followed.
# It reports also after a failed test, and then fails. TESTS= names files or folders; default all.
coverage: $(READY)
	@rm -rf build/coverage && mkdir -p build/coverage
	@$(BIN)/coverage run -m pytest $(SPREAD) $(TESTS); tests=$$?; \
	  $(BIN)/coverage combine --quiet && $(BIN)/coverage report --skip-covered && exit $$tests

test-slow: $(READY)
	@$(BIN)/python -m pytest -m slow

check: $(READY)
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

bench: $(READY)
	@$(BIN)/python scripts/bench.py $(if $(FULL),--full) $(if $(RECORD),--record)

# Each peer has an environment of its own, because they need other versions of numpy. One that does
# not install is a row "not installed" of the bench.
bench-peers: $(READY)
	@$(BIN)/python -m scripts.benches.peer

# Fails when a round's ratio to its floor has grown by half since the recorded run.
check-speed: $(READY)
	@$(BIN)/python scripts/bench.py --check

profile: $(READY)
	@$(BIN)/python -m scripts.where_time_goes

reproduce: $(READY)
	@$(BIN)/python -m scripts.reproduce $(if $(QUICK),--quick,--full) --out results

audit-privacy: $(READY)
	@$(BIN)/python scripts/audit_privacy.py
	@$(BIN)/python scripts/search_adversary.py --moves $(MOVES)

mutants: $(READY)
	@$(BIN)/python scripts/mutants.py --jobs $(JOBS)

soak: $(READY)
	@$(BIN)/python -m pytest -m slow tests/unit/journal tests/unit/audit tests/simulation tests/integration/test_kill_random.py tests/integration/test_replay_speed.py
	@EXAMPLES=5000 $(BIN)/python -m pytest tests/unit/wire/test_wire_codec.py
	@SCHEDULES=1000 $(BIN)/python -m pytest -m slow -s tests/integration/test_bad_network.py

docs: $(READY)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict
	@echo "build/site/index.html"

sbom: $(READY)
	@mkdir -p build
	@$(BIN)/cyclonedx-py requirements requirements.lock --pyproject pyproject.toml --output-reproducible -o build/sbom.cdx.json
	@echo "build/sbom.cdx.json"

attack: $(READY)
	@$(BIN)/python -m scripts.attack $(if $(WRITE),--write docs/attacks.md)

FRAMES ?= 20e6
fuzz: $(READY)
	@$(BIN)/python -m tests.properties.fuzz_frames $(FRAMES) --jobs $(JOBS)

lock: $(READY)
	$(BIN)/uv pip compile pyproject.toml --extra dev --universal --generate-hashes \
	  --no-header --no-annotate --upgrade -o requirements.lock

clean:
	rm -rf $(VENV) runs state results build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage
