#!/bin/sh
# honest.sh: a scripted agent. It works in the workspace, reads the model's reply
# on stdin and does what it says:
#
#   write PATH    the lines that follow, each behind one "|", are the file PATH
#   run COMMAND   runs a command in the workspace
#
# It stands for an agent with a real model: what comes in on stdin is the reply.
set -f
fail() {
	echo "honest.sh: $1" >&2
	exit 1
}
file=
while IFS= read -r line; do
	case $line in
	'|'*)
		[ -n "$file" ] || fail "text without a file"
		printf '%s\n' "${line#|}" >&3
		;;
	'write '*)
		file=${line#write }
		mkdir -p "$(dirname "./$file")" && exec 3>"./$file" || fail "cannot write $file"
		echo "wrote $file"
		;;
	'run '*)
		file=
		exec 3>&-
		sh -c "${line#run }" </dev/null || echo "exit code $?"
		;;
	*) fail "cannot read: $line" ;;
	esac
done
