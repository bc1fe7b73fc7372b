"""`bertmill fill`: predicts the piece at each [MASK]."""

from __future__ import annotations

from bertmill.config.commands import FillSettings
from bertmill.inference.predictor import load
from bertmill.text.printable import escaped, json_line


def run(settings: FillSettings) -> None:
    """Print the best predictions for every [MASK] in every text."""
    model = load(settings.model, settings.device)
    for text in settings.texts:
        guesses = model.fill(text, settings.top_k)
        of_masks = guesses if isinstance(guesses[0], list) else [guesses]
        if settings.as_json:
            print(json_line({"text": text, "masks": of_masks}))
            continue
        print(escaped(text))
        for number, of_mask in enumerate(of_masks, start=1):
            if len(of_masks) > 1:
                print(f"  [MASK] {number}")
            for guess in of_mask:
                print(f"  {guess['score']:7.2%}  {escaped(guess['token_str'])}")
