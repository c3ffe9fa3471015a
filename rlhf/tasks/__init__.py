"""What a policy is trained on: prompts, what a good response is, and a first lesson. No torch."""
