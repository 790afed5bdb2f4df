"""What is decided before a fit: the options with their defaults, the coupling of latents, and the plan as text."""
