"""Data as ToolBank's, for any library of functions: a catalogue, and queries that a language
model writes for it (Moon et al. 2024, section 3 and appendix C)."""
