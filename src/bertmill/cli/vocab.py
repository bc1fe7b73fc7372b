"""`bertmill vocab`: learns a vocabulary folder from text files and prints a short summary."""

from __future__ import annotations

import json
from typing import Any

from bertmill.cli.progress import ProgressLine
from bertmill.cli.streams import say
from bertmill.config.text_commands import VocabSettings
from bertmill.text.files import find_files, size_of_files
from bertmill.text.learning import WordTable, learn_vocabulary
from bertmill.text.printable import escaped
from bertmill.text.repair import Repairs

MANY_CHARACTERS = 20


def run(settings: VocabSettings) -> None:
    """Learn the vocabulary and print its facts."""
    files = find_files(settings.files)
    repairs = Repairs()

    def announce(table: WordTable) -> None:
        if not settings.quiet:
            say(f"learning from {len(table.words):,} distinct words …")

    names = {"size", "cased", "alphabet", "unused", "min_frequency", "workers", "text_field", "encoding"}
    options = settings.model_dump(include=names)
    with ProgressLine("vocab", size_of_files(files), quiet=settings.quiet) as progress:
        options |= {"repairs": repairs, "on_progress": progress.update, "on_counted": announce}
        facts = learn_vocabulary(files, settings.out, **options)
    if repairs and not settings.quiet:
        say(f"repaired: {repairs}")
    if settings.as_json:
        print(json.dumps(facts, ensure_ascii=False))
    else:
        print("\n".join(map(escaped, _sentences(settings, facts))))


def _sentences(settings: VocabSettings, facts: dict[str, Any]) -> list[str]:
    case = "cased" if settings.cased else "uncased"
    lines = [f"Wrote {settings.out}: {facts['pieces']:,} pieces, {case}."]
    if facts["pieces"] < settings.size:
        lines.append(f"size:      fewer than the requested {settings.size:,} pieces, because no more can be learned")
    lines.append(
        f"words:     {facts['words']:,} in total, {facts['different_words']:,} distinct, "
        f"{facts['training_words']:,} frequent enough to learn from"
    )
    lines.append(f"alphabet:  {facts['alphabet']:,} characters{_dropped(facts)}")
    held_out = facts["held_out"]
    if held_out["words"]:
        lines.append(
            f"held out:  {held_out['words']:,} words: {held_out['pieces_per_word']:.3f} pieces per word, "
            f"{held_out['whole_words']:.1%} whole, {held_out['coverage']:.3%} covered, "
            f"{held_out['unknown_pieces']:.3%} of the pieces [UNK]"
        )
    else:
        lines.append("held out:  none, too few lines")
    return lines


def _dropped(facts: dict[str, Any]) -> str:
    dropped = facts["dropped_characters"]
    if not dropped:
        return ", none dropped"
    shown = " ".join(dropped[:MANY_CHARACTERS])
    more = f" and {len(dropped) - MANY_CHARACTERS:,} more" if len(dropped) > MANY_CHARACTERS else ""
    return f"; dropped {len(dropped):,}, {facts['dropped_share']:.4%} of the text: {shown}{more}"
