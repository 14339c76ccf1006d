"""Made-up loans with a features.toml, for whoever runs the demo on data of his own."""

from __future__ import annotations

import random
from pathlib import Path

FEATURES = """
[income]
type = "integer"
mutability = "increase_only"
min = 0
max = 100
unit = "thousand"
label = "Income"
reason = { code = "INCOME", too_low = "Your income is low for this loan" }

[debt]
type = "number"
mutability = "decrease_only"
min = 0
step = 0.5

[housing]
type = "category"
mutability = "immutable"
categories = ["rent", "own"]
"""


def write_loans(folder: Path) -> Path:
    """Write 300 loans, which are repaid when income is large beside debt; give the folder."""
    dice = random.Random(7)  # noqa: S311 - made-up data
    rows = ["income,debt,housing,repaid"]
    for _ in range(300):
        income, debt = dice.randint(0, 100), dice.randint(0, 100) / 2
        rows.append(
            f"{income},{debt if dice.random() < 0.9 else ''},{dice.choice(['rent', 'own'])},{int(income > debt + 20)}"
        )
    (folder / "loans.csv").write_text("\n".join(rows) + "\n")
    (folder / "features.toml").write_text(FEATURES)
    return folder


def own_data(folder: Path) -> list[str]:
    """The flags of `coach demo` that name them."""
    files = ["--data", str(folder / "loans.csv"), "--features", str(folder / "features.toml")]
    return [*files, "--target-column", "repaid"]
