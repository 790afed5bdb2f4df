# One command per job; each prepares `.venv` by itself (any Python >= 3.11, pip, nothing else).

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
BENCH_STAMP := $(VENV)/.ready-bench
PEERS_STAMP := $(VENV)-peers/.ready
PEERS_TF_STAMP := $(VENV)-peers-tf/.ready
DOCS_STAMP := $(VENV)/.ready-docs
GPU_STAMP := $(VENV)-gpu/.ready
export PIP_DISABLE_PIP_VERSION_CHECK := 1
unexport PYTHONDONTWRITEBYTECODE  # each process of the tests would compile all of their modules anew: 8 seconds

.PHONY: demo test quick test-slow slow-cases release vscode campaign lint format bench papers mutants gpu-check gpu-zoo docs gallery accuracy golden numbers lock clean

demo: $(STAMP)  # fit British coal-mining disasters, print the summary, draw the intensity
	$(BIN)/python examples/coal_mining.py

test: lint  # everything that must hold before a change is merged
	$(BIN)/python -m pytest -m "not slow" -n auto --maxprocesses 4 --dist loadfile

quick: lint  # style, types, language, mathematics and one fit by every engine: a minute and a half of everyday work
	$(BIN)/python -m pytest -q -m "not slow" -n auto --maxprocesses 4 --dist loadfile \
		tests/test_every_engine.py tests/test_house.py tests/symbolic tests/language \
		--ignore tests/language/test_fuzzing.py --ignore tests/language/test_speed.py

test-slow: $(STAMP)  # the long numerical comparisons, the examples and the wheel
	@$(BIN)/python -m pip install --quiet --constraint requirements.lock -e ".[tomography]" \
		|| echo "scikit-fmm needs a compiler here: the tomography example is skipped"
	$(BIN)/python -m pytest -m slow

slow-cases: $(STAMP)  # which tests are slow, from the lines that each of them runs: an hour
	@$(BIN)/python -m pip install --quiet coverage
	$(BIN)/python -m tests.selection

release: $(STAMP)  # the wheel and the source archive, tried in an empty environment; nothing is uploaded
	$(BIN)/python -m tests.release

vscode: $(STAMP)  # the extension editors/vscode/gpdsl.vsix, by Node 20 or newer, tried against the language server
	cd editors/vscode && npm install --no-package-lock --no-audit --no-fund --loglevel=error && npm run --silent package
	$(BIN)/python -m pytest -q tests/lsp/test_vscode.py

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	MYPY_NUM_WORKERS=auto $(BIN)/mypy

format: $(STAMP)  # what `lint` asks for
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(BENCH_STAMP) $(PEERS_STAMP) $(PEERS_TF_STAMP)  # tables beside peers; asserts nothing
	GPDSL_PEERS=$(VENV)-peers/bin/python GPDSL_PEERS_TF=$(VENV)-peers-tf/bin/python \
		$(BIN)/python benchmarks/first_fit.py all

papers: $(STAMP)  # the tables of benchmarks/papers/RESULTS.md, from what was measured and recorded
	$(BIN)/python benchmarks/papers/recorded.py

mutants: $(STAMP)  # small faults in the mathematics, one at a time: which of them do the tests notice? An hour
	@$(BIN)/python -m pip install --quiet coverage
	$(BIN)/python benchmarks/mutants.py --seen benchmarks/mutants.seen --keep benchmarks/mutants.jsonl

gpu-zoo: $(GPU_STAMP)  # every model and engine on the GPU beside the CPU in float64: minutes
	@$(VENV)-gpu/bin/python -m pip install --quiet -e ".[dev]"
	$(VENV)-gpu/bin/python benchmarks/gpu_zoo.py

gpu-check: $(GPU_STAMP)  # float32 on the GPU against float64 on the CPU, then seconds per step
	$(VENV)-gpu/bin/python benchmarks/gpu_check.py

docs: $(DOCS_STAMP)  # the pages, in docs/_build/html; a warning is an error
	$(BIN)/python -m sphinx -q -W -b html docs docs/_build/html
	@echo "open docs/_build/html/index.html"

campaign: $(STAMP)  # hostile texts, data and servers, damaged fits and interruptions, counted: hours
	$(BIN)/python -m tests.campaign

gallery: $(STAMP)  # every model of the zoo fitted and drawn, in docs/gallery.md and docs/gallery
	$(BIN)/python docs/gallery.py

accuracy: $(STAMP)  # the errors of distributions, kernels and lets against references, in docs/accuracy.md
	$(BIN)/python -m tests.accuracy

golden: $(STAMP)  # rewrite the expected texts in tests/golden; read the diff before committing it
	GPDSL_GOLDEN=1 $(BIN)/python -m pytest -m "not slow" tests

numbers: $(STAMP)  # write anew what the core tests are given by fits, in tests/golden/numbers.jsonl: half an hour
	$(BIN)/python -m tests.numbers

lock: $(STAMP)  # write the newest versions that satisfy pyproject.toml into requirements.lock
	rm -rf $(VENV)-lock
	$(BIN)/python -m venv $(VENV)-lock
	$(VENV)-lock/bin/python -m pip install --quiet --upgrade -e ".[dev]"
	{ grep '^#' requirements.lock; $(VENV)-lock/bin/python -m pip freeze --exclude-editable; } > requirements.lock.new
	mv requirements.lock.new requirements.lock
	rm -rf $(VENV)-lock

clean:
	rm -rf $(VENV) $(VENV)-lock $(VENV)-gpu $(VENV)-peers $(VENV)-peers-tf build dist docs/_build editors/vscode/dist editors/vscode/node_modules .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(STAMP): pyproject.toml requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(0 if sys.version_info >= (3, 11) else "gpdsl needs Python 3.11 or newer, this is %d.%d: run make PYTHON=python3.12" % sys.version_info[:2])'
	@echo "preparing $(VENV) (once; a minute or two) ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet -r requirements.lock
	@$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	@touch $@

$(BENCH_STAMP): $(STAMP)
	$(BIN)/python -m pip install --quiet --constraint requirements.lock -e ".[bench]"
	@touch $@

# Peers have environments of their own: their requirements contradict each other's. torch comes with a GPU's libraries
# unless there is a build without them.
$(PEERS_STAMP):
	@echo "preparing $(VENV)-peers: GPyTorch and GPJax (once; some minutes) ..."
	@$(PYTHON) -m venv $(VENV)-peers
	@$(VENV)-peers/bin/python -m pip install --quiet "torch==2.*,>=2.13" "gpytorch==1.15.*" "gpjax==1.0.*"
	@touch $@

$(PEERS_TF_STAMP):
	@echo "preparing $(VENV)-peers-tf: GPflow (once; some minutes) ..."
	@$(PYTHON) -m venv $(VENV)-peers-tf
	@$(VENV)-peers-tf/bin/python -m pip install --quiet \
		"setuptools<81" "numpy<2" "tensorflow-cpu==2.21.*" "tf_keras==2.21.*" "tensorflow-probability==0.25.*" "gpflow==2.11.*"
	@touch $@

$(DOCS_STAMP): $(STAMP)
	$(BIN)/python -m pip install --quiet --constraint requirements.lock -e ".[docs]"
	@touch $@

# Uses the Python's own JAX and packages where it has them: a machine with a GPU often comes with the JAX that suits it.
$(GPU_STAMP): pyproject.toml
	@echo "preparing $(VENV)-gpu (once) ..."
	@$(PYTHON) -m venv --system-site-packages $(VENV)-gpu
	@$(VENV)-gpu/bin/python -c 'import jax; raise SystemExit(jax.default_backend() != "gpu")' 2>/dev/null || \
		$(VENV)-gpu/bin/python -m pip install --quiet "jax[cuda12]"
	@$(VENV)-gpu/bin/python -m pip install --quiet hatchling editables
	@$(VENV)-gpu/bin/python -m pip install --quiet --no-build-isolation -e .
	@touch $@
