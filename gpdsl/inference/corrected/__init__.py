"""`posterior = corrected`: draws of q that are reweighted, and moved where that does not do, to the exact posterior."""
