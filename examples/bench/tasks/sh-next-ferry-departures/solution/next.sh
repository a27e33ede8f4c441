#!/bin/sh
# next.sh TIMETABLE STOP HH:MM [COUNT]: the next departures.
LC_ALL=C
export LC_ALL

# minutes TEXT: sets $at to the minutes since midnight.
minutes() {
	case $1 in
	[01][0-9]:[0-5][0-9] | 2[0-3]:[0-5][0-9]) ;;
	*) return 1 ;;
	esac
	h=${1%:*} m=${1#*:}
	at=$((${h#0} * 60 + ${m#0}))
}

[ $# = 3 ] || [ $# = 4 ] || exit 2
timetable=$1 stop=$2 count=${4:-1}
minutes "$3" || exit 2
now=$at
case $count in
[1-9] | [1-9][0-9]) ;;
*) exit 2 ;;
esac

day=$(mktemp) || exit 2
trap 'rm -f "$day"' EXIT
known=
# All departures of one day: minute, line, destination.
while IFS='|' read -r place line to times || [ -n "$place" ]; do
	[ "$place" = "$stop" ] || continue
	case $place in '#'*) continue ;; esac
	known=yes
	for t in $times; do
		case $t in
		*-*/*)
			every=${t#*/} span=${t%/*}
			minutes "${span%-*}" && first=$at && minutes "${span#*-}" && last=$at || exit 2
			while [ "$first" -le "$last" ]; do
				printf '%d|%s|%s\n' "$first" "$line" "$to"
				first=$((first + every))
			done
			;;
		*)
			minutes "$t" || exit 2
			printf '%d|%s|%s\n' "$at" "$line" "$to"
			;;
		esac
	done
done <"$timetable" >"$day"
[ -n "$known" ] || { echo "no such stop" >&2; exit 1; }
[ -s "$day" ] || exit 0
sort -t '|' -k 1,1n -k 2,2 -k 3,3 -o "$day" "$day"

later=0
while :; do
	while IFS='|' read -r at line to; do
		[ "$later" -gt 0 ] || [ "$at" -ge "$now" ] || continue
		mark=
		[ "$later" = 0 ] || mark=" +$later"
		printf '%02d:%02d %s %s%s\n' $((at / 60)) $((at % 60)) "$line" "$to" "$mark"
		count=$((count - 1))
		[ "$count" -gt 0 ] || exit 0
	done <"$day"
	later=$((later + 1))
done
