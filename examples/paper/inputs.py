"""Six texts, written for this page, six photographs that scikit-image brings along, and six textbook reactions."""

from __future__ import annotations

from typing import Any

TOKENS = 96  # every text is cut to as many, so that networks of one model have one shape

TEXTS = {
    "story": (
        "The lighthouse keeper had not spoken to anyone for eleven days when the boat came. It carried flour, lamp "
        "oil, "
        "two letters and a boy of about nine who said that he was to stay until spring. The keeper read the first "
        "letter, then the second, and looked at the boy for a long time. Outside the gulls were quarrelling over "
        "something in the surf. At last he moved his books from the smaller bed, swept the crumbs from the table with "
        "the side of his hand, and asked whether the boy could cook, because he himself had never learned."
    ),
    "recipe": (
        "Put the lentils in a pot with cold water, a bay leaf and half an onion, and bring them slowly to the boil. "
        "Skim the foam, lower the heat and simmer for twenty minutes. Meanwhile chop two carrots, one leek and the "
        "other half of the onion; fry them in oil until soft, then add garlic, cumin and a spoon of tomato paste. Stir "
        "the vegetables into the lentils, season with salt, pepper and a little vinegar, and cook for ten minutes "
        "more. "
        "Serve with bread, yoghurt and chopped parsley, and keep what is left for the next day."
    ),
    "dialogue": (
        '"Did you lock the door?" "I thought you locked it." "I asked you to lock it." "You asked me to find the '
        'keys." '
        '"And did you find them?" "I found one of them." "Which one?" "The one for the bicycle." "We sold the '
        'bicycle." '
        '"Then somebody has a bicycle and no key, and we have a key and no bicycle." "And a door." "And an open door." '
        '"Shall we go back?" "We have walked for an hour." "It takes an hour to empty a house." "It takes ten '
        "minutes, if "
        'there is nothing in it." "Then there is no hurry," she said, and they went back all the same.'
    ),
    "science": (
        "A glacier moves because ice under its own weight deforms and because its base slides over wet rock. In winter "
        "the water below finds only narrow channels, pressure rises and the ice is partly lifted, so that sliding is "
        "fast. In summer meltwater opens wider channels, the pressure falls and the glacier slows again, although more "
        "water passes through it than before. Measurements with satellite receivers on poles show both effects within "
        "one day. The speed of the surface at noon may be twice that at midnight, and a week of rain can move the "
        "whole tongue as far as a month of dry weather."
    ),
    "manual": (
        "Before you open the case, switch the amplifier off and pull the plug; wait five minutes, since the capacitors "
        "stay charged. Loosen the six screws at the back, two of which are hidden under the rubber feet. Lift the lid "
        "by its rear edge and unplug the ribbon cable from the display. The fuse sits beside the transformer. "
        "Replace it "
        "with one of the same rating, never with a stronger one. If the new fuse blows at once, do not try a third: "
        "the fault is elsewhere, most often in the rectifier, and the board should be tested by somebody with the "
        "proper instruments."
    ),
    "letter": (
        "Dear Ms Okafor, thank you for your letter of 3 March about the trees in Mill Lane. The council has looked at "
        "all fourteen of them. Nine are healthy and will stay. Three limes have fungus at the root and must be felled "
        "before the storms in autumn; we shall plant young oaks in their place. About the remaining two we are not yet "
        "certain, and have asked a second expert, who will visit on 2 April. You are welcome to be there. Please bring "
        "the old photographs that you mention, since our own archive was lost in the flood of 1987. Yours sincerely, "
        "Tomasz Brandt, parks department."
    ),
}
# reactants and reagents >> product: substitution, coupling, amide, deprotection, amination, hydrolysis
REACTIONS = {
    "thioether": "CC(C)S.CN(C)C=O.Fc1cccnc1F.O=C([O-])[O-].[K+].[K+]>>CC(C)Sc1ncccc1F",
    "biaryl": "OB(O)c1ccccc1.COc1ccc(Br)cc1.O=C([O-])[O-].[Na+].[Na+].C1CCOC1.O>>COc1ccc(-c2ccccc2)cc1",
    "amide": "CC(C)(C)OC(=O)NCC(=O)O.NCc1ccccc1.CCN(CC)CC.ClCCl>>CC(C)(C)OC(=O)NCC(=O)NCc1ccccc1",
    "amine": "CC(C)(C)OC(=O)N1CCN(c2ccc(F)cc2)CC1.O=C(O)C(F)(F)F.ClCCl>>Fc1ccc(N2CCNCC2)cc1",
    "morpholine": "O=Cc1ccc(Cl)cc1.C1COCCN1.CC(=O)O[BH-](OC(C)=O)OC(C)=O.[Na+].ClCCCl>>Clc1ccc(CN2CCOCC2)cc1",
    "acid": "CCOC(=O)c1ccc(OCc2ccccc2)cc1.[Na+].[OH-].CO.O>>O=C(O)c1ccc(OCc2ccccc2)cc1",
}
# tokens of reactions: atoms in brackets, halogens of two letters, atoms, bonds, rings
SMILES_TOKENS = r"\[[^\]]+\]|Br|Cl|>>|%\d\d|[A-Za-z]|\d|[()=#\-+./\\:~@?*$]"
IMAGES = ("astronaut", "chelsea", "coffee", "rocket", "camera", "motorcycle")


def image(name: str) -> Any:
    """A photograph as an RGB array."""
    import numpy as np
    from skimage import data

    pixels = data.stereo_motorcycle()[0] if name == "motorcycle" else getattr(data, name)()
    return np.repeat(pixels[:, :, None], 3, axis=2) if pixels.ndim == 2 else pixels[:, :, :3]
