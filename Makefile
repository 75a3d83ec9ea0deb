# Two commands do everything on a fresh machine: make run-parties, make test. Each sets up what it
# needs: a virtual environment with the locked versions of requirements.lock.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

DATASET ?= visits
PASSIVES ?= 2
EPSILON ?= 1
DELTA ?= 1e-5
GUARANTEE ?= sound
SEED ?= 0
OUT ?= .
RUN ?= latest
MOVES ?= 1000000
option = $(if $($(1)),--$(2) $($(1)))

.PHONY: help setup run-parties predict test test-fast coverage check bench reproduce soak attack fuzz audit-privacy mutants test-slow docs sbom lock clean

help:
	@echo "make run-parties    a federation of real processes on this machine trains a model"
	@echo "                    DATASET=$(DATASET) PASSIVES=$(PASSIVES) EPSILON=$(EPSILON) DELTA=$(DELTA) GUARANTEE=$(GUARANTEE) SEED=$(SEED)"
	@echo "                    EPOCHS= BATCH= LOSS= PENALTY= OUT=$(OUT) RESUME=last"
	@echo "make predict        score the held-out rows of a run: RUN=$(RUN) EPSILON= DELTA= OUT= EXACT=1 ROWS="
	@echo "make test           all quick tests            make check   formatting, types, architecture"
	@echo "make test-fast      those without processes     make coverage   lines and branches"
	@echo "make bench          ratios to other systems, measured side by side (FULL=1 for the large ones)"
	@echo "make reproduce      the paper's evaluation (QUICK=1: a few minutes)"
	@echo "make audit-privacy  attack the guarantee, 13 planted bugs; a million moves of an adversary (MOVES=)"
	@echo "make mutants        plant every fault of tests/mutants.toml and see that the tests notice"
	@echo "make attack         every attack we know, on real processes, as one table (WRITE=1: docs/attacks.md)"
	@echo "make fuzz           20 million signed frames (FRAMES=)"
	@echo "make soak           a thousand kills, 5,000 liars, every bit of a journal flipped"
	@echo "make test-slow      all slow tests"
	@echo "make docs           the site                            make sbom    bill of materials (CycloneDX)"
	@echo "make clean          remove what was made       make lock    choose versions again"

setup: $(READY)

$(READY): requirements.lock pyproject.toml
	@test -x $(BIN)/python || { echo "making $(VENV) ..."; $(PYTHON) -m venv $(VENV); }
	@echo "installing locked versions ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $(READY)

run-parties: $(READY)
	@$(BIN)/hdpvfl up --dataset $(DATASET) --passives $(PASSIVES) --epsilon $(EPSILON) --delta $(DELTA) \
	  --guarantee $(GUARANTEE) --seed $(SEED) --out $(OUT) $(call option,EPOCHS,epochs) $(call option,BATCH,batch) \
	  $(call option,LOSS,loss) $(call option,PENALTY,penalty) $(call option,RESUME,resume)

predict: $(READY)
	@$(BIN)/hdpvfl predict $(RUN) --epsilon $(EPSILON) --delta $(DELTA) --out $(OUT) $(if $(EXACT),--exact) $(call option,ROWS,rows)

test: $(READY)
	@$(BIN)/python -m pytest -n 2 --dist loadgroup

# The tests that start no process and simulate no federation: for use while editing.
test-fast: $(READY)
	@$(BIN)/python -m pytest -n 2 -x tests/unit tests/contracts tests/golden -m "not slow" --ignore tests/unit/app/test_up_parties.py --ignore tests/unit/psi/test_psi_malicious.py

# Tests that start processes are left out: coverage does not follow them.
coverage: $(READY)
	@$(BIN)/coverage run -m pytest -q tests/unit tests/contracts tests/golden tests/properties tests/simulation tests/privacy
	@$(BIN)/coverage report --skip-covered

test-slow: $(READY)
	@$(BIN)/python -m pytest -m slow

check: $(READY)
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports

bench: $(READY)
	@$(BIN)/python scripts/bench.py $(if $(FULL),--full)

reproduce: $(READY)
	@$(BIN)/python -m scripts.reproduce $(if $(QUICK),--quick,--full) --out results

audit-privacy: $(READY)
	@$(BIN)/python scripts/audit_privacy.py
	@$(BIN)/python scripts/search_adversary.py --moves $(MOVES)

mutants: $(READY)
	@$(BIN)/python scripts/mutants.py

soak: $(READY)
	@$(BIN)/python -m pytest -m slow tests/unit/journal tests/unit/audit tests/simulation tests/integration/test_kill_random.py tests/integration/test_replay_speed.py

docs: $(READY)
	@$(BIN)/mkdocs build --quiet --strict
	@echo "build/site/index.html"

sbom: $(READY)
	@mkdir -p build
	@$(BIN)/cyclonedx-py requirements requirements.lock --pyproject pyproject.toml --output-reproducible -o build/sbom.cdx.json
	@echo "build/sbom.cdx.json"

attack: $(READY)
	@$(BIN)/python -m scripts.attack $(if $(WRITE),--write docs/attacks.md)

FRAMES ?= 20e6
fuzz: $(READY)
	@$(BIN)/python -m tests.properties.fuzz_frames $(FRAMES)

lock: $(READY)
	$(BIN)/python -m pip install --quiet uv
	$(BIN)/uv pip compile pyproject.toml --extra dev --universal --generate-hashes \
	  --no-header --no-annotate --upgrade -o requirements.lock

clean:
	rm -rf $(VENV) runs state results build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage
