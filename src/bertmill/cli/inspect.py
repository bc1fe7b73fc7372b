"""`bertmill inspect`: describes a folder."""

from __future__ import annotations

from bertmill.checkpoint.names import find_model_or_file
from bertmill.cli.folders import describer_for
from bertmill.config.commands import InspectSettings
from bertmill.corpus.facts import is_corpus
from bertmill.corpus.objectives import load_objective
from bertmill.errors import UsageError
from bertmill.text.printable import escaped, json_line


def run(settings: InspectSettings) -> None:
    """Print the description of a folder, and instances if it is a corpus and --show is given."""
    load_objective(settings.objective)  # an unknown objective is an error even if it is not used
    path = find_model_or_file(settings.folder)
    describer = describer_for(path)
    if settings.show and (settings.as_json or not is_corpus(path)):
        raise UsageError("--show needs a corpus and cannot be combined with --json")
    facts = describer.facts(path)
    print(json_line(facts) if settings.as_json else "\n".join(map(escaped, describer.sentences(facts))))
    if settings.show:
        from bertmill.cli.corpus_folder import instance_lines

        for line in instance_lines(path, settings):
            print(escaped(line))
