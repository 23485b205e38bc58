"""An environment that uses a CPU in its steps; worker processes import this file."""

from __future__ import annotations

from typing import Any

from gem_core.env.interface import Env

ID = "bench:Algebra-v0"


class Algebra(Env):
    """Asks for the factors of a polynomial; sympy grades each answer. Two turns."""

    fast = True
    _state_fields = ("turn", "roots")

    def _reset(self, options: dict[str, Any] | None) -> tuple[str, dict[str, Any]]:
        self.turn = 0
        self.roots = [self.rng.randint(-30, 30) for _ in range(6)]
        return f"Factorise {self._polynomial().as_expr()}.", {}

    def _step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        import sympy

        self.turn += 1
        difference = self._polynomial().as_expr() - sympy.sympify(action)
        _, factors = sympy.factor_list(sympy.expand(difference))
        right = not factors
        info = {"success": right}
        return f"{len(factors)} factors differ.", float(right), self.turn == 2, False, info

    def _polynomial(self) -> Any:
        import sympy

        x = sympy.Symbol("x")
        product = sympy.prod([(x - root) * (x**2 + abs(root) + 1) for root in self.roots])
        return sympy.Poly(product, x)
