# The commands for developers. `make` alone lists them.

# The longest suite first, for runs of two at a time.
ALL_TRAINERS := verl openrlhf trl rl2 oat
TRAINERS ?= $(ALL_TRAINERS)
ENVS := $(or $(GEM_CORE_ENVS),.venvs)
ifndef PYTHON
PYTHON := $(shell for p in python3 python3.11; do $$p -c pass 2>/dev/null && echo $$p && break; done)
endif
CORE_PY := $(ENVS)/core/bin/python
TRL_PY := $(ENVS)/trl/bin/python
PYTEST := -m pytest --quiet --timeout 900 --durations 200 --durations-min 1
# No environment has every optional package; these two together have all that the modules import.
# The sandbox's server is a program: importing its main module runs it.
COMPANIONS := $(addprefix integrations/gem_,compare completion conform export init models parity preflight push sandbox server submit view yaml)
DOCTEST := $(PYTEST) --doctest-modules --doctest-ignore-import-errors --ignore integrations/gem_sandbox/server gem_core $(COMPANIONS)
# Core tests that also run with each trainer's versions of numpy, torch and transformers.
CROSS ?= tests/adapters tests/advantages tests/episodes/hf tests/evaluation tests/parity tests/tiny
# Of numpy and transformers TRL has the newest, Oat the oldest. TRL has all of them; Oat those that use
# transformers themselves, and with `make test-slow` the rest, which starts processes. The others have
# those that the adapter's own tests build on; evaluation and the tiny model are in their runs.
CROSS_BETWEEN := tests/adapters tests/episodes/hf tests/parity

# $(call stage,NAME,COMMAND): run the command, print how long it took, keep its exit code. STAGES
# is a file that gets the same lines at once, where make holds the output of parallel stages back.
STAGES ?= /dev/null
define stage
@echo "==> $(1)" | tee -a $(STAGES); begun=$$(date +%s); code=0; { $(2); } || code=$$?; \
echo "==> $(1): exit $$code after $$(( $$(date +%s) - begun )) s" | tee -a $(STAGES); exit $$code
endef

.PHONY: help
help:  ## print this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "  make %-14s %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@echo "  TRAINERS=\"trl oat\" limits envs and test to these trainers."

.PHONY: envs env-core $(ALL_TRAINERS:%=env-%)
envs: env-core $(TRAINERS:%=env-%)  ## build all environments (about 11 GB)
env-core:  ## environment of the core: tests, lint, types
	$(call stage,env-core,$(PYTHON) scripts/make_env.py core)
$(ALL_TRAINERS:%=env-%): env-%:
	$(call stage,env-$*,$(PYTHON) scripts/make_env.py $*)
env-trl:  ## environment of TRL
env-verl:  ## environment of verl
env-openrlhf:  ## environment of OpenRLHF
env-oat:  ## environment of Oat
env-rl2:  ## environment of RL2

.PHONY: quickstart example real-model
quickstart: env-trl  ## train a small model to play Sokoban on this machine's CPU and plot it
	$(TRL_PY) -m gem_core.cli quickstart
example: env-trl  ## a whole training loop in one file: examples/minimal_loop.py
	$(TRL_PY) examples/minimal_loop.py
real-model: env-trl  ## train Gemma 3 270M on this machine's CPU; ACCEPT_TERMS=yes: you accept the terms of Gemma
	$(TRL_PY) benchmarks/real_model/run.py $(if $(filter yes,$(ACCEPT_TERMS)),--accept-terms)

.PHONY: test lint types doctest test-core test-compare $(ALL_TRAINERS:%=test-%)
test: lint types $(TRAINERS:%=test-%) test-core test-compare doctest  ## everything; make -j2 runs two suites at a time
lint: env-core  ## check style, format, files, and the commits that results name
	$(call stage,lint,$(CORE_PY) -m ruff check . && $(CORE_PY) -m ruff format --check . && $(CORE_PY) scripts/check_files.py && $(CORE_PY) scripts/result_provenance.py)
types: env-core  ## mypy, strict on gem_core; the scripts of recipes/ one by one, as each is a module `train`
	$(call stage,types,$(CORE_PY) -m mypy && for script in recipes/*/train.py; do $(CORE_PY) -m mypy $$script || exit 1; done)
doctest: env-core env-trl  ## the examples in the docstrings
	$(call stage,doctest,$(CORE_PY) $(DOCTEST) && $(TRL_PY) $(DOCTEST))
test-core: env-core  ## tests that need no trainer
	$(call stage,test-core,$(CORE_PY) $(PYTEST) --trainer none tests)
$(ALL_TRAINERS:%=test-%): test-%: env-%
	$(call stage,test-$*,$(ENVS)/$*/bin/python $(PYTEST) --trainer $* tests/contract tests/integrations/$* $(CROSS))
test-verl test-openrlhf test-rl2 slow-verl slow-openrlhf slow-rl2: CROSS := $(CROSS_BETWEEN)
test-trl slow-trl: CROSS += tests/examples tests/engines tests/packaged_models
slow-oat: CROSS += tests/engines
test-oat: CROSS := $(CROSS_BETWEEN) tests/advantages tests/engines tests/tiny \
	tests/evaluation/test_local.py tests/evaluation/test_model_errors.py tests/evaluation/test_policy.py
test-trl:  ## TRL's own tests and the contract suite, in its environment; likewise:
test-verl:  ## verl
test-openrlhf:  ## OpenRLHF
test-oat:  ## Oat
test-rl2:  ## RL2
test-compare: envs  ## three steps of one experiment in every trainer, token by token, and their report
	$(call stage,test-compare,rm -rf build/compare-quick && $(CORE_PY) -m gem_core.cli compare --quick \
		--trainers $(TRAINERS) --out build/compare-quick)

# Most are runs of verl, OpenRLHF and RL2: one takes up to two minutes, mostly for Ray and ten imports of torch.
# In a process of their own: one that has trained with DeepSpeed's stage 3 has mappings larger than the
# memory, and Ray starts its servers by a fork, which the kernel refuses such a process.
# The core's run has the tests of workers behind a server.
slow-openrlhf: WHOLE := tests/workers tests/vector --ignore tests/workers/servers
# Evaluation in processes of its own, with the oldest transformers; `make test` has it with the newest.
slow-oat: WHOLE := tests/evaluation
.PHONY: test-slow
test-slow: $(TRAINERS:%=slow-%) slow-core  ## the tests marked slow, which make test leaves out
slow-core: env-core
	$(call stage,slow-core,$(CORE_PY) $(PYTEST) --trainer none --slow -m slow tests --ignore tests/launchpad --ignore tests/rl2_source)
$(ALL_TRAINERS:%=slow-%): slow-%: env-%
	$(call stage,slow-$*,$(ENVS)/$*/bin/python $(PYTEST) --trainer $* --slow -m slow tests/contract tests/integrations/$* $(CROSS); \
		first=$$?; $(if $(WHOLE),$(ENVS)/$*/bin/python $(PYTEST) --trainer $* $(WHOLE) &&) (exit $$first))

.PHONY: test-faults
test-faults: envs  ## every detector of a difference between trainers on this tree; PATCH=file.diff: on a copy
	$(call stage,test-faults,$(CORE_PY) benchmarks/parity/changes.py --trainers $(TRAINERS) $(if $(PATCH),--patch $(PATCH)))

# The folders whose tests have event loops, threads or processes. Repeat it: the delays are random.
WITH_DELAYS := adapters bridges compare envs_data episodes evaluating graders mcp plan sandbox server training vector view workers
.PHONY: test-delays
test-delays: env-core env-trl  ## tests that may pass by who is first, with random delays (15 minutes)
	$(call stage,test-delays,export PYTHONPATH=tests/delays GEM_TEST_DELAYS=0.5 && \
		$(CORE_PY) $(PYTEST) --trainer none $(WITH_DELAYS:%=tests/%) && \
		$(TRL_PY) $(PYTEST) --trainer trl tests/engines tests/evaluation tests/integrations/trl)

.PHONY: env-trl-vllm env-openrlhf-vllm env-oat-vllm test-engines
env-trl-vllm:  ## environment of TRL with real vLLM on a CPU
	$(call stage,env-trl-vllm,$(PYTHON) scripts/make_env.py trl-vllm)
env-openrlhf-vllm:  ## environment of OpenRLHF with real vLLM on a CPU
	$(call stage,env-openrlhf-vllm,$(PYTHON) scripts/make_env.py openrlhf-vllm)
env-oat-vllm:  ## environment of Oat with real vLLM on a CPU
	$(call stage,env-oat-vllm,$(PYTHON) scripts/make_env.py oat-vllm)
test-engines: env-trl-vllm env-openrlhf-vllm env-oat-vllm  ## TRL, OpenRLHF and Oat with real vLLM, three steps of each case (minutes)
	$(call stage,test-engines,export GEM_ENGINES_RESULTS=build/engines && mkdir -p build/engines && \
		for case in trl-checks trl-temperature trl-lora trl-stepping trl-evaluation \
			trl-colocate trl-server trl-server-stepping \
			trl-second-sampler trl-second-runner trl-second-temperature trl-second-support trl-kernels; do \
		$(ENVS)/trl-vllm/bin/python benchmarks/engines/run.py $$case --steps 3 || exit 1; done && \
		for case in openrlhf-vllm openrlhf-async openrlhf-lora openrlhf-temperature; do \
		$(ENVS)/openrlhf-vllm/bin/python benchmarks/engines/run.py $$case --steps 3 || exit 1; done && \
		for case in oat-checks oat-vllm oat-temperature; do \
		$(ENVS)/oat-vllm/bin/python benchmarks/engines/run.py $$case --steps 3 || exit 1; done)

# The blocks of that page which need the packages of these environments.
FOREIGN_BLOCKS := "tests/docs/test_blocks.py::test_the_python_of_a_page_runs[docs/coming_from.md]"
.PHONY: env-bridges test-bridges
env-bridges:  ## environment with the packages whose environments are played
	$(call stage,env-bridges,$(PYTHON) scripts/make_env.py bridges)
test-bridges: env-bridges  ## environments of gem-llm, Gymnasium, TextArena and OpenEnv, trained by TRL
	$(call stage,test-bridges,$(ENVS)/bridges/bin/python $(PYTEST) --trainer none tests/bridges/packages $(FOREIGN_BLOCKS))

# What uses a package of an extra, and the core without any; not a server that needs mcp 2.3.
FLOORS := advantages bridges envs envs_data episodes graders mcp server tools/test_search.py test_core.py test_registration.py test_report.py
ABOVE_FLOORS := --deselect tests/mcp/test_session.py::test_a_server_of_pypi_works
.PHONY: env-floors test-floors resolve-extras
env-floors:  ## environment with the lowest versions that pyproject.toml allows
	$(call stage,env-floors,$(PYTHON) scripts/make_env.py floors)
test-floors: env-floors  ## tests of the core and its extras with the lowest versions (minutes)
	$(call stage,test-floors,$(ENVS)/floors/bin/python $(PYTEST) --trainer none $(FLOORS:%=tests/%) $(ABOVE_FLOORS))
resolve-extras:  ## every extra, and those meant to go together, resolve; needs the package index and uv
	$(call stage,resolve-extras,$(PYTHON) scripts/resolve_extras.py)

# The core on the versions of Python that `make test` does not have, without any extra.
PYTHONS := 3.10 3.12 3.13
PYTHON_TESTS := advantages test_core.py test_registration.py test_report.py
.PHONY: test-pythons $(PYTHONS:%=env-python-%) $(PYTHONS:%=test-python-%)
$(PYTHONS:%=env-python-%): env-%:
	$(call stage,env-$*,$(PYTHON) scripts/make_env.py $*)
$(PYTHONS:%=test-python-%): test-%: env-%
	$(call stage,test-$*,$(ENVS)/$*/bin/python $(PYTEST) --trainer none $(PYTHON_TESTS:%=tests/%))
test-pythons: $(PYTHONS:%=test-python-%)  ## the core without extras on Python 3.10, 3.12 and 3.13 (minutes)

.PHONY: env-docs docs
env-docs:  ## environment of the site
	$(call stage,env-docs,$(PYTHON) scripts/make_env.py docs)
docs: env-core env-docs  ## the site in build/site; a warning, a wrong link or a page without a place is an error
	$(call stage,docs,$(CORE_PY) scripts/stage_site.py && rm -rf build/site && $(ENVS)/docs/bin/zensical build --strict && \
		$(CORE_PY) scripts/check_site.py)

.PHONY: check-docs check-release dist test-wheel test-wheel-conformance
check-docs: env-core  ## links, names and generated parts of the pages
	$(call stage,check-docs,$(CORE_PY) scripts/install_lines.py --check && $(CORE_PY) $(PYTEST) --trainer none \
		tests/test_docs.py tests/test_map.py tests/test_references.py tests/release/test_install_lines.py)
check-release: env-core  ## one version everywhere; with TAG=v1.2.3 also the tag and the changelog
	$(call stage,check-release,$(CORE_PY) scripts/release.py --check $(if $(TAG),--tag $(TAG)))
dist: env-core  ## build the files of a release in dist/
	$(call stage,dist,rm -rf dist && $(CORE_PY) -m hatchling build -d dist)
test-wheel: env-core  ## install the wheel (WHEEL=file, or a new one) in an environment away from here and use it; needs the package index
	$(call stage,test-wheel,$(CORE_PY) scripts/try_wheel.py $(WHEEL))
test-wheel-conformance: env-core  ## the same, and then the extra conformance alone, with a whole `gem-core conform` (minutes)
	$(call stage,test-wheel-conformance,$(CORE_PY) scripts/try_wheel.py --conformance $(WHEEL))

.PHONY: drift
drift: env-core  ## what moved in the newest releases of the trainers, of what the adapters use; needs the package index
	$(call stage,drift,$(CORE_PY) scripts/drift.py)

.PHONY: env-torchrl test-torchrl
env-torchrl:  ## environment of TorchRL
	$(call stage,env-torchrl,$(PYTHON) scripts/make_env.py torchrl)
test-torchrl: env-torchrl  ## the adapter of examples/torchrl through gem-core conform (8 minutes)
	$(call stage,test-torchrl,$(ENVS)/torchrl/bin/python -m pip install --quiet --disable-pip-version-check \
		--no-deps --no-build-isolation --force-reinstall ./examples/torchrl && \
		$(ENVS)/torchrl/bin/gem-core conform torchrl --out build/conform-torchrl)

.PHONY: env-verifiers test-verifiers
env-verifiers:  ## environment with verifiers
	$(call stage,env-verifiers,$(PYTHON) scripts/make_env.py verifiers)
test-verifiers: env-verifiers  ## tasks of verifiers, trained by TRL
	$(call stage,test-verifiers,$(ENVS)/verifiers/bin/python $(PYTEST) --trainer none tests/bridges/verifiers_package $(FOREIGN_BLOCKS))

# Of inspect_ai, which brings no torch: gem-core's environments as its tasks, and that section's block.
INSPECT_BLOCKS := "tests/docs/test_blocks.py::test_the_python_of_a_page_runs[docs/bridges.md]"
.PHONY: env-inspect test-inspect
env-inspect:  ## environment with inspect_ai
	$(call stage,env-inspect,$(PYTHON) scripts/make_env.py inspect)
test-inspect: env-inspect  ## environments of gem-core as tasks of Inspect
	$(call stage,test-inspect,$(ENVS)/inspect/bin/python $(PYTEST) --trainer none tests/bridges/inspect_package $(INSPECT_BLOCKS))

.PHONY: env-view test-view
env-view:  ## environment of the tests in a browser
	$(call stage,env-view,$(PYTHON) scripts/make_env.py view)
test-view: env-view env-trl  ## gem-core view in a browser; needs: apt-get install chromium chromium-driver
	$(call stage,test-view,$(ENVS)/view/bin/python $(PYTEST) --trainer none tests/view/browser)

.PHONY: env-launchpad test-launchpad
env-launchpad:  ## environment of the tests with the real launchpad (Python 3.10)
	$(call stage,env-launchpad,$(PYTHON) scripts/make_env.py launchpad)
test-launchpad: env-launchpad  ## Oat under the real dm-launchpad: its launcher, whole runs, with real vLLM (minutes)
	$(call stage,test-launchpad,LD_LIBRARY_PATH=$$($(ENVS)/launchpad/bin/python -c \
		"import sysconfig; print(sysconfig.get_config_var('LIBDIR'))") \
		$(ENVS)/launchpad/bin/python $(PYTEST) --trainer none --slow tests/launchpad && \
		mkdir -p build/engines && GEM_ENGINES_RESULTS=build/engines \
		$(ENVS)/launchpad/bin/python benchmarks/engines/run.py oat-launchpad --steps 3)

.PHONY: test-rl2-source
test-rl2-source: env-rl2  ## RL2's newer source, from a checkout: make test-rl2-source RL2_SOURCE=directory
	$(if $(RL2_SOURCE),,$(error RL2_SOURCE: the directory of a checkout of RL2))
	$(call stage,test-rl2-source,RL2_SOURCE=$(RL2_SOURCE) $(ENVS)/rl2/bin/python $(PYTEST) --trainer none \
		--slow tests/rl2_source)

.PHONY: clean
clean:  ## remove this checkout's environments and caches (the shared package cache stays)
	rm -rf $(ENVS) build dist .cache .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find gem_core integrations tests scripts benchmarks recipes examples -name __pycache__ -type d -prune -exec rm -rf {} +
