#!/bin/sh
# merge.sh FILE...: layers of settings, the later wins.
LC_ALL=C
export LC_ALL
blank=$(printf ' \t')
store=$(mktemp -d) || exit 1
trap 'rm -rf "$store"' EXIT

fail() {
	echo "merge.sh: $1" >&2
	exit 1
}

trim() { # sets $trimmed
	trimmed=${1#"${1%%[!$blank]*}"}
	trimmed=${trimmed%"${trimmed##*[!$blank]}"}
}

is_name() {
	case $1 in
	'' | [0-9]* | *[!A-Za-z0-9_.]*) return 1 ;;
	esac
}

# One file for each setting; the suffix keeps names like "." and ".." harmless.
apply() { # apply LINE
	trim "$1"
	case $trimmed in
	'' | '#'*) return 0 ;;
	'!'*)
		trim "${trimmed#!}"
		is_name "$trimmed" || return 1
		rm -f "$store/$trimmed.value"
		return 0
		;;
	*=*) ;;
	*) return 1 ;;
	esac
	whole=$trimmed
	trim "${whole#*=}"
	value=$trimmed
	left=${whole%%=*}
	append=
	case $left in
	*+) append=yes left=${left%+} ;;
	esac
	trim "$left"
	is_name "$trimmed" || return 1
	if [ -n "$append" ] && [ -f "$store/$trimmed.value" ]; then
		value="$(cat "$store/$trimmed.value") $value"
	fi
	printf '%s\n' "$value" >"$store/$trimmed.value"
}

for file; do
	[ -f "$file" ] && [ -r "$file" ] || fail "$file: cannot read"
	number=0
	while IFS= read -r line || [ -n "$line" ]; do
		number=$((number + 1))
		apply "$line" || fail "$file:$number: bad line"
	done <"$file"
done
ls -A "$store" | sed 's/\.value$//' | sort | while IFS= read -r name; do
	printf '%s=%s\n' "$name" "$(cat "$store/$name.value")"
done
