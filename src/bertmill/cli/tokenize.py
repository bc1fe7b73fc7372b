"""`bertmill tokenize`: prints pieces, ids and offsets of texts as tables or JSON lines."""

from __future__ import annotations

from collections.abc import Iterator

from rich.cells import cell_len, set_cell_size

from bertmill.cli.streams import say
from bertmill.config.text_commands import TokenizeSettings
from bertmill.errors import UsageError
from bertmill.text.encoding import Encoding
from bertmill.text.files import read_lines
from bertmill.text.printable import escaped, json_line
from bertmill.text.repair import Repairs, repair_text
from bertmill.text.tokenizer import BertTokenizer


def run(settings: TokenizeSettings) -> None:
    """Print one table or JSON object per text."""
    if settings.files and settings.text:
        raise UsageError("give files or --text, not both")
    if settings.pair is not None and len(settings.text) != 1:
        raise UsageError("--pair needs exactly one --text")
    case = {} if settings.cased is None else {"do_lower_case": not settings.cased}
    tokenizer = BertTokenizer.from_pretrained(settings.model, **case)
    repairs = Repairs()
    pair = None if settings.pair is None else repair_text(settings.pair, repairs)
    for text in _texts(settings, repairs):
        encoding = tokenizer(text, pair, add_special_tokens=settings.special_tokens, split_special_tokens=True)[0]
        texts = [text] if pair is None else [text, pair]
        print(_json_line(texts, encoding) if settings.as_json else _table(texts, encoding))
    if repairs and not settings.quiet:
        say(f"repaired: {repairs}")


def _texts(settings: TokenizeSettings, repairs: Repairs) -> Iterator[str]:
    if settings.text:
        yield from (repair_text(text, repairs) for text in settings.text)
        return
    options = settings.model_dump(include={"text_field", "encoding"})
    for line in read_lines(settings.files, repairs=repairs, **options):
        if line.text.strip():
            yield line.text


def _json_line(texts: list[str], encoding: Encoding) -> str:
    record = {
        "text": texts[0],
        **({"pair": texts[1]} if len(texts) == 2 else {}),
        "pieces": encoding.tokens,
        "ids": encoding.ids,
        "offsets": encoding.offsets,
        "words": encoding.word_ids,
    }
    return json_line(record)


def _table(texts: list[str], encoding: Encoding) -> str:
    """One line per piece; special tokens cover no characters."""
    lines = [f"{'piece':<20} {'id':>6}  {'characters':<12} {'word':>4}  covers"]
    rows = zip(encoding.tokens, encoding.ids, encoding.offsets, encoding.word_ids, encoding.sequence_ids, strict=True)
    for piece, number, (start, end), word, sequence in rows:
        piece = escaped(piece)
        shown = set_cell_size(piece, 20) if cell_len(piece) < 20 else piece  # an ideograph is two columns wide
        if sequence is None:
            lines.append(f"{shown} {number:>6}")
        else:
            covered = texts[sequence][start:end]
            covered = covered if covered.isprintable() else ascii(covered)
            lines.append(f"{shown} {number:>6}  {f'{start}..{end}':<12} {word:>4}  {covered}")
    return "\n".join([*lines, ""])
