"""From raw text to pieces: repair and reading of files, character classes, WordPiece, the public tokenizer."""
