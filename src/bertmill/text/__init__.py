"""Raw text to pieces: text repair, file reading, WordPiece, the tokenizer, vocabulary learning, sentence splitting."""
