# Two commands on a fresh clone: `make demo` and `make test`. Each sets up everything it needs.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/ready
WHAT   := -c constraints.txt -e '.[hf,live,ray,test,docs]'
MODELS := nano:vit nano:convit nano:resnet nano:alternet

# Installing compiles what is installed. Our own files are compiled once, too, where the environment forbids Python to keep bytecode:
# otherwise each of the tests' processes does it again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help demo test lint docs constraints clean

help:
	@echo "make demo         set up, then measure four trained models: demo/report.html"
	@echo "make test         set up, then ruff, mypy and all tests"
	@echo "make lint         ruff and mypy alone"
	@echo "make docs         the manual, into docs/_build/html"
	@echo "make constraints  resolve constraints.txt again after a change to pyproject.toml"
	@echo "make clean        remove everything the above have made"

# uv first because it is three times as quick; pip, which reads the settings of the machine, where uv cannot.
# uv leaves compiling to the first start of every program unless told otherwise; pip compiles anyway.
$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Vitreous needs Python 3.11 or newer, and $(PYTHON) is older: make PYTHON=/path/to/python3.11"; exit 1; }
	@echo "Setting up $(VENV): torch and all the rest, some minutes the first time ..."
	@$(PYTHON) -m venv $(VENV)
	@{ $(BIN)/python -m pip install -q --disable-pip-version-check uv && \
	   $(BIN)/uv pip install -q --compile-bytecode --python $(BIN)/python $(WHAT); } || \
	 { echo "uv could not do it; trying pip, which is slower ..." && \
	   $(BIN)/python -m pip install -q --disable-pip-version-check $(WHAT); }
	@touch $@

demo: $(READY)
	@echo "Measuring four small trained models; nothing is downloaded ..."
	@OMP_NUM_THREADS=1 $(BIN)/vitreous inspect $(MODELS) --data world:shapes --also nano --out demo/report.html
	@echo "Now explore two of them in your browser: $(BIN)/vitreous live nano:vit nano:resnet --open"

lint: $(READY)
	@echo "ruff and mypy ..."
	@$(BIN)/ruff check .
	@$(BIN)/mypy

test: lint
	@echo "pytest ..."
	@$(BIN)/python -m pytest --numprocesses auto --maxprocesses 4 --dist loadfile --no-loadscope-reorder

docs: $(READY)
	@echo "Building the manual ..."
	@$(BIN)/python docs/generate_models.py
	@$(BIN)/python -m sphinx -q -W --keep-going docs docs/_build/html
	@echo "Open docs/_build/html/index.html"

constraints: $(READY)
	@$(BIN)/uv pip compile -q --universal --python-version 3.11 --all-extras --no-annotate \
	  --custom-compile-command 'make constraints' pyproject.toml -o constraints.txt

clean:
	rm -rf $(VENV) demo docs/_build .pytest_cache .mypy_cache .ruff_cache
