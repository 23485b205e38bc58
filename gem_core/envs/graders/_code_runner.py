"""The part of the grader that runs in the sandbox, together with a program: `PROGRAM`.

It finds one global variable, ``job``: the program's ``code``, one ``test``, and ``provided``. A
program that reads standard input prints its answer; the result of a function is printed after the
test's mark, which the program cannot know in advance.
"""

from __future__ import annotations

PROVIDED = {
    "bisect": "bisect_left bisect_right insort insort_left insort_right",
    "collections": "ChainMap Counter OrderedDict defaultdict deque namedtuple",
    "copy": "deepcopy",
    "datetime": "",
    "functools": "cache cmp_to_key lru_cache partial reduce",
    "heapq": "heapify heappop heappush heappushpop heapreplace nlargest nsmallest",
    "itertools": "accumulate chain combinations combinations_with_replacement cycle groupby"
    " islice pairwise permutations product starmap takewhile zip_longest",
    "json": "",
    "math": "ceil comb factorial floor gcd inf isqrt lcm log log2 perm sqrt",
    "operator": "itemgetter",
    "random": "",
    "re": "",
    "string": "ascii_letters ascii_lowercase ascii_uppercase digits",
    "sys": "",
    "typing": "Any Callable DefaultDict Deque Dict FrozenSet Generator Iterable Iterator List"
    " Mapping NamedTuple Optional Sequence Set Tuple Type TypeVar Union",
}
"""Modules and their names that a program with a function may use without an import."""

PROGRAM = """
import builtins, json, os, sys

def main(job):
    test = job["test"]
    function = test.get("function")
    vars(builtins).update(exit=sys.exit, quit=sys.exit)  # programs use them; `site` adds them
    try:
        code = compile(job["code"], "program.py", "exec", dont_inherit=True)
    except Exception as error:  # also for null bytes and too deep nesting
        sys.stdout.write(test["mark"] + "compile_error" + describe(error))
        sys.exit(1)
    main_name = "__main__" if function is None else "program"
    names = {"__name__": main_name, "__builtins__": builtins}
    sys.setrecursionlimit(10_000)
    try:
        if function is None:
            exec(code, names)
        else:
            call(code, names, function, test, job["provided"])
    except SystemExit as stop:
        sys.exit(0 if stop.code in (None, 0) else 1)
    except BaseException as error:
        sys.stdout.write("\\n" + describe(error))
        sys.stdout.flush()
        sys.exit(1)

def call(code, names, function, test, provided):
    real = sys.stdout
    sys.stdout = open(os.devnull, "w")
    provide(code, names, provided)
    try:
        exec(code, names)
        if function in names:
            result = names[function](*test["args"])
        else:
            result = getattr(names["Solution"](), function)(*test["args"])
        written = json.dumps(result, default=list)
    finally:
        sys.stdout = real
    sys.stdout.write("\\n" + test["mark"] + written)

def provide(code, names, provided):
    used = set()
    codes = [code]
    for part in codes:
        used.update(part.co_names)
        codes += [constant for constant in part.co_consts if isinstance(constant, type(code))]
    for module, listed in provided.items():
        used_here = used.intersection(listed.split())
        if module in used or used_here:
            loaded = __import__(module)
            names[module] = loaded
            names.update((name, getattr(loaded, name)) for name in used_here)

def describe(error):
    return (type(error).__name__ + ": " + str(error))[:200]

main(globals().pop("job"))
"""
"""Compiles a program, runs it on one test, and says what came of it."""
