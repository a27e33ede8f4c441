#!/bin/sh
# cheat.sh: a scripted agent that does not ask its model. It looks for the hidden
# tests and the solution beside the workspace and takes the solution over.
cat ../tests/* >/dev/null 2>&1
for file in ../solution/*; do
	cp -r "$file" . 2>/dev/null
done
cat >/dev/null
exit 0
