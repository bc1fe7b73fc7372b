"""`bertmill corpus`: turns text files into a corpus folder and prints its statistics."""

from __future__ import annotations

from bertmill.cli.corpus_folder import summary
from bertmill.cli.progress import ProgressLine
from bertmill.cli.streams import say
from bertmill.config.text_commands import CorpusSettings
from bertmill.corpus.build import build_corpus
from bertmill.corpus.statistics import summarize
from bertmill.text.files import find_files, size_of_files
from bertmill.text.printable import counted, escaped
from bertmill.text.repair import Repairs
from bertmill.text.tokenizer import BertTokenizer


def run(settings: CorpusSettings) -> None:
    """Build the corpus and print its size and statistics."""
    tokenizer = BertTokenizer.from_pretrained(settings.vocab)
    files = find_files(settings.files)
    repairs = Repairs()
    options = settings.model_dump(include={"workers", "document", "chinese_words", "text_field", "encoding"})
    with ProgressLine("corpus", size_of_files(files), quiet=settings.quiet) as progress:
        facts = build_corpus(files, tokenizer, settings.out, repairs=repairs, on_progress=progress.update, **options)
    if not settings.quiet:
        if repairs:
            say(f"repaired: {repairs}")
        if facts["dropped_sentences"]:
            say(f"dropped: {counted(facts['dropped_sentences'], 'sentence')} without pieces")
    print("\n".join(map(escaped, [summary(facts), *summarize(facts)])))
