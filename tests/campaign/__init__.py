"""The campaign: hostile texts, data and servers, damaged fits and interruptions, counted; `make campaign` runs it."""
