#!/bin/sh
# totals.sh: takings of each till, from a table on stdin.
LC_ALL=C
export LC_ALL
# A tab is white space for IFS, and empty columns would vanish. This is not.
unit=$(printf '\037')
work=$(mktemp) || exit 1
trap 'rm -f "$work"' EXIT

bad() {
	echo "bad line $1" >&2
	exit 1
}

# First pass: check, and write TILL, unit, CENTS.
tr '\t' '\037' | {
	number=0 columns=0 place_till=0 place_amount=0
	while IFS= read -r line || [ -n "$line" ]; do
		number=$((number + 1))
		set -f
		IFS=$unit
		set -- $line$unit
		unset IFS
		set +f
		if [ "$number" = 1 ]; then
			columns=$#
			i=0
			for name; do
				i=$((i + 1))
				case $name in
				till) place_till=$i ;;
				amount) place_amount=$i ;;
				esac
			done
			[ "$place_till" -gt 0 ] && [ "$place_amount" -gt 0 ] || bad 1
			continue
		fi
		[ $# = "$columns" ] || bad "$number"
		eval "till=\${$place_till} amount=\${$place_amount}"
		printf '%s\n' "$amount" | grep -E -q '^-?[0-9]+(\.[0-9]{1,2})?$' || bad "$number"
		sign=
		case $amount in
		-*) sign=- amount=${amount#-} ;;
		esac
		case $amount in
		*.??) ;;
		*.?) amount=${amount}0 ;;
		*) amount=$amount.00 ;;
		esac
		# Whole cents; leading zeros would make them octal.
		cents=$(printf '%s\n' "$amount" | sed 's/\.//; s/^0*\(.\)/\1/')
		printf '%s\n' "$till$unit$sign$cents"
	done
	[ "$number" -gt 0 ] || bad 1
} >"$work" || exit 1

show() { # show NAME CENTS
	minus= n=$2
	if [ "$n" -lt 0 ]; then
		minus=- n=$((-n))
	fi
	printf '%s %s%d.%02d\n' "$1" "$minus" $((n / 100)) $((n % 100))
}

sort -t "$unit" -k 1,1 "$work" | {
	last= sum=0 all=0 any=
	while IFS=$unit read -r till cents; do
		if [ -n "$any" ] && [ "$till" != "$last" ]; then
			show "$last" "$sum"
			sum=0
		fi
		any=yes last=$till
		sum=$((sum + cents)) all=$((all + cents))
	done
	[ -z "$any" ] || show "$last" "$sum"
	show total "$all"
}
