"""`make steady`: the verdict of a client that is right stays right on a machine that is not at rest."""
