"""BERT with Hugging Face's names: from pieces to vectors, without padding internally."""
