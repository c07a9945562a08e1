"""Live pages: what was committed reaches every open page, in order, none lost and none twice (DESIGN 5).

`tailer` notices commits, `hub` knows who watches what in this process, `consumer` is one page's socket,
`logs` follows log files. Rows are the truth: a frame only carries what a fresh page would show.
"""
