"""hookgen: headers into a committed model, the model into C++.

This package reads `lib/api` and `templates`; it must know neither findsyms nor gpufence.
"""
