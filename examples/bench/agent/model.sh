#!/bin/sh
# model.sh TASK: stands for a model. It prints a reply in the form that honest.sh
# reads: the files of the task's reference solution. It runs outside the sandbox.
solution=$(dirname "$0")/../tasks/${1:?usage: model.sh TASK}/solution
cd "$solution" || exit 1
find . -type f | LC_ALL=C sort | while IFS= read -r file; do
	echo "write ${file#./}"
	sed 's/^/|/' "$file"
done
echo "run ls"
