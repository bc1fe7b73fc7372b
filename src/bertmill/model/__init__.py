"""From pieces to vectors: BERT with Hugging Face's names, without padding inside."""
