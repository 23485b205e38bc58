"""Facts about reasoning-gym that are needed without importing it.

They are checked against the installed package by ``tests/envs_data/test_rg_tables.py``.
"""

from __future__ import annotations

VERSION = "0.1.25"
"""The version from which the tables were made."""

NAMES: tuple[str, ...] = (
    "ab",
    "acre",
    "advanced_geometry",
    "aiw",
    "arc_1d",
    "arc_agi",
    "base_conversion",
    "basic_arithmetic",
    "bf",
    "binary_alternation",
    "binary_matrix",
    "bitwise_arithmetic",
    "boxnet",
    "caesar_cipher",
    "calendar_arithmetic",
    "chain_sum",
    "circuit_logic",
    "codeio",
    "coin_flip",
    "color_cube_rotation",
    "complex_arithmetic",
    "composite",
    "count_bits",
    "count_primes",
    "countdown",
    "course_schedule",
    "cryptarithm",
    "decimal_arithmetic",
    "decimal_chain_sum",
    "dice",
    "emoji_mystery",
    "family_relationships",
    "figlet_font",
    "fraction_simplification",
    "futoshiki",
    "game_of_life",
    "game_of_life_halting",
    "gcd",
    "graph_color",
    "group_anagrams",
    "gsm_symbolic",
    "intermediate_integration",
    "isomorphic_strings",
    "jugs",
    "kakurasu",
    "knight_swap",
    "knights_knaves",
    "largest_island",
    "lcm",
    "leg_counting",
    "letter_counting",
    "letter_jumble",
    "list_functions",
    "mahjong_puzzle",
    "manipulate_matrix",
    "maze",
    "mini_sudoku",
    "modulo_grid",
    "n_queens",
    "needle_haystack",
    "number_filtering",
    "number_format",
    "number_sequence",
    "number_sorting",
    "palindrome_generation",
    "palindrome_partitioning",
    "path_star",
    "polynomial_equations",
    "polynomial_multiplication",
    "pool_matrix",
    "power_function",
    "prime_factorization",
    "products",
    "propositional_logic",
    "puzzle24",
    "quantum_lock",
    "ransom_note",
    "rearc",
    "rectangle_count",
    "rotate_matrix",
    "rotten_oranges",
    "rubiks_cube",
    "rush_hour",
    "self_reference",
    "sentence_reordering",
    "shortest_path",
    "simple_equations",
    "simple_geometry",
    "simple_integration",
    "sokoban",
    "spell_backward",
    "spiral_matrix",
    "string_insertion",
    "string_manipulation",
    "string_splitting",
    "string_synthesis",
    "sudoku",
    "survo",
    "syllogism",
    "time_intervals",
    "tower_of_hanoi",
    "tsumego",
    "word_ladder",
    "word_sequence_reversal",
    "word_sorting",
    "zebra_puzzles",
)
"""All generators."""

HASH_ORDERED = frozenset(
    {"isomorphic_strings", "knight_swap", "polynomial_multiplication", "ransom_note", "word_ladder"}
)
"""The items depend on the order of a set, and so on the hash seed of the process."""
GLOBAL_RANDOM = frozenset({"codeio", "list_functions", "pool_matrix"})
"""They use the global ``random`` or ``numpy.random``; ``codeio`` runs programs that do."""
EVALS_ANSWER = frozenset({"binary_matrix", "n_queens", "spiral_matrix", "string_insertion"})
"""Their scorers pass the answer to ``eval``."""
PARSES_ANSWER = frozenset(
    {
        "countdown",
        "intermediate_integration",
        "polynomial_multiplication",
        "puzzle24",
        "simple_integration",
    }
)
"""Their scorers pass the answer to ``sympy.parse_expr``, which calls ``eval`` too."""
IN_WORKER = HASH_ORDERED | GLOBAL_RANDOM | EVALS_ANSWER | PARSES_ANSWER
"""They run in worker processes: fixed hash seed, own global generators, limits, a deadline."""
SCORES = ("strict", "reasoning_gym")
"""``reasoning_gym``: the generator's own. ``strict``: 1 for a right answer, else 0."""
SLOW = frozenset({"countdown", "futoshiki", "puzzle24", "quantum_lock", "sudoku", "zebra_puzzles"})
"""Generating an item sometimes takes more than 50 ms."""
RESEEDED = {"acre": 10, "gsm_symbolic": 1, "list_functions": 1}
"""Their items exist only below the requested size, so that an item is (new seed, size)."""
DEFAULT_MIXTURE = ("basic_arithmetic", "letter_counting", "leg_counting", "simple_equations")
"""The mixture of ``rg:composite``, if none is given."""
