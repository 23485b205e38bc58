"""Environments of other packages as those of gem-core, and the other way round: docs/bridges.md.

``gem:*``, ``gymnasium:*``, ``textarena:*`` and ``verifiers:*`` are classes of `gem_llm`,
`gymnasium_env`, `textarena_env` and `verifiers_env`, which import the other package when an
environment is made. `as_gymnasium`, `as_inspect` and `as_verifiers` import it at once.
"""
