#!/bin/sh
# stock.sh BEFORE AFTER: what changed in a warehouse.
LC_ALL=C
export LC_ALL
[ $# = 2 ] || exit 2
dir=$(mktemp -d) || exit 2
trap 'rm -rf "$dir"' EXIT

# tidy FILE: checked lines "ARTICLE:NUMBER", without zeros in front.
tidy() {
	[ -f "$1" ] && [ -r "$1" ] || return 1
	sed -e 's/[[:blank:]]*:[[:blank:]]*/:/' -e 's/^[[:blank:]]*//' -e 's/[[:blank:]]*$//' -e '/^$/d' -- "$1" >"$dir/all"
	if grep -E -q -v '^[^:]+:0*[0-9]{1,9}$' "$dir/all"; then
		return 1
	fi
	sed 's/:0*\([0-9]\)/:\1/' "$dir/all"
}

# total: one line for each article, with its sum; articles without stock go.
total() {
	sort -t : -k 1,1 | {
		article= sum=0
		while IFS=: read -r next number; do
			if [ "$next" != "$article" ]; then
				[ "$sum" = 0 ] || printf '%s:%d\n' "$article" "$sum"
				article=$next sum=0
			fi
			sum=$((sum + number))
		done
		[ "$sum" = 0 ] || printf '%s:%d\n' "$article" "$sum"
	}
}

tidy "$1" >"$dir/old" && tidy "$2" >"$dir/new" || {
	echo "stock.sh: a file cannot be read, or has a line of another form" >&2
	exit 2
}
total <"$dir/old" >"$dir/a"
total <"$dir/new" >"$dir/b"
join -t : -a 1 -a 2 -e 0 -o 0,1.2,2.2 "$dir/a" "$dir/b" | {
	same=0 differ=0
	while IFS=: read -r article old new; do
		if [ "$old" = "$new" ]; then
			same=$((same + 1))
			continue
		fi
		differ=1
		case $old:$new in
		0:*) printf '+ %s %s\n' "$article" "$new" ;;
		*:0) printf -- '- %s %s\n' "$article" "$old" ;;
		*) printf '~ %s %s -> %s\n' "$article" "$old" "$new" ;;
		esac
	done
	echo "same $same"
	exit "$differ"
}
