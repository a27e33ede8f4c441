#!/bin/sh
# order.sh: names of releases on stdin, sorted.
#
# Each name gets a key that sorts by its bytes: numbers are padded, each part of
# PRE has a mark in front, 1 for a number and 2 for text, and the end of the PRE
# is 0, so that fewer parts come first. A release without PRE ends in 3.
LC_ALL=C
export LC_ALL
room=$(mktemp -d) || exit 2
trap 'rm -rf "$room"' EXIT
number='(0|[1-9][0-9]{0,8})'
form="^v?$number\\.$number\\.$number(-[0-9A-Za-z-]+(\\.[0-9A-Za-z-]+)*)?\$"
: >"$room/good"
: >"$room/other"

key() { # key NAME: sets $k, fails if a number in PRE is none of ours
	name=${1#v}
	core=${name%%-*} pre=
	case $name in
	*-*) pre=${name#*-} ;;
	esac
	IFS=.
	set -- $core
	k=$(printf '%09d%09d%09d' "$1" "$2" "$3")
	if [ -z "$pre" ]; then
		unset IFS
		k=${k}3
		return 0
	fi
	set -- $pre
	unset IFS
	for part; do
		case $part in
		*[!0-9]*) k="${k}2$part " ;;
		0 | [1-9] | [1-9]*[0-9])
			[ ${#part} -le 9 ] || return 1
			k=${k}1$(printf '%09d' "$part")
			;;
		*) return 1 ;;
		esac
	done
	k=${k}0
}

at=0
while IFS= read -r line || [ -n "$line" ]; do
	at=$((at + 1))
	if printf '%s\n' "$line" | grep -E -q "$form" && key "$line"; then
		printf '%s\t%d\t%s\n' "$k" "$at" "$line" >>"$room/good"
	else
		printf '? %s\n' "$line" >>"$room/other"
	fi
done
tab=$(printf '\t')
last=
sort -t "$tab" -k 1,1 -k 2,2n "$room/good" | while IFS=$tab read -r k at line; do
	[ "$k" = "$last" ] || printf '%s\n' "$line"
	last=$k
done
cat "$room/other"
[ ! -s "$room/other" ]
