"""A new package for gem-core: `gem-core init` writes it, ready to install, to check and to train.

names      the names that a package gets from that of its folder
package    its files, made of the template
command    the command

``template/`` has a file with the ending ``.in`` for every file of a package. Four names stand in
them, as `string.Template` writes them: ``$folder``, ``$distribution``, ``$module``, ``$namespace``.
``examples/plugin`` in the repository is what the command makes of them.
"""
