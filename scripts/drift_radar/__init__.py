"""Whether a trainer still has what its adapter uses; nothing of a trainer is installed or imported.

seams     what an adapter uses of its trainer, read from the adapter's own source
scan      reads one module of an adapter
by_hand   what the source does not say, and what it says without a meaning here
release   a release as files: downloaded by pip, its signatures read by griffe
settings  the configuration keys of a release
compare   what moved between two releases
page      docs/works_with.md
ran       which uses of an adapter ran here, for docs/gpu_seams.md
"""
