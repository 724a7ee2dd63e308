"""findsyms: what does a driver export, what do we cover, and is our library shaped right?"""
