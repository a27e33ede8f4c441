#!/bin/sh
# honest.sh: a scripted agent. It works in the workspace, reads the model's reply
# on stdin and does what it says:
#
#   write PATH    the lines that follow, each behind one "|", are the file PATH
#   run COMMAND   runs a command in the workspace
#
# It stands for an agent with a real model: what comes in on stdin is the reply.
set -f
file=
while IFS= read -r line; do
	case $line in
	'|'*)
		[ -n "$file" ] || { echo "honest.sh: text without a file" >&2; exit 1; }
		printf '%s\n' "${line#|}" >>"$file"
		;;
	'write '*)
		file=${line#write }
		mkdir -p "$(dirname "./$file")" && : >"$file" || exit 1
		echo "wrote $file"
		;;
	'run '*)
		file=
		sh -c "${line#run }" </dev/null || echo "exit code $?"
		;;
	*)
		echo "honest.sh: cannot read: $line" >&2
		exit 1
		;;
	esac
done
