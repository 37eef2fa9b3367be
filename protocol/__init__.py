"""The language of Huginn: values and rules.

Nothing here knows a clock, randomness, a file, the network or Ray. What a function needs of the
world it takes as an argument; what it cannot know it refuses with a typed error.
"""
