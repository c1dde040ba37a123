"""The folder that is on the path of the processes under test: Python imports its sitecustomize when it starts."""
