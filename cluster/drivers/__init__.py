"""How a replica is run on a node.

A static replica has nothing to run: others do. A process replica is a program that
the node starts here and that outlives the worker. Free of Django: what is wanted
comes in as values, and the services keep what must be remembered.
"""
