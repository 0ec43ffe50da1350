"""Two sets of six inputs for every network: halves of texts, halves of photographs, reactions."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "examples" / "paper"))  # texts, photographs and loading are those of that page
import inputs as paper  # noqa: E402

# esterification, reduction, nitration, Suzuki coupling, oxidation, amide formation
MORE_REACTIONS = {
    "ester": "OC(=O)c1ccc(Br)cc1.CCO.OS(=O)(=O)O>>CCOC(=O)c1ccc(Br)cc1.O.OS(=O)(=O)O",
    "reduction": "O=C(c1ccccc1)c1ccc(OC)cc1.[BH4-].[Na+].CO>>OC(c1ccccc1)c1ccc(OC)cc1",
    "nitration": "CC(=O)Nc1ccc(C)cc1.O[N+](=O)[O-].OS(=O)(=O)O>>CC(=O)Nc1ccc(C)cc1[N+](=O)[O-]",
    "suzuki": "Brc1ccncc1.OB(O)c1ccc(F)cc1.O=C([O-])[O-].[K+].[K+].C1COCCO1>>Fc1ccc(-c2ccncc2)cc1",
    "oxidation": "OCc1ccc(OCc2ccccc2)cc1.ClCCl.O=[Mn]=O.CCOC(C)=O>>O=Cc1ccc(OCc2ccccc2)cc1",
    "sulfonamide": "Cc1ccc(S(=O)(=O)Cl)cc1.NCc1ccccc1.CCN(CC)CC.ClCCl>>Cc1ccc(S(=O)(=O)NCc2ccccc2)cc1",
}


def texts(which: str) -> list[str]:
    """Six texts, or their first or second halves, cut between words."""
    found = []
    for text in paper.TEXTS.values():
        words = text.split()
        middle = len(words) // 2
        found.append(" ".join({"whole": words, "first": words[:middle], "second": words[middle:]}[which]))
    return found


def images(which: str) -> list[Any]:
    """Left or right halves of six photographs."""
    found = []
    for name in paper.IMAGES:
        pixels = paper.image(name)
        middle = pixels.shape[1] // 2
        found.append(pixels[:, :middle] if which == "first" else pixels[:, middle:])
    return found


def reactions(which: str) -> list[str]:
    """Six reactions."""
    return list((paper.REACTIONS if which == "first" else MORE_REACTIONS).values())
