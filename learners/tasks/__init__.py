"""What is learnt: data, encoder, evaluation and settings of contrastive, classification and steering tasks."""
