"""Evidence for and against what Park and Kim say of curvature."""

from __future__ import annotations

from claims.synthetic import Case, exhibit, hessian

CASES: dict[str, Case] = {
    "HDV-06": Case(
        [exhibit("vit", hessian(nep=0.07), moment="warmup"), exhibit("resnet", hessian(nep=0.0), moment="warmup")],
        [exhibit("vit", hessian(nep=0.0), moment="warmup"), exhibit("resnet", hessian(nep=0.01), moment="warmup")],
    ),
}
