"""`bertmill inspect`: what a folder holds, in words."""

from __future__ import annotations

import json

from bertmill.cli.folders import find_folder, words_for
from bertmill.config import InspectSettings


def run(settings: InspectSettings) -> None:
    path = find_folder(settings.folder)
    words = words_for(path)
    facts = words.facts(path)
    print(json.dumps(facts, ensure_ascii=False) if settings.as_json else "\n".join(words.sentences(facts)))
