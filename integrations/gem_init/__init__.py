"""A new package for gem-core: `gem-core init` writes it, ready to install, to check and to train.

names      the names that a package gets from that of its folder
package    its files, made of the template
command    the command

``template/`` has a file with the ending ``.in`` for every file of a package, ``trainer/`` for every
file of an adapter (``--trainer``). Four names stand in them, as `string.Template` writes them:
``$folder``, ``$distribution``, ``$module``, ``$namespace``. ``examples/plugin`` and, but for its
README, ``examples/trainer`` in the repository are what the command makes of them.
"""
